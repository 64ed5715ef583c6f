"""Scoring classification: accuracy and F1, with intervals over documents and seeds together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.errors import ReproError, check_whole, unknown
from repro.evaluation.bootstrap import Interval, draws, over_seeds, together
from repro.evaluation.inputs import check_share

if TYPE_CHECKING:
    from torch import Tensor, nn

METRICS = ("accuracy", "f1")


def score(labels: Sequence[int], predictions: Sequence[int], metric: str, positive: int = 1) -> float:
    """The accuracy, or the F1 of the label `positive` (0 if it is neither present nor predicted), from 0 to 1.

    Raises ReproError for another metric, no documents, different numbers of labels and predictions, and labels that are
    neither whole numbers nor names.
    """
    hits, counted = _parts(labels, predictions, metric, positive)
    return float(_ratio(hits.sum(), counted.sum()))


def interval(labels: Sequence[int], predictions: Sequence[Sequence[int]], metric: str,
             against: Sequence[Sequence[int]] | None = None, positive: int = 1, level: float = 0.95,
             samples: int = 10_000, seed: int = 0) -> Interval:
    """The mean over seeds of `score`, or of its difference from the score of `against`, with its interval.

    predictions, against: one list per seed, on the same documents. Documents are drawn with replacement, the same ones
    for all seeds and both sides (percentile bootstrap). Several seeds add Student's t bounds to the interval.
    Raises ReproError for what `score` rejects, and for sides with different numbers of seeds.
    """
    for name, side in (("predictions", predictions), ("against", [] if against is None else against)):
        if isinstance(side, str) or not hasattr(side, "__len__"):
            raise ReproError(f"{name} is {side!r:.60}; give those of each seed, as a list of lists.")
    if not len(predictions) or against is not None and len(against) != len(predictions):
        raise ReproError(f"there are predictions of {len(predictions)} seeds, against "
                         f"{0 if against is None else len(against)}; both need the same seeds, at least one.")
    check_share(level, "level")
    check_whole(samples, "samples")
    sides = [(1, predictions)] + ([] if against is None else [(-1, against)])
    by_seed, resampled = np.zeros(len(predictions)), np.zeros(samples)
    for sign, side in sides:
        for k, predicted in enumerate(side):
            hits, counted = _parts(labels, predicted, metric, positive)
            drawn = draws(len(hits), samples, seed)
            by_seed[k] += sign * _ratio(hits.sum(), counted.sum())
            resampled += sign * _ratio(hits[drawn].sum(1), counted[drawn].sum(1)) / len(side)
    value, bounds = float(by_seed.mean()), np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, *together(value, tuple(map(float, bounds)), over_seeds(by_seed.tolist(), level)))


def padded(examples: Sequence[tuple[Sequence[int], int]]) -> "dict[str, Tensor]":
    """A batch of (token ids, label): `ids` (B, N) padded with zeros, `lengths` (B,) and `labels` (B,).

    Raises ReproError for no examples, and ids or labels that are not whole numbers.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from repro.evaluation.checks import pairs_of

    texts, labels = zip(*pairs_of(examples, "example", "a label"), strict=True)
    for number, label in enumerate(labels):
        check_whole(label.item() if hasattr(label, "item") else label, f"the label of example {number}", 0)
    return {"ids": pad_sequence(texts, batch_first=True), "lengths": torch.tensor([len(ids) for ids in texts]),
            "labels": torch.tensor([int(label) for label in labels])}


def log_probabilities(model: "nn.Module", examples: Sequence[tuple[Sequence[int], int]],
                      batch_size: int = 32) -> np.ndarray:
    """(documents, labels) float64, in the order of the examples, by a model such as `repro.models.Encoder`.

    Batches hold documents of similar length. Dropout is off. On a CPU, large float32 products take the fastest path
    that is exact (`repro.cpu`). Raises ReproError for what `padded` rejects, and if a model gives NaN.
    """
    import torch

    from repro.cpu import exact_products
    from repro.evaluation.checks import check_losses, device_of, pairs_of
    from repro.ids import evaluating

    check_whole(batch_size, "batch_size", of="documents")
    examples = pairs_of(examples, "example", "a label")
    lengths = [len(ids) for ids, _ in examples]
    order, device, found = np.argsort(lengths, kind="stable"), device_of(model), []
    with torch.no_grad(), evaluating(model), exact_products(model, batch_size * max(lengths), device):
        for start in range(0, len(order), batch_size):
            batch = padded([examples[k] for k in order[start:start + batch_size]])
            logits = model(batch["ids"].to(device), batch["lengths"].to(device))
            check_losses(logits)
            found.append(logits.double().log_softmax(-1).cpu())
    return torch.cat(found).numpy()[np.argsort(order)]


def _parts(labels: Any, predictions: Any, metric: str, positive: int) -> tuple[np.ndarray, np.ndarray]:
    """Each document's part in the two sums whose ratio is the metric: F1 is 2 TP / (2 TP + FP + FN)."""
    labels, predictions = _named(labels, "labels"), _named(predictions, "predictions")
    if labels.ndim != 1 or labels.shape != predictions.shape or not len(labels):
        raise ReproError(f"labels have shape {labels.shape} and predictions {predictions.shape}; give one of each for "
                         "every document, of at least one.")
    if (labels.dtype.kind in "US") != (predictions.dtype.kind in "US"):
        raise ReproError(f"labels are {labels.dtype} and predictions {predictions.dtype}; give numbers on both sides, "
                         "or names.")
    if metric not in METRICS:
        raise unknown("metric of a classification", metric, METRICS)
    if metric == "accuracy":
        return (labels == predictions).astype(int), np.ones(len(labels), int)
    there, predicted = (labels == positive).astype(int), (predictions == positive).astype(int)
    return 2 * there * predicted, there + predicted


def _named(values: Any, name: str) -> np.ndarray:
    """`values` as an array. Raises ReproError unless they are whole numbers or names."""
    try:
        found = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        found = np.asarray(None)
    if found.dtype.kind not in "iubUS" and found.size:
        raise ReproError(f"{name} are {values!r:.60}; give whole numbers, or names.".replace("\n", " "))
    return found


def _ratio(hits: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return hits / np.maximum(counted, 1)
