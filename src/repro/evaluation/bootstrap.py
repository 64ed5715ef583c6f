"""Confidence intervals over documents, paired where two models read the same ones."""

from functools import lru_cache
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
    low, high = np.quantile(np.exp(_resampled(difference, n_words, samples, seed)), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.exp(difference.sum() / n_words.sum())), float(low), float(high))


def bootstrap_ratio(numerator, denominator, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile bootstrap over documents of sum(numerator) / sum(denominator): a rate, or a mean of what they hold.

    numerator, denominator: per document, e.g. the names that were kept and all names, or a sum over its contexts and
    how many these are. Documents are drawn whole: what comes from one document is not independent.
    Raises ReproError when the lengths differ, fewer than two documents are given, or there is nothing to divide by.
    """
    numerator, denominator = np.asarray(numerator, float), np.asarray(denominator, float)
    if numerator.shape != denominator.shape or numerator.ndim != 1 or len(numerator) < 2 or not denominator.sum() > 0:
        raise ReproError(f"a ratio needs the same two or more documents on each side and a sum above 0 to divide by; "
                         f"got {numerator.shape} and {denominator.shape}, sum {denominator.sum():g}.")
    with np.errstate(invalid="ignore"):  # a draw of documents that are all empty says nothing: nan
        resampled = _resampled(numerator, denominator, samples, seed)
    low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(numerator.sum() / denominator.sum()), float(low), float(high))


def _resampled(numerator: np.ndarray, denominator: np.ndarray, samples: int, seed: int) -> np.ndarray:
    draws = _draws(len(numerator), samples, seed)
    return numerator[draws].sum(1) / denominator[draws].sum(1)


@lru_cache(maxsize=8)
def _draws(n: int, samples: int, seed: int) -> np.ndarray:
    """The documents of each sample; they are the same for every comparison over as many documents."""
    return np.random.default_rng(seed).integers(n, size=(samples, n))
