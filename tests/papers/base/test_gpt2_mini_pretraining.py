"""Pretraining gpt2-mini: the stages in which sequences grow, what is kept, and that it goes on where it was killed."""

import math
import os
from types import SimpleNamespace

import pytest
import tiny_gemma
import torch

from repro import paths
from repro.data import files, tokens
from repro.errors import ReproError
from repro.models import load_causal_lm
from repro.papers.base import gpt2_mini, pretraining
from repro.papers.base.gpt2_mini import token_loss, tokeniser_of
from repro.papers.base.pretraining import stages
from repro.study import experiment, model_folder, run, run_id
from repro.study.settings import as_text
from repro.training import Sequences
from repro.training import trainer as trainer_module

TINY = {"n_layer": 1, "n_embd": 16, "n_head": 2, "sequence": 32, "batch_size": 2, "growing": [[8, 0.5], [16, 0.3]],
        "tokens": 640, "warmup_steps": 2, "validate_every": 320, "optimizer": "muon", "precision": "bf16",
        "weights": "bf16", "tokeniser": "bpe", "vocab_size": 300}
MODEL, HELD_OUT = gpt2_mini, 300
PRETRAINING = experiment("pretrain-gpt2-mini")


def plan(**changes):
    config, = PRETRAINING.plan("smoke", {name: as_text(value) for name, value in (TINY | changes).items()})
    return config


@pytest.fixture(scope="module")
def whole(home):
    """A run from the start to its end, and the batches that it read."""
    shapes, plain = [], Sequences.batch

    def noted(self, step):
        batch = plain(self, step)
        shapes.append(tuple(batch.shape))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sequences, "batch", noted)
        return SimpleNamespace(record=run(plan(), progress=False), shapes=shapes)


def test_sequences_grow_and_every_step_has_as_many_tokens(whole):
    assert stages(plan()) == [(8, 8, 5), (16, 4, 3), (32, 2, 2)]
    assert whole.shapes == [(8, 9)] * 5 + [(4, 17)] * 3 + [(2, 33)] * 2
    assert [at for at, _ in whole.record.curves["validation_loss"]] == [320, 640]
    assert whole.record.notes["tokens"] == 640


def test_held_out_text_is_read_in_windows_of_full_length_in_every_stage(home, monkeypatch):
    windows, plain = [], gpt2_mini.token_loss
    monkeypatch.setattr(gpt2_mini, "token_loss", lambda model, ids, window: windows.append((len(ids), window))
                        or plain(model, ids, window))
    record = run(plan(validate_every=64, learning_rate=0.02), progress=False)
    assert windows == [(300, 32)] * 11, "ten steps of all stages, and the weights that are kept"
    best = min(loss for _, loss in record.curves["validation_loss"])
    assert record.metrics["validation_token_loss"] == pytest.approx(best, rel=1e-2), "but for their rounding to bf16"


@pytest.mark.parametrize(("tokens", "growing", "steps"), [
    (640, [], [10]), (641, [], [11]), (64, [[8, 0.4]], [0, 1]), (960, [[8, 0.33], [16, 0.33]], [5, 5, 5]),
    (60_000_000, [[8, 0.1], [8, 0.1], [16, 0.7]], [93_750, 93_750, 656_250, 93_750])])
def test_the_steps_of_the_stages_are_all_steps(tokens, growing, steps):
    config = plan(tokens=tokens, growing=growing)
    assert [n for _, _, n in stages(config)] == steps
    assert sum(steps) == math.ceil(tokens / 64)
    assert [length for length, _, _ in stages(config)] == [*(length for length, _ in growing), 32]


def test_the_rate_falls_over_all_stages_to_the_end(home, monkeypatch):
    rates, plain = [], trainer_module.TrainConfig.rate
    monkeypatch.setattr(trainer_module.TrainConfig, "rate",
                        lambda self, step, steps: rates.append(plain(self, step, steps)) or rates[-1])
    run(plan(seed=0, tokens=640, learning_rate=0.01, validate_every=640), progress=False)
    assert rates == pytest.approx([0.005, 0.01, *(0.01 * (10 - step) / 8 for step in range(2, 10))])


def test_what_is_kept_is_bf16_with_its_tokeniser_and_scored_as_kept(whole, home):
    from safetensors.torch import load_file
    from transformers import PreTrainedTokenizerFast

    config = plan()
    folder = model_folder(config, progress=False)
    kept = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.bfloat16}
    assert whole.record.notes["model"] == files.sha256(folder / "model.safetensors")
    model, coder = load_causal_lm(folder), tokeniser_of(config)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert all(torch.equal(kept[name].float(), model.state_dict()[name]) for name in kept)
    held_out = tokens(config.corpus, "validation", coder).ids[:300]
    of_those = pytest.approx(token_loss(model, held_out, 32), rel=1e-6)  # training takes other products than reading
    assert whole.record.metrics["validation_token_loss"] == of_those
    again = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    assert again.encode("some plain words", add_special_tokens=False) == coder.encode("some plain words").tolist()
    assert set(os.listdir(folder)) == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


def test_what_is_kept_in_fp32_is_what_was_trained(home):
    folder = model_folder(plan(weights="fp32"), progress=False)
    assert "tokenizer.json" not in os.listdir(folder)
    rounded = load_causal_lm(model_folder(plan(), progress=False)).state_dict()
    exact = load_causal_lm(folder).state_dict()
    assert all(torch.equal(exact[name].bfloat16().float(), rounded[name]) for name in exact)
    assert not torch.equal(exact["transformer.wte.weight"], rounded["transformer.wte.weight"])


@pytest.mark.parametrize("at", [3, 5, 9])
def test_killed_in_any_stage_it_ends_in_the_same_record(whole, killed, at):
    assert killed(plan(), at, 10).digest == whole.record.digest


def test_seeds_differ_in_weights_and_order(whole, home):
    other, = PRETRAINING.plan("smoke", {name: as_text(value) for name, value in TINY.items()}, seeds=[1])
    assert run(other, progress=False).curves["train_loss"] != whole.record.curves["train_loss"]


@pytest.mark.parametrize(("sets", "told"), [
    ({"growing": [[64, 0.5]]}, "growing has sequences of 64 tokens; they must be at most sequence=32"),
    ({"growing": [[24, 0.5]]}, "growing has sequences of 24 tokens; they must .* divide the 64 tokens of a batch"),
    ({"growing": [[8, 0.5], [16, 0.5]]}, "growing takes all of the steps"),
    ({"growing": [[8, 1.5]]}, "growing.0.1"), ({"optimizer": "sgd"}, "unknown optimizer 'sgd'"),
    ({"weights": "fp8"}, "unknown weights 'fp8'"),
    ({"tokeniser": "word", "vocab_size": 205}, "weights=bf16 .* tokeniser=word .*bpe")])
def test_settings_that_cannot_be(sets, told):
    with pytest.raises(ReproError, match=told) as raised:
        plan(**sets)
    assert "\n" not in str(raised.value)


def test_what_was_there_before_has_no_new_settings():
    for scale in {*PRETRAINING.scales} - {"small"}:
        config, = PRETRAINING.plan(scale)
        said = {"optimizer", "growing", "weights"} & config.settings().keys()
        assert said == ({"optimizer"} if scale == "smoke" else set())
    assert {"optimizer", "growing", "weights"} <= plan().settings().keys()


def test_the_base_of_small_is_of_the_size_it_should_be():
    config, = PRETRAINING.plan("small")
    estimate = PRETRAINING.estimate(config)
    assert 7_000_000 < estimate.parameters < 7_200_000
    assert {length * size for length, size, _ in stages(config)} == {4096}
    assert sum(steps for _, _, steps in stages(config)) == 14_649
    assert PRETRAINING.reads(config) == ("books-and-wikipedia",)
    assert (config.tokeniser, config.source) == ("bpe", "scratch")


@pytest.mark.skipif(paths.data() is None, reason="ids need the corpora: set REPRO_DATA")
def test_the_base_of_small_keeps_its_id():
    config, = PRETRAINING.plan("small")
    assert run_id(config) == "590cbb4eb2418ec5"


def test_a_cut_model_becomes_the_base_and_opens_every_window(home, tmp_path, monkeypatch):
    made, backend = tiny_gemma.folder(tmp_path / "cut")
    for module in (gpt2_mini, pretraining):
        monkeypatch.setattr(module, "cut_model", lambda config: tmp_path / "cut")
    config, = PRETRAINING.plan("smoke", {"source": "gemma-3-270m", "tokeniser": "cut"})
    record = run(config, progress=False)
    assert record.metrics["parameters"] == sum(weight.numel() for weight in made.parameters())
    assert "model" not in record.notes  # published weights never lie next to a record
    model, coder = load_causal_lm(model_folder(config, progress=False)), tokeniser_of(config)
    assert model.config.opening_token == coder.bos == backend.token_to_id("<bos>")
    ids = torch.tensor([coder.encode(tiny_gemma.TEXTS[0])])
    with torch.no_grad():
        whole = made(torch.cat([torch.tensor([[coder.bos]]), ids], 1)).logits[:, 1:]
        torch.testing.assert_close(model(ids).logits, whole, rtol=1e-6, atol=1e-6)


def test_a_model_is_cut_once_for_its_texts(tmp_path, monkeypatch):
    from repro.models import pretrained, vocabulary

    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "models"))
    config, = PRETRAINING.plan("smoke", {"source": "gemma-3-270m", "tokeniser": "cut"})
    with pytest.raises(ReproError, match="run `repro models fetch gemma-3-270m`"):
        pretraining.cut_model(config)
    made = []
    monkeypatch.setattr(pretrained, "folder", lambda name: tmp_path / name)
    monkeypatch.setattr(vocabulary, "study_texts", lambda: ["text"])
    monkeypatch.setattr(vocabulary, "cut", lambda source, target, texts: made.append((source.name, texts))
                        or target.mkdir(parents=True) or target)
    first, again = pretraining.cut_model(config), pretraining.cut_model(config)
    other = pretraining.cut_model(config.model_copy(update={"tokeniser_corpora": ("synthetic-books",) * 2}))
    monkeypatch.setattr(vocabulary, "STUDY_TEXTS", (("synthetic-books", "train", 1),))
    assert len({first, other, pretraining.cut_model(config)}) == 3 and first == again
    assert made == [("gemma-3-270m", ["text"])] * 3
