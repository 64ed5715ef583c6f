"""Our GPT-2 of any size, its number of weights, and checkpoints found, missing and damaged."""

import errno
import os

import pytest
import torch

from repro.errors import ReproError
from repro.models import gpt2_mini, load_causal_lm, parameters, save_causal_lm
from repro.recurrence import RecurrenceConfig


@pytest.mark.parametrize("size", [(2, 16, 29, 32), (3, 24, 11, 8), (1, 8, 300, 1024)], ids=str)
def test_the_number_of_weights_is_the_models(size):
    n_layer, n_embd, vocabulary, context = size
    model = gpt2_mini(n_layer, n_embd, 4, vocabulary, context)
    assert parameters(*size) == sum(p.numel() for p in model.parameters())


def test_gpt2_small_has_its_known_number_of_weights():
    assert parameters(12, 768, 50257) == 124_439_808


def test_the_model_is_gpt2_of_the_size_asked_for_and_without_dropout():
    from transformers import GPT2LMHeadModel

    model = gpt2_mini(2, 16, 4, 29, 32, bos=3)
    config = model.config
    assert type(model) is GPT2LMHeadModel
    assert (config.n_layer, config.n_embd, config.n_head, config.vocab_size, config.n_positions) == (2, 16, 4, 29, 32)
    assert (config.bos_token_id, config.eos_token_id) == (3, 3)
    assert gpt2_mini(1, 8, 2, 11).config.n_positions == 1024
    ids = torch.arange(20).view(2, 10)
    model.train()
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_fresh_weights_follow_the_seed():
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(gpt2_mini(1, 8, 2, 11, 8).transformer.wte.weight)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_heads_must_divide_the_width():
    with pytest.raises(ReproError, match="n_embd is 16 and n_head 3"):
        gpt2_mini(1, 16, 3, 11)


def test_a_folder_comes_back_as_what_was_saved(tiny_gpt2, tiny_recurrent, tmp_path):
    for name, model in (("plain", tiny_gpt2()), ("recurrent", tiny_recurrent(insert_layer=2))):
        model.save_pretrained(tmp_path / name)
        loaded = load_causal_lm(tmp_path / name)
        assert type(loaded) is type(model)
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(x, loaded.state_dict()[key]) for key, x in model.state_dict().items())
    assert loaded.recurrence.config.insert_layer == 2


@pytest.mark.parametrize("recurrent", [False, True])
def test_weights_kept_as_bf16_are_rounded_and_come_back_as_fp32(tiny_gpt2, tiny_recurrent, tmp_path, recurrent):
    model = tiny_recurrent() if recurrent else tiny_gpt2()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    for weights in ("fp32", "bf16"):
        save_causal_lm(model, tmp_path / weights, weights)
    again = load_causal_lm(tmp_path / "bf16")
    assert type(again) is type(model)
    for name, weight in again.state_dict().items():
        assert weight.dtype == before[name].dtype
        assert torch.equal(weight, before[name].bfloat16().to(weight.dtype))
        assert torch.equal(model.state_dict()[name], before[name])  # that in hand stays as it is
    sizes = [(tmp_path / kept / "model.safetensors").stat().st_size for kept in ("fp32", "bf16")]
    assert 1.8 < sizes[0] / sizes[1] < 2
    attached = load_causal_lm(tmp_path / "bf16", None if recurrent else RecurrenceConfig(0, 8))
    assert {weight.dtype for weight in attached.parameters()} == {torch.float32}


def test_a_module_is_attached_if_settings_are_given(tiny_gpt2, tmp_path):
    plain = tiny_gpt2()
    plain.save_pretrained(tmp_path)
    settings = RecurrenceConfig(insert_layer=0, hidden_size=5, hidden_layers=1, n_embeddings=2)
    model = load_causal_lm(str(tmp_path), settings)
    assert model.recurrence.config == settings
    assert all(torch.equal(x, model.state_dict()[key]) for key, x in plain.state_dict().items())
    model.save_pretrained(tmp_path / "recurrent")
    assert load_causal_lm(tmp_path / "recurrent", settings).recurrence.config == settings
    with pytest.raises(ReproError, match="was saved with recurrence"):
        load_causal_lm(tmp_path / "recurrent", RecurrenceConfig(insert_layer=1))


@pytest.mark.parametrize("recurrence", [None, RecurrenceConfig(insert_layer=1)], ids=["plain", "recurrent"])
def test_a_missing_checkpoint_is_named(tmp_path, recurrence):
    with pytest.raises(ReproError, match="no checkpoint .*nowhere"):
        load_causal_lm(tmp_path / "nowhere", recurrence)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReproError, match="empty holds no config.json"):
        load_causal_lm(tmp_path / "empty", recurrence)
    for kind, message in (("llama", "llama holds no complete checkpoint"),
                          ("t5", "t5 is a checkpoint of t5, which is no decoder"),
                          ("strange", "strange is a checkpoint of strange, which is no decoder")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(f'{{"model_type": "{kind}"}}')
        with pytest.raises(ReproError, match=message) as error:
            load_causal_lm(tmp_path / kind, recurrence)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("damage", ["no weights", "weights cut in half", "empty weights", "broken config"])
def test_a_damaged_checkpoint_is_named(tiny_gpt2, tiny_recurrent, tmp_path, damage, recurrent):
    (tiny_recurrent() if recurrent else tiny_gpt2()).save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if damage == "no weights":
        weights.unlink()
    elif damage == "broken config":
        config.write_text(config.read_text()[:40])
    else:
        weights.write_bytes(weights.read_bytes()[:weights.stat().st_size // 2 if "half" in damage else 0])
    with pytest.raises(ReproError, match=str(tmp_path)):
        load_causal_lm(tmp_path)


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_saved_model_replaces_the_one_before(tiny_gpt2, tiny_recurrent, tmp_path, recurrent):
    folder = tmp_path / "new" / "model"
    for seed in (0, 1):
        model = (tiny_recurrent if recurrent else tiny_gpt2)(seed=seed)
        save_causal_lm(model, folder)
        loaded = load_causal_lm(folder)
        assert type(loaded) is type(model)
        assert all(torch.equal(x, loaded.state_dict()[key]) for key, x in model.state_dict().items())
        assert os.listdir(folder.parent) == ["model"]
        (folder / "of the model before").touch()
    save_causal_lm(model, str(folder))
    assert not (folder / "of the model before").exists()


def test_a_full_disk_leaves_the_model_before(tiny_gpt2, tmp_path, monkeypatch):
    model = tiny_gpt2()
    save_causal_lm(model, tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()

    def full(folder, **_):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    other = tiny_gpt2(seed=1)
    monkeypatch.setattr(other, "save_pretrained", full)
    with pytest.raises(ReproError, match="No space left on device"):
        save_causal_lm(other, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(("rank", "written"), [("0", True), ("1", False)])
def test_of_several_processes_only_the_first_writes(tiny_gpt2, tmp_path, monkeypatch, rank, written):
    monkeypatch.setenv("RANK", rank)
    save_causal_lm(tiny_gpt2(), tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"] * written


def test_what_a_killed_save_left_is_not_taken_over(tiny_gpt2, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(folder, **_):
        os.makedirs(folder)
        open(os.path.join(folder, "stale.safetensors"), "w").close()
        raise Killed

    model = tiny_gpt2()
    with monkeypatch.context() as patch:
        patch.setattr(model, "save_pretrained", killed)
        with pytest.raises(Killed):
            save_causal_lm(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    save_causal_lm(model, tmp_path / "model")
    assert not (tmp_path / "model" / "stale.safetensors").exists()
    assert load_causal_lm(tmp_path / "model").config.n_layer == 3


@pytest.mark.parametrize("shown", [True, False])
def test_progress_bars_are_left_as_they_were(tiny_gpt2, tmp_path, shown, capfd):
    from transformers.utils import logging

    tiny_gpt2().save_pretrained(tmp_path)
    before = logging.is_progress_bar_enabled()
    capfd.readouterr()
    try:
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
        load_causal_lm(tmp_path)
        assert logging.is_progress_bar_enabled() == shown
        with pytest.raises(ReproError):
            load_causal_lm(tmp_path / "nowhere")
        assert logging.is_progress_bar_enabled() == shown
        assert "%|" not in capfd.readouterr().err
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()
