"""Accuracy and F1 against counting by hand, their intervals against drawing one document at a time."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch import nn

from repro.errors import ReproError
from repro.evaluation.bootstrap import over_seeds, together
from repro.evaluation.classification import interval, log_probabilities, padded, score

LABELS = [1, 0, 1, 1, 0, 0, 2, 1]
TOLD = [1, 1, 0, 1, 0, 2, 1, 1]


def by_hand(labels, told, metric, positive):
    """sklearn's definitions, one document at a time: F1 is the harmonic mean of precision and recall."""
    pairs = list(zip(labels, told, strict=True))
    if metric == "accuracy":
        return sum(one == other for one, other in pairs) / len(pairs)
    hits = sum(one == other == positive for one, other in pairs)
    if not hits:
        return 0.0
    precision, recall = (hits / sum(pair[side] == positive for pair in pairs) for side in (1, 0))
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(("metric", "positive", "value"), [
    ("accuracy", 1, 4 / 8), ("f1", 1, 2 * 3 / (4 + 5)), ("f1", 0, 2 * 1 / (3 + 2)), ("f1", 2, 0.0), ("f1", 7, 0.0)])
def test_scores(metric, positive, value):
    assert score(LABELS, TOLD, metric, positive) == pytest.approx(value)
    assert by_hand(LABELS, TOLD, metric, positive) == pytest.approx(value)


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_scores_of_many_are_those_by_hand(metric):
    draw = np.random.default_rng(0)
    for _ in range(50):
        labels, told = draw.integers(3, size=(2, 9)).tolist()
        assert score(labels, told, metric, 1) == pytest.approx(by_hand(labels, told, metric, 1))


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
@pytest.mark.parametrize("paired", [False, True])
def test_the_interval_of_one_seed_is_that_of_drawing_documents(metric, paired):
    draw = np.random.default_rng(1)
    labels, ours, theirs = draw.integers(2, size=(3, 40))
    ours = np.where(draw.random(40) < 0.6, labels, ours)  # better than chance
    found = interval(labels, [ours], metric, [theirs] if paired else None, samples=20_000)
    values = []
    for _ in range(4_000):
        at = draw.integers(40, size=40)
        values.append(by_hand(labels[at], ours[at], metric, 1)
                      - paired * by_hand(labels[at], theirs[at], metric, 1))
    assert found.value == pytest.approx(by_hand(labels, ours, metric, 1) - paired * by_hand(labels, theirs, metric, 1))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.03)
    again = interval(labels, [ours], metric, [theirs] if paired else None, samples=20_000)
    assert found == again


def test_seeds_share_their_documents_and_add_their_own_doubt():
    labels = [1, 0, 1, 0] * 5
    right, wrong = labels, [1 - label for label in labels]
    half = labels[:10] + wrong[10:]
    same = interval(labels, [half] * 3, "accuracy")
    alone = interval(labels, [half], "accuracy")
    assert same == pytest.approx(alone)  # seeds that agree take away no doubt about documents
    mixed = interval(labels, [right, wrong], "accuracy")
    assert mixed.value == 0.5
    reach = t.ppf(0.975, 1) * np.std([0, 1], ddof=1) / np.sqrt(2)
    # every draw of documents has a mean of 1/2 over both: all doubt comes from the seeds
    assert (mixed.low, mixed.high) == pytest.approx((0.5 - reach, 0.5 + reach))


def test_a_difference_is_paired_by_seed_and_by_document():
    labels = [1, 0] * 10
    first, second = [1] * 20, [0] * 20
    assert interval(labels, [first, second], "f1", [first, second]) == (0, 0, 0)
    better = interval(labels, [labels], "accuracy", [[1, 0] * 5 + [0, 1] * 5])
    worse = interval(labels, [[1, 0] * 5 + [0, 1] * 5], "accuracy", [labels])
    assert better.value == 0.5
    assert 0.2 < better.low < 0.5 < better.high < 0.8
    assert worse == pytest.approx((-better.value, -better.high, -better.low))


def test_the_bounds_of_seeds_and_of_several_sources():
    assert over_seeds([0.5]) is None
    low, high = over_seeds([0.1, 0.2, 0.6])
    reach = t.ppf(0.975, 2) * np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    assert (low, high) == pytest.approx((0.3 - reach, 0.3 + reach))
    assert over_seeds([0.1, 0.2, 0.6], 0.5)[1] < high
    assert together(1.0, (0.7, 1.1), None) == pytest.approx((0.7, 1.1))
    assert together(1.0, (0.7, 1.3), (0.6, 1.4)) == pytest.approx((0.5, 1.5))


@pytest.mark.parametrize(("ask", "told"), [
    (lambda: score([1, 0], [1], "f1"), r"labels have shape \(2,\) and predictions \(1,\)"),
    (lambda: score([], [], "f1"), "of at least one"),
    (lambda: interval([], [[]], "f1"), "of at least one"),
    (lambda: score([1], [1], "f2"), "unknown metric of a classification 'f2'. Did you mean 'f1'"),
    (lambda: interval([1], [], "f1"), "predictions of 0 seeds"),
    (lambda: interval([1], [[1]], "f1", [[1], [1]]), "predictions of 1 seeds, against 2"),
])
def test_what_does_not_fit_is_refused(ask, told):
    with pytest.raises(ReproError, match=told):
        ask()


class Sum(nn.Module):
    """Logits (0, sum of the ids of the document), which padding, dropout or another order would change."""

    def __init__(self):
        super().__init__()
        self.zero, self.dropout = nn.Parameter(torch.zeros(())), nn.Dropout(0.5)

    def forward(self, ids, lengths):
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        total = (ids * inside).sum(1) / 10 + self.zero
        return self.dropout(torch.stack([0 * total, total], -1))


def test_documents_of_a_batch_are_padded_behind_their_ends():
    batch = padded([([5, 6, 7], 1), (np.array([8], np.int32), 0)])
    assert batch["ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert (batch["lengths"].tolist(), batch["labels"].tolist()) == ([3, 1], [1, 0])
    assert {x.dtype for x in batch.values()} == {torch.int64}


def test_log_probabilities_take_the_exact_path(monkeypatch):
    asked, inside = [], []

    @contextmanager
    def spy(*given):
        asked.append(given)
        inside.append(True)
        yield
        inside.clear()

    monkeypatch.setattr("repro.cpu.exact_products", spy)
    model = Sum()
    model.register_forward_hook(lambda *_: asked.append(bool(inside)))
    log_probabilities(model, [([3, 4, 5], 0), ([1], 1), ([2, 2], 0)], batch_size=2)
    assert [(one is model, rows, device.type) for one, rows, device in asked[:1]] == [(True, 6, "cpu")]
    assert asked[1:] == [True, True]  # both batches


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_log_probabilities_come_in_the_order_of_the_documents(batch_size):
    documents = [([3, 4, 5], 0), ([1], 1), ([2, 2], 0), ([9, 9, 9, 9], 1), ([7], 1)]
    model = Sum().train()
    found = log_probabilities(model, documents, batch_size)
    total = np.array([sum(ids) / 10 for ids, _ in documents])
    assert found == pytest.approx(np.stack([-np.logaddexp(0, total), total - np.logaddexp(0, total)], -1), abs=1e-6)
    assert found.dtype == np.float64
    assert model.training
