"""The loop against Adam written by hand, and what it does when something goes wrong."""

import copy
import errno
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from repro.errors import ReproError
from repro.recurrence import RecurrenceConfig, RecurrentLM
from repro.training import LengthBuckets, Sequences, TrainConfig, WindowedLM, train

LENGTH, BATCH = 8, 4  # 32 targets a step


@pytest.fixture
def sequences(stream):
    return Sequences(stream, LENGTH, BATCH, seed=3)


def config(steps=10, **changes):
    return TrainConfig(**{"tokens": 32 * steps, "learning_rate": 0.02, "warmup_steps": 4} | changes)


def weights(objective):
    return {name: x.detach().clone() for name, x in objective.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def by_hand(objective, sequences, rates, clip=1.0, weight_decay=0.0, vectors=0.0):
    """Adam with clipping and decoupled decay (`vectors`: of biases), by definition: losses, and weights after every
    step."""
    objective = copy.deepcopy(objective)
    parameters = list(objective.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    losses, history = [], []
    for step, rate in enumerate(rates):
        loss = objective(sequences.batch(step))
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, parameters)
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        with torch.no_grad():
            for k, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
                g = g * min(1.0, clip / (norm + 1e-6))
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g**2
                mean, square = first[k] / (1 - 0.9 ** (step + 1)), second[k] / (1 - 0.999 ** (step + 1))
                decay = weight_decay if p.ndim > 1 else vectors
                p.copy_(p * (1 - rate * decay) - rate * mean / (square.sqrt() + 1e-8))
        history.append(weights(objective))
    return losses, history


WARM = [0.005, 0.01, 0.015, 0.02]


@pytest.mark.parametrize(("changes", "rates", "by_hand_options"), [
    ({}, WARM + [0.02] * 6, {}),
    ({"decay": "linear"}, WARM + [0.02 * k / 6 for k in (6, 5, 4, 3, 2, 1)], {}),
    ({"warmup_steps": 0}, [0.02] * 10, {}),
    ({"clip": 0.05}, WARM + [0.02] * 6, {"clip": 0.05}),
    ({"weight_decay": 0.5}, WARM + [0.02] * 6, {"weight_decay": 0.5}),
    ({"weight_decay": 0.5, "decayed": "all"}, WARM + [0.02] * 6, {"weight_decay": 0.5, "vectors": 0.5})], ids=str)
def test_every_step_is_the_one_computed_by_hand(bigram, sequences, changes, rates, by_hand_options):
    objective = bigram()
    losses, history = by_hand(objective, sequences, rates, **by_hand_options)
    told = []

    class Progress:
        def advance(self, n, loss):
            told.append((n, loss))

    result = train(objective, sequences, config(**changes), progress=Progress(), device="cpu")
    for name, expected in history[-1].items():
        torch.testing.assert_close(objective.state_dict()[name], expected, rtol=1e-9, atol=1e-12)
    assert told == [(32, round(loss, 3)) for loss in losses]
    assert (result.steps, result.tokens, result.stopped_early) == (10, 320, False)
    assert result.curves["train_loss"] == [[320, pytest.approx(sum(losses) / 10, rel=1e-9)]]
    assert not objective.training
    if by_hand_options:  # the option makes a difference, so the comparison above means something
        plain = by_hand(bigram(), sequences, rates)[1][-1]
        assert (plain["write.weight"] - history[-1]["write.weight"]).abs().max() > 1e-4


@pytest.mark.parametrize(("changes", "steps", "expected"), [
    ({"warmup_steps": 4}, 10, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]),
    ({"warmup_steps": 4, "decay": "linear"}, 9, [0.25, 0.5, 0.75, 1, 1, 0.8, 0.6, 0.4, 0.2]),
    ({"warmup_steps": 0, "decay": "linear"}, 4, [1, 0.75, 0.5, 0.25]),
    ({"warmup_steps": 8, "decay": "linear"}, 4, [0.125, 0.25, 0.375, 0.5]),
    ({"warmup_steps": 4, "decay": "linear"}, 4, [0.25, 0.5, 0.75, 1]),
    ({"warmup_steps": 1}, 2, [1, 1])], ids=str)
def test_the_schedule_warms_up_from_the_first_step_and_decays_linearly(changes, steps, expected):
    settings = config(learning_rate=2.0, **changes)
    assert [settings.rate(step, steps) for step in range(steps)] == pytest.approx([2 * x for x in expected], rel=1e-12)


def test_the_default_warms_up_over_100_steps():
    settings = TrainConfig(tokens=1, learning_rate=1.0)
    assert [settings.rate(k, 1000) for k in (0, 49, 99, 100, 999)] == [0.01, 0.5, 1.0, 1.0, 1.0]


def test_curves_hold_means_and_tokens(bigram, sequences):
    objective = bigram()
    losses, history = by_hand(objective, sequences, WARM + [0.02] * 46)
    seen = []

    def validate(module):
        assert module is objective
        assert not module.training
        seen.append(weights(module))
        return 5.0 - len(seen)

    # Tokens are rounded up to whole steps: 50. A validation falls on step 32, the first with 1,000 tokens.
    result = train(objective, sequences, config(tokens=1_590, validate_every=1_000), validate=validate, device="cpu")
    assert (result.steps, result.tokens) == (50, 1_600)
    means = [sum(losses[a:b]) / (b - a) for a, b in ((0, 20), (20, 32), (32, 50))]
    assert result.curves["train_loss"] == [[640, pytest.approx(means[0])], [1_024, pytest.approx(means[1])],
                                           [1_600, pytest.approx(means[2])]]
    assert result.curves["validation_loss"] == [[1_024, 4.0], [1_600, 3.0]]
    for found, step in zip(seen, (31, 49), strict=True):
        torch.testing.assert_close(found["write.weight"], history[step]["write.weight"], rtol=1e-9, atol=1e-12)


def test_what_is_watched_stands_beside_the_training_loss(bigram, sequences, tmp_path):
    def watch(objective):
        return {"first weight": next(objective.parameters()).flatten()[0].item()}
    objective = bigram()
    result = train(objective, sequences, config(steps=45), tmp_path, watch=watch)
    assert [tokens for tokens, _ in result.curves["first weight"]] == [t for t, _ in result.curves["train_loss"]]
    assert result.curves["first weight"][-1][1] == next(objective.parameters()).flatten()[0].item()
    assert len({value for _, value in result.curves["first weight"]}) == len(result.curves["train_loss"]) > 1


@pytest.mark.parametrize(("patience", "validations", "best"), [
    (1, 3, 1), (2, 4, 1), (3, 7, 3), (None, 8, 7), (9, 8, 7)])
def test_training_stops_early_and_leaves_the_best_weights(bigram, sequences, patience, validations, best):
    losses = [3.0, 2.0, 2.5, 2.0, 1.5, 1.6, 1.7, 1.0] if patience != 3 else [3.0, 2.0, 2.5, 1.5, 1.6, 1.5, 1.7, 1.0]
    objective, seen = bigram(), []

    def validate(module):
        seen.append(weights(module))
        return losses[len(seen) - 1]

    settings = config(steps=16, validate_every=64, patience=patience)
    result = train(objective, sequences, settings, validate=validate, device="cpu")
    assert len(seen) == validations
    assert result.stopped_early == (validations < 8)
    assert result.steps == 2 * validations
    assert result.best_loss == losses[best] == min(losses[:validations])
    assert [loss for _, loss in result.curves["validation_loss"]] == losses[:validations]
    assert same(weights(objective), seen[best])
    assert not same(seen[best], seen[best - 1])


@pytest.mark.parametrize(("best", "best_is", "kept"), [
    ("loss", "lowest", 2), ("loss", "highest", 0), ("accuracy", "highest", 1), ("accuracy", "lowest", 3)])
def test_any_metric_may_choose_the_weights(bigram, sequences, tmp_path, best, best_is, kept):
    found = [{"loss": 3.0, "accuracy": 0.4}, {"loss": 2.5, "accuracy": 0.9}, {"loss": 2.0, "accuracy": 0.9},
             {"loss": 2.2, "accuracy": 0.1}]
    objective, seen = bigram(), []

    def validate(module):
        seen.append(weights(module))
        return found[len(seen) - 1]

    settings = config(steps=8, validate_every=64, best=best, best_is=best_is)
    result = train(objective, sequences, settings, tmp_path, validate=validate, device="cpu")
    assert result.best == found[kept]
    assert result.best_loss == found[kept]["loss"]
    for name in ("loss", "accuracy"):
        assert result.curves[f"validation_{name}"] == [[64 * (k + 1), x[name]] for k, x in enumerate(found)]
    assert same(weights(objective), seen[kept])
    again = bigram()
    assert train(again, sequences, settings, tmp_path, validate=validate, device="cpu") == result
    assert same(weights(again), seen[kept])


def test_patience_looks_at_the_chosen_metric(bigram, sequences):
    accuracies = iter([0.1, 0.3, 0.3, 0.2, 0.9])
    settings = config(steps=10, validate_every=64, best="accuracy", best_is="highest", patience=2)
    result = train(bigram(), sequences, settings, device="cpu",
                   validate=lambda module: {"accuracy": np.float32(next(accuracies))})
    assert (result.stopped_early, result.steps) == (True, 8)
    assert result.best == {"accuracy": pytest.approx(0.3)}
    assert result.best_loss == math.inf


def test_a_metric_that_is_not_returned_is_named_and_the_training_can_go_on(bigram, sequences, tmp_path):
    settings = config(steps=4, validate_every=64, best="f1", checkpoint_every=0)
    with pytest.raises(ReproError, match="best is 'f1'.*returns loss, accuracy"):
        train(bigram(), sequences, settings, tmp_path, lambda module: {"loss": 1.0, "accuracy": 0.5}, device="cpu")
    read = []
    sequences.batch = lambda step, batch=sequences.batch: read.append(step) or batch(step)
    train(bigram(), sequences, settings, tmp_path, lambda module: {"f1": 1.0}, device="cpu")
    assert read == [1, 2, 3]  # the first step was in the checkpoint


def test_a_metric_that_is_not_finite_is_named(bigram, sequences):
    with pytest.raises(ReproError, match="validation f1 is nan after 64 tokens"):
        train(bigram(), sequences, config(validate_every=64), device="cpu",
              validate=lambda module: {"loss": 1.0, "f1": math.nan})


def test_without_validation_the_last_weights_stay(bigram, sequences):
    objective = bigram()
    _, history = by_hand(objective, sequences, WARM)
    result = train(objective, sequences, config(steps=4), device="cpu")
    torch.testing.assert_close(objective.write.weight.data, history[3]["write.weight"], rtol=1e-9, atol=1e-12)
    assert result.curves["validation_loss"] == []
    assert result.best_loss == math.inf


def test_a_text_with_one_rule_is_learnt(bigram):
    objective = bigram()
    sequences = Sequences(np.arange(400) % 11, LENGTH, BATCH)
    result = train(objective, sequences, config(steps=200, learning_rate=0.05), device="cpu")
    curve = [loss for _, loss in result.curves["train_loss"]]
    assert curve[0] > 1.0
    assert curve[-1] < 0.01
    assert all(later < earlier for earlier, later in zip(curve, curve[1:], strict=False))


def test_the_recurrent_model_learns_what_only_h_prev_can_tell(tiny_config, tiny_gpt2):
    """Every other token is the segment's key. Windows of one token see it in h_prev or not at all."""
    random = np.random.default_rng(0)
    keys = np.repeat(random.integers(4, size=300), 20)
    text = np.where(np.arange(6000) % 2, keys, 4 + random.integers(4, size=6000))
    sequences = Sequences(text, 16, 16)
    settings = TrainConfig(tokens=120 * 256, learning_rate=0.01, warmup_steps=10)
    torch.manual_seed(0)
    size = {"n_layer": 2, "vocab_size": 8}
    recurrent = RecurrentLM(tiny_config(**size), RecurrenceConfig(insert_layer=1, hidden_size=16, hidden_layers=1))
    losses = []
    for model in (tiny_gpt2(**size), recurrent):
        losses.append(train(WindowedLM(model, 1), sequences, settings, device="cpu").curves["train_loss"][-1][1])
    assert losses[0] > 0.97 * math.log(4)  # fillers and keys are equally likely: nothing to know
    assert losses[1] < 0.75 * math.log(4)


@pytest.mark.parametrize("what", ["loss", "gradient", "validation"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [1, 6, 10])
def test_what_is_not_finite_stops_the_training_and_spoils_nothing(bigram, sequences, tmp_path, what, value, step):
    class Breaking(bigram):
        calls = 0

        def forward(self, tokens):
            loss = super().forward(tokens)
            self.calls += self.training
            if self.calls == step and what == "loss":
                return loss * value
            if self.calls == step and what == "gradient":
                loss.register_hook(lambda gradient: gradient * value)
            return loss

    def validate(module):
        return value if what == "validation" and module.calls == step else 1.0

    objective = Breaking()
    _, history = by_hand(bigram(), sequences, WARM + [0.02] * 6)
    settings = config(validate_every=32, checkpoint_every=0)
    with pytest.raises(ReproError, match="nan|inf"):
        train(objective, sequences, settings, tmp_path, validate=validate, device="cpu")
    assert all(torch.isfinite(x).all() for x in objective.state_dict().values())
    assert (tmp_path / "checkpoint.pt").exists() == (step > 1)
    if step > 1:  # the checkpoint is the one of the step before, and good
        saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
        assert saved["result"]["steps"] == step - 1
        torch.testing.assert_close(saved["objective"]["write.weight"], history[step - 2]["write.weight"])
        fresh = bigram()
        if what != "validation":
            result = train(fresh, sequences, settings, tmp_path, validate=lambda module: 1.0, device="cpu")
            assert result.steps == 10


class Reader(nn.Module):
    """Tells the two classes of documents apart by their tokens; reads a mapping."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(12, 4, padding_idx=11), nn.Linear(4, 2)

    def forward(self, batch):
        ids = batch["ids"]
        mean = self.embed(ids).sum(1) / (ids != 11).sum(1, keepdim=True)
        return nn.functional.cross_entropy(self.head(mean), batch["label"])

    def settings(self):
        return {"padding": 11}


def documents():
    """Examples (tokens, label) of many lengths, and how to make a batch of some."""
    random = np.random.default_rng(0)
    rows = [(torch.from_numpy(random.integers(5, size=random.integers(1, 60)) + 5 * (k % 2)), k % 2)
            for k in range(50)]

    def collate(rows):
        ids = nn.utils.rnn.pad_sequence([ids for ids, _ in rows], batch_first=True, padding_value=11)
        return {"ids": ids, "label": torch.tensor([label for _, label in rows])}

    return rows, [len(ids) for ids, _ in rows], collate


def test_documents_of_many_lengths_are_learnt_and_continued(tmp_path):
    rows, lengths, collate = documents()
    settings = TrainConfig(tokens=8 * 60, learning_rate=0.1, warmup_steps=5, validate_every=200, checkpoint_every=0,
                           best="accuracy", best_is="highest")

    def batches(**options):
        return LengthBuckets(rows, lengths, collate, **{"batch_size": 8, "pool": 2} | options)

    def accuracy(objective):
        batch = collate(rows)
        with torch.no_grad():
            mean = objective.embed(batch["ids"]).sum(1)
            return {"accuracy": (objective.head(mean).argmax(-1) == batch["label"]).float().mean().item()}

    whole, broken = Reader(), Reader()
    expected = train(whole, batches(), settings, validate=accuracy, device="cpu")
    assert (expected.tokens, expected.steps) == (480, 60)
    assert [at for at, _ in expected.curves["validation_accuracy"]] == [200, 400, 480]
    assert expected.curves["train_loss"][-1][1] < 0.1
    assert expected.best["accuracy"] > 0.9
    with pytest.raises(Interrupted):
        train(Reader(), batches(), settings, tmp_path, accuracy, StopAfter(31), device="cpu")
    for other in ({"seed": 1}, {"batch_size": 4}, {"examples": [(rows[0][0] + 1, 0), *rows[1:]]}):
        changed = LengthBuckets(**{"examples": rows, "lengths": lengths, "collate": collate, "batch_size": 8,
                                   "pool": 2} | other)
        with pytest.raises(ReproError, match="another configuration"):
            train(Reader(), changed, settings, tmp_path, accuracy, device="cpu")
    assert train(broken, batches(), settings, tmp_path, accuracy, device="cpu") == expected
    assert same(weights(broken), weights(whole))


def test_a_batch_whose_tensors_differ_is_named(stream):
    rows, lengths, collate = documents()
    batches = LengthBuckets(rows, lengths, lambda rows: collate(rows) | {"label": torch.zeros(3).long()}, 8)
    with pytest.raises(ReproError, match=r"of 8 examples, or a multiple of it, but it is: ids 8, label 3\."):
        train(Reader(), batches, config(), device="cpu")


@pytest.mark.parametrize("folder", [True, False])
def test_an_objective_without_settings_is_refused(sequences, tmp_path, folder):
    with pytest.raises(ReproError, match="Embedding has no settings()"):
        train(nn.Embedding(3, 3), sequences, config(), tmp_path if folder else None, device="cpu")


def test_a_checkpoint_of_another_setting_of_the_objective_is_refused(bigram, sequences, begun):
    objective = bigram()
    objective.settings = lambda: {"smoothing": 0.1}
    with pytest.raises(ReproError, match="another configuration"):
        train(objective, sequences, config(), begun, device="cpu")


def test_the_error_names_the_step_and_the_rate(bigram, sequences):
    class Breaking(bigram):
        def forward(self, tokens):
            return super().forward(tokens) * (math.nan if self.scale.grad is None and self.started > 2 else 1.0)

    objective = Breaking()
    objective.started = 0
    objective.register_forward_pre_hook(lambda module, args: setattr(module, "started", module.started + 1))
    with pytest.raises(ReproError, match=r"nan.*step 3.*1\.50e-02"):
        train(objective, sequences, config(), device="cpu")


def test_precision_may_change_from_one_training_to_the_next(stream):
    class Rounded(nn.Module):
        """Says in which precision its product was computed."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.read, self.write = nn.Embedding(11, 6), nn.Linear(6, 11)
            self.dtypes = set()

        def forward(self, tokens):
            logits = self.write(self.read(tokens[:, :-1]))
            self.dtypes.add(logits.dtype)
            return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

        def settings(self):
            return {}

    sequences, losses = Sequences(stream, LENGTH, BATCH), []
    for precision, dtype in (("no", torch.float32), ("bf16", torch.bfloat16), ("no", torch.float32)):
        objective = Rounded()
        losses.append(train(objective, sequences, config(precision=precision), device="cpu").curves["train_loss"])
        assert objective.dtypes == {dtype}
        assert {p.dtype for p in objective.parameters()} == {torch.float32}
    assert losses[0] == losses[2] != losses[1]
    assert losses[1][0][1] == pytest.approx(losses[0][0][1], rel=0.02)


@pytest.mark.parametrize(("changes", "words"), [
    ({"decay": "liner"}, "Did you mean 'linear'"), ({"precision": "bf61"}, "Did you mean 'bf16'"),
    ({"tokens": 0}, "tokens is 0"), ({"validate_every": 0}, "validate_every is 0"),
    ({"optimizer": "moun"}, "Did you mean 'muon'"), ({"best_is": "low"}, "Did you mean 'lowest'"),
    ({"warmup_steps": -1}, "warmup_steps is -1"), ({"patience": 0}, "patience is 0"),
    ({"learning_rate": 0.0}, "learning_rate is 0"), ({"learning_rate": math.nan}, "learning_rate is nan"),
    ({"clip": 0.0}, "clip is 0")])
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(ReproError, match=words):
        config(**changes)


# Continuing. What a real kill leaves behind is tested in test_resume.py.


class Interrupted(Exception):
    pass


class StopAfter:
    """A progress that breaks the training off after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def advance(self, n, **info):
        self.left -= bool(info)
        if self.left == 0:
            raise Interrupted


def test_a_finished_training_is_returned_at_once(bigram, sequences, tmp_path, monkeypatch):
    losses = iter([2.0, 1.0, 3.0])
    objective = bigram()
    settings = config(steps=6, validate_every=64)
    result = train(objective, sequences, settings, tmp_path, validate=lambda module: next(losses), device="cpu")
    monkeypatch.setattr(sequences, "batch", lambda step: pytest.fail("a batch was read"))
    told = []

    class Progress:
        def advance(self, n, **info):
            told.append(n)

    again = bigram()
    assert train(again, sequences, settings, tmp_path, validate=lambda module: next(losses), progress=Progress(),
                 device="cpu") == result
    assert same(weights(again), weights(objective))
    assert told == [192]
    assert not again.training


@pytest.mark.parametrize("stop_after", [1, 3, 5, 7, 9])
def test_early_stopping_survives_an_interruption(bigram, sequences, tmp_path, stop_after):
    values = [3.0, 1.0, 2.0, 2.5, 2.6, 0.5]
    settings = config(steps=12, validate_every=64, patience=3, checkpoint_every=0)

    def validator():
        return lambda module, left=list(values): left.pop(0)

    whole = bigram()
    expected = train(whole, sequences, settings, validate=validator(), device="cpu")
    assert (expected.stopped_early, expected.steps, expected.best_loss) == (True, 10, 1.0)
    validate = validator()
    with pytest.raises(Interrupted):
        train(bigram(), sequences, settings, tmp_path, validate=validate, progress=StopAfter(stop_after), device="cpu")
    objective = bigram()
    result = train(objective, sequences, settings, tmp_path, validate=validate, device="cpu")
    assert result == expected
    assert same(weights(objective), weights(whole))


@pytest.fixture
def begun(bigram, sequences, tmp_path):
    """A folder with a training broken off after three of ten steps."""
    with pytest.raises(Interrupted):
        train(bigram(), sequences, config(checkpoint_every=0), tmp_path, progress=StopAfter(3), device="cpu")
    return tmp_path


def test_the_interval_of_checkpoints_may_change(bigram, sequences, begun):
    read = []
    sequences.batch = lambda step, batch=sequences.batch: read.append(step) or batch(step)
    assert train(bigram(), sequences, config(checkpoint_every=100), begun, device="cpu").steps == 10
    assert read == list(range(3, 10))


@pytest.mark.parametrize("changes", [
    {"learning_rate": 0.03}, {"tokens": 352}, {"warmup_steps": 5}, {"decay": "linear"}, {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decayed": "all"},
    {"clip": 2.0}, {"validate_every": 64}, {"patience": 2}, {"precision": "bf16"}, {"seed": 1},
    {"best": "f1"}, {"best_is": "highest"}], ids=str)
def test_a_checkpoint_of_other_settings_is_refused(bigram, sequences, begun, changes):
    before = (begun / "checkpoint.pt").read_bytes()
    with pytest.raises(ReproError, match="another configuration"):
        train(bigram(), sequences, config(**changes), begun, device="cpu")
    assert (begun / "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize("what", ["text", "one token", "length", "batch size", "order", "width", "first weights"])
def test_a_checkpoint_of_another_text_or_model_is_refused(bigram, sequences, stream, begun, what):
    objective = bigram(width=7) if what == "width" else bigram(seed=1) if what == "first weights" else bigram()
    if what == "text":
        sequences = Sequences(stream[:-1], LENGTH, BATCH, seed=3)
    elif what == "one token":
        changed = stream.copy()
        changed[200] = (changed[200] + 1) % 11
        sequences = Sequences(changed, LENGTH, BATCH, seed=3)
    elif what in ("length", "batch size", "order"):
        sequences = Sequences(stream, LENGTH + (what == "length"), BATCH + (what == "batch size"),
                              seed=3 + (what == "order"))
    with pytest.raises(ReproError, match="another configuration"):
        train(objective, sequences, config(), begun, device="cpu")


@pytest.mark.parametrize("change", ["window", "overlap", "truncate", "insert_layer", "n_head", "dropout", "optimizer"])
def test_a_checkpoint_of_a_model_of_the_same_shape_is_refused(tiny_recurrent, stream, tmp_path, change):
    sequences = Sequences(stream, LENGTH, 2)

    def make(window=4, overlap=0, truncate=None, insert_layer=1, **changes):
        return WindowedLM(tiny_recurrent(insert_layer=insert_layer, changes=changes), window, overlap,
                          truncate=truncate)

    settings = TrainConfig(tokens=16 * 4, learning_rate=0.001, checkpoint_every=0)
    with pytest.raises(Interrupted):
        train(make(), sequences, settings, tmp_path, progress=StopAfter(2), device="cpu")
    other = {"window": {"window": 5}, "overlap": {"overlap": 1}, "truncate": {"truncate": 1},
             "insert_layer": {"insert_layer": 2}, "n_head": {"n_head": 4}, "dropout": {"resid_pdrop": 0.1},
             "optimizer": {}}[change]
    changed = replace(settings, optimizer="muon") if change == "optimizer" else settings
    with pytest.raises(ReproError, match="another configuration"):
        train(make(**other), sequences, changed, tmp_path, device="cpu")
    again = make()
    again.recompute = "window"  # the same numbers by another way: no other configuration
    assert train(again, sequences, settings, tmp_path, device="cpu").steps == 4


@pytest.mark.parametrize("damage", ["cut in half", "one byte short", "empty", "not ours", "text"])
def test_a_damaged_checkpoint_is_refused_and_left_alone(bigram, sequences, begun, damage):
    path = begun / "checkpoint.pt"
    whole = path.read_bytes()
    if damage == "not ours":
        torch.save([1, 2, 3], path)
    else:
        path.write_bytes({"cut in half": whole[:len(whole) // 2], "one byte short": whole[:-1], "empty": b"",
                          "text": b"once upon a time"}[damage])
    damaged = path.read_bytes()
    with pytest.raises(ReproError, match="checkpoint"):
        train(bigram(), sequences, config(), begun, device="cpu")
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_last_checkpoint(bigram, sequences, begun, monkeypatch, fails):
    path, attempts = begun / "checkpoint.pt", []
    whole = path.read_bytes()

    def full(*_):
        attempts.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if fails == "write":
            opened = os.fdopen

            class Full:
                def __init__(self, *arguments):
                    self.file = opened(*arguments)

                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    self.file.close()

                def write(self, content):
                    self.file.write(content[:100])
                    full()

            patch.setattr("repro.paths.os.fdopen", Full)
        else:
            patch.setattr(f"repro.paths.os.{fails}", full)
        with pytest.raises(ReproError, match="No space left on device"):
            train(bigram(), sequences, config(checkpoint_every=0), begun, device="cpu")
    assert attempts == [1]
    assert path.read_bytes() == whole
    assert os.listdir(begun) == ["checkpoint.pt"]
    objective, undisturbed = bigram(), bigram()
    result = train(objective, sequences, config(checkpoint_every=0), begun, device="cpu")
    assert result == train(undisturbed, sequences, config(), device="cpu")
    assert same(weights(objective), weights(undisturbed))


def test_without_a_folder_nothing_is_written(bigram, sequences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(bigram(), sequences, config(checkpoint_every=0), device="cpu")
    assert os.listdir(tmp_path) == []
