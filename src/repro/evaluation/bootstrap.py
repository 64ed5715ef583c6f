"""Confidence intervals over documents, paired where two models read the same ones."""

from typing import NamedTuple

import numpy as np

from repro.errors import ReproError


class Interval(NamedTuple):
    """A value with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


def bootstrap(nll, n_words, against=None, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile bootstrap over documents of a word-level perplexity, or of the ratio of two.

    nll, n_words: per document, the summed negative log-likelihood in nats and the number of words.
    against: per-document nll of another model on the *same* documents. Then the value is this perplexity divided by
    the other one; both are drawn with the same resampled documents (paired), so a ratio below 1 whose interval
    excludes 1 means that this model is better on documents of this kind.

    Raises ReproError when the lengths differ or fewer than two documents are given.
    """
    nll, n_words = np.asarray(nll, float), np.asarray(n_words, float)
    other = np.zeros_like(nll) if against is None else np.asarray(against, float)
    if not nll.shape == n_words.shape == other.shape or nll.ndim != 1 or len(nll) < 2:
        raise ReproError(f"bootstrap needs the same two or more documents on each side; got {nll.shape}, "
                         f"{n_words.shape} and {other.shape}.")
    difference = nll - other
    draws = np.random.default_rng(seed).integers(len(nll), size=(samples, len(nll)))
    resampled = np.exp(difference[draws].sum(1) / n_words[draws].sum(1))
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.exp(difference.sum() / n_words.sum())), float(low), float(high))
