"""Pretraining roberta-mini: what is masked, kept and scored, and that it goes on where it was killed."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from repro import models
from repro.data import files, tokens
from repro.errors import ReproError
from repro.models import load_masked_lm, roberta_parameters
from repro.papers.base import pretraining, roberta_mini
from repro.papers.base.pretraining import stages, tokeniser_of
from repro.papers.base.roberta_mini import held_out_batches, masked_loss, said_twice, spread
from repro.study import experiment, kept_model, run
from repro.study.settings import as_text
from repro.training import MaskedLM

TINY = {"n_layer": 1, "n_embd": 16, "n_head": 2, "sequence": 32, "batch_size": 2, "growing": [[8, 0.5]], "tokens": 640,
        "warmup_steps": 2, "validate_every": 320, "optimizer": "muon", "precision": "bf16", "weights": "bf16",
        "vocab_size": 300}
MODEL, HELD_OUT = roberta_mini, 330
PRETRAINING = experiment("pretrain-roberta-mini")


def plan(**changes):
    config, = PRETRAINING.plan("smoke", {name: as_text(value) for name, value in (TINY | changes).items()})
    return config


@pytest.fixture(scope="module")
def whole(home):
    """A run from the start to its end, and the batches that it was trained on."""
    shapes, plain = [], MaskedLM.forward

    def noted(self, batch):
        if torch.is_grad_enabled():
            shapes.append([tuple(batch[name].shape) for name in ("ids", "positions")])
        return plain(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedLM, "forward", noted)
        return SimpleNamespace(record=run(plan(), progress=False), shapes=shapes)


def test_sequences_grow_and_15_percent_are_predicted(whole):
    assert stages(plan()) == [(8, 8, 5), (32, 2, 5)]
    assert whole.shapes == [[(8, 8), (8, 1)]] * 5 + [[(2, 32), (2, 4)]] * 5
    assert [at for at, _ in whole.record.curves["validation_loss"]] == [320, 640]
    assert whole.record.notes["tokens"] == 640


def test_what_is_kept_is_bf16_with_its_tokeniser_and_scored_as_kept(whole):
    folder = kept_model(plan())
    assert whole.record.notes["model"] == files.sha256(folder / "model.safetensors")
    model, coder = load_masked_lm(folder).eval(), tokeniser_of(plan())
    assert all(torch.equal(weight, weight.bfloat16().float()) for weight in model.parameters())
    batches = held_out_batches(tokens("synthetic-books", "validation", coder).ids[:330], 32, coder.vocab_size)
    assert sum(len(batch["ids"]) for batch in batches) == 10
    total = count = 0
    with torch.no_grad():
        for batch in batches:
            labels = torch.full_like(batch["ids"], -100).scatter(1, batch["positions"], batch["targets"])
            n = (labels >= 0).sum().item()
            total, count = total + n * model(batch["ids"], labels=labels).loss.item(), count + n
    bits = total / count / math.log(2)
    assert whole.record.metrics["masked_bits_per_token"] == pytest.approx(bits, rel=1e-5)
    assert whole.record.units["masked_bits_per_token"] == "bits per masked token"
    assert whole.record.metrics["parameters"] == roberta_parameters(1, 16, 300, 64)


def test_it_is_held_to_what_frequencies_alone_tell(whole):
    coder = tokeniser_of(plan())
    batches = held_out_batches(tokens("synthetic-books", "validation", coder).ids[:330], 32, coder.vocab_size)
    seen = Counter(tokens("synthetic-books", "train", coder).ids.tolist())
    hidden = [x for batch in batches for x in batch["targets"].flatten().tolist() if x >= 0]
    bits = [-math.log2((seen[x] + 1) / (seen.total() + 300)) for x in hidden]
    assert whole.record.metrics["frequency_bits_per_token"] == pytest.approx(sum(bits) / len(bits))


def test_positions_start_as_waves_where_the_config_says_so(monkeypatch):
    class Made(Exception):
        pass

    def note(*args):
        made.append(args)
        raise Made

    made = []
    monkeypatch.setattr(models, "roberta_mini", note)
    for amplitude in (0.05, None):
        with pytest.raises(Made):
            PRETRAINING.execute(plan(sinusoids=amplitude), None)
    assert [args[-1] for args in made] == [0.05, None] and made[0][:-1] == made[1][:-1]


def test_the_folder_is_read_by_plain_transformers(whole):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder, coder = kept_model(plan()), tokeniser_of(plan())
    reader = AutoTokenizer.from_pretrained(folder)
    assert reader.encode("some plain words", add_special_tokens=False) == coder.encode("some plain words").tolist()
    assert reader.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]) == [0, 1, 2, 3, 299]
    assert (reader.bos_token_id, reader.pad_token_id, reader.eos_token_id, reader.mask_token_id) == (0, 1, 2, 299)
    ids = reader("some plain <mask>", return_tensors="pt").input_ids
    assert ids[0, 0] == 0 and ids[0, -1] == 2 and 299 in ids[0]
    model = AutoModelForMaskedLM.from_pretrained(folder)
    assert model(ids).logits.shape == (*ids.shape, 300)


def test_held_out_masks_are_always_the_same():
    ids = torch.randint(4, 299, (330,), generator=torch.Generator().manual_seed(0)).numpy()
    first, again = (held_out_batches(ids, 32, 300) for _ in range(2))
    assert [len(batch["ids"]) for batch in first] == [8, 2]
    assert all(torch.equal(one[name], other[name]) for one, other in zip(first, again, strict=True) for name in one)
    few = held_out_batches(ids, 32, 300, ids < 100)
    assert sum((batch["targets"] >= 0).sum().item() for batch in few) > 30
    assert all((batch["targets"] < 100).all() for batch in few)
    with pytest.raises(ReproError, match="330 tokens of held-out text are fewer than one sequence of 331"):
        held_out_batches(ids, 331, 300)


def test_of_a_passage_read_twice_only_the_second_time_is_hidden_and_what_stands_before_it_is_all_that_differs():
    rows = torch.randint(4, 299, (11, 43), generator=torch.Generator().manual_seed(0)).numpy()  # 20 tokens, twice
    rows[3, 5] = 0  # where a document begins
    again, other = ([{name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}]
                    for batches in said_twice(rows, 300))
    (again,), (other,) = again, other
    assert torch.equal(again["targets"], other["targets"]) and torch.equal(again["positions"], other["positions"])
    hidden = again["targets"] >= 0
    assert set(hidden.sum(1).tolist()) <= {2, 3} and hidden.sum() in (32, 33)  # <s> is not told
    places = again["positions"][hidden]
    assert places.min() >= 21 and places.max() <= 40
    row = torch.arange(11)[:, None].expand_as(hidden)[hidden]
    assert torch.equal(again["ids"][row, places - 20], again["targets"][hidden]), "the answer stands there"
    first = torch.where(torch.from_numpy(rows) == 0, 2, torch.from_numpy(rows))[:, 1:21]
    assert torch.equal(again["ids"][:, 1:21], first) and torch.equal(other["ids"][:, 1:21], first.roll(1, 0))
    assert torch.equal(again["ids"][:, 21:], other["ids"][:, 21:])
    assert (again["ids"][:, 21:41] == 299).sum() > 15


def test_what_is_spread_begins_and_ends_with_the_text():
    ids = torch.arange(4, 104).numpy()
    some, targets = spread(ids, 8, 3, ids % 2 == 0)
    assert some.tolist() == [*range(4, 12), *range(50, 58), *range(96, 104)]
    assert (targets == (some % 2 == 0)).all()
    every, none = spread(ids, 8, 99)
    assert len(every) == 96 and none is None
    with pytest.raises(ReproError, match="100 tokens of held-out text are fewer than one sequence of 101"):
        spread(ids, 101, 3)


def test_every_run_of_a_chain_draws_anew():
    config, other = plan(continues={}), plan(continues={"continues": {}, "tokens": 320})
    assert roberta_mini.chain(plan()) == [plan()] and roberta_mini.chain(config) == [plan(), config]
    assert roberta_mini.chain(other) == [plan(tokens=320), plan(continues={}, tokens=320), other]


def test_batches_count_by_what_they_predict():
    class Known(torch.nn.Module):
        """A loss that is the first token id of the batch."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

    def batch(loss, targets):
        return {"ids": torch.full((1, 4), loss), "targets": torch.tensor([targets])}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedLM, "forward", lambda self, batch: batch["ids"][0, 0].float())
        assert masked_loss(Known(), [batch(5, [1, 2, 3]), batch(9, [4, -100, -100])]) == pytest.approx(6.0)


@pytest.mark.parametrize("at", [3, 7])
def test_killed_in_any_stage_it_ends_in_the_same_record(whole, killed, at):
    assert killed(plan(), at, 10).digest == whole.record.digest


def test_a_run_that_continues_another_starts_from_its_weights_and_reads_on(whole, monkeypatch):
    started, orders, plain, sequences = [], [], MaskedLM.__init__, pretraining.growing_batches

    def noted(self, model):
        started.append({name: weight.clone() for name, weight in model.state_dict().items()})
        plain(self, model)

    def batches(config, text, seed):
        orders.append(seed)
        return sequences(config, text, seed)

    config = plan(continues={"tokens": TINY["tokens"], "growing": TINY["growing"]}, growing=[], tokens=128)
    assert roberta_mini.earlier(config) == plan() and roberta_mini.earlier(plan()) is None
    monkeypatch.setattr(MaskedLM, "__init__", noted)
    monkeypatch.setattr(roberta_mini, "growing_batches", batches)
    record = run(config, progress=False)
    before = load_masked_lm(kept_model(plan())).state_dict()
    assert all(torch.equal(weight, before[name]) for name, weight in started[0].items())
    assert record.needs == {whole.record.id: whole.record.digest}
    assert record.notes["tokens"] == 640 + 128 and orders == [1]
    assert record.curves["train_loss"][-1][0] == 128 and record.notes["tokeniser"] == whole.record.notes["tokeniser"]


@pytest.mark.parametrize(("changes", "told"), [
    ({"continues": {}, "sinusoids": 0.05}, "sinusoids is 0.05, but a run that continues another starts from its"),
    ({"continues": {"batch_size": 0}}, "batch_size is 0"),
    ({"continues": {"n_layer": 2}}, "continues has n_layer=2; the continued run may differ only in batch"),
    ({"continues": {"continues": {"n_layer": 2}}}, "continues has n_layer=2"),
    ({"continues": {"tokenss": 65}}, "continues has tokenss=65")])
def test_what_cannot_be_continued_is_one_clear_line(changes, told):
    with pytest.raises(ReproError, match=told) as error:
        PRETRAINING.needs(plan(**changes))
    assert "\n" not in str(error.value)


def test_small_is_of_the_size_it_should_be():
    config, before, short, first = PRETRAINING.plan("small")
    estimate = PRETRAINING.estimate(config)
    assert 7_000_000 < estimate.parameters < 7_200_000
    assert stages(short) == [(32, 64, 2051), (128, 16, 2734), (512, 4, 2051)]
    assert stages(config) == stages(before) == [(512, 4, 5860)]
    assert roberta_mini.chain(config) == [short, before, config]
    assert stages(first) == [(128, 32, 7324), (512, 8, 7325)]
    assert (first.tokens, first.sinusoids) == (60_000_000, None)
    assert PRETRAINING.estimate(first).parameters == estimate.parameters
    assert (config.n_layer, config.n_embd, config.vocab_size, config.n_positions) == (6, 256, 8192, 512)
    assert (config.corpus, config.tokens, config.weights) == ("books-and-wikipedia", 12_000_000, "bf16")
    assert (config.optimizer, config.precision, short.sinusoids) == ("muon", "bf16", 0.05)
    assert PRETRAINING.reads(config) == ("books-and-wikipedia",)
    gpt2, = experiment("pretrain-gpt2-mini").plan("small", {"n_layer": "6", "n_embd": "256", "vocab_size": "8192"})
    ratio = estimate.parameters / experiment("pretrain-gpt2-mini").estimate(gpt2).parameters
    assert ratio == pytest.approx(1, abs=0.02)
