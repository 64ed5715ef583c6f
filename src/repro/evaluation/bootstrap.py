"""Confidence intervals over documents and over seeds; paired if two models read the same documents."""

from collections.abc import Sequence
from functools import lru_cache
from math import hypot, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from repro.errors import ReproError, check_whole
from repro.evaluation.inputs import check_share, numbers


class Interval(NamedTuple):
    """A value with the bounds of its confidence interval.

    >>> Interval(value=14.7, low=12.2, high=20.1).low
    12.2
    """

    value: float
    low: float
    high: float


def bootstrap(nll, n_words, against=None, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile bootstrap over documents of a word-level perplexity, or of the ratio of two.

    nll, n_words: per document, the summed negative log-likelihood in nats and the number of words. nll may have a row
    for each seed, (seeds, documents); their mean counts, and the interval is over documents alone.
    against: nll of another model on the *same* documents. Then the value is this perplexity divided by
    the other one; both are drawn with the same resampled documents (paired), so a ratio below 1 whose interval
    excludes 1 means that this model is better on documents of this kind.

    Raises ReproError when the lengths differ, fewer than two documents are given, a number is not finite, or there are
    no words.

    >>> ours, theirs, n = [29.0, 48.5, 40.1], [30.0, 50.0, 41.0], [10, 20, 15]
    >>> ratio = bootstrap(ours, n, against=theirs)
    >>> ratio.value < 1, ratio.high < 1
    (True, True)
    """
    nll, n_words = _mean_over_seeds(nll, "nll"), numbers(n_words, "n_words")
    other = np.zeros_like(nll) if against is None else _mean_over_seeds(against, "against")
    if not nll.shape == n_words.shape == other.shape or len(nll) < 2:
        raise ReproError(f"bootstrap needs the same two or more documents on each side; got {nll.shape}, "
                         f"{n_words.shape} and {other.shape}.")
    if n_words.min() < 0 or not n_words.sum():
        raise ReproError(f"n_words go from {n_words.min():g} to {n_words.max():g}; give at least 0 for each document, "
                         "and some of one.")
    check_share(level, "level")
    difference = nll - other
    with np.errstate(over="ignore", invalid="ignore"):
        resampled = np.exp(_resampled(difference, n_words, samples, seed))
    quantile = np.quantile if n_words.all() else np.nanquantile  # a sample of only empty documents is undefined
    low, high = quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.exp(difference.sum() / n_words.sum())), float(low), float(high))


def _mean_over_seeds(values, name: str) -> np.ndarray:
    """(documents,) from (documents,) or (seeds, documents)."""
    found = numbers(values, name, None)
    return np.array([fmean(one) for one in found.T]) if found.ndim == 2 else numbers(values, name)


def bootstrap_ratio(numerator, denominator, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile bootstrap over documents of sum(numerator) / sum(denominator), such as a rate or a mean.

    numerator, denominator: per document, e.g. the names that were kept and all names, or a sum over its contexts and
    their number. Documents are resampled as a whole, because values from one document are not independent.
    Raises ReproError when the lengths differ, fewer than two documents are given, or there is nothing to divide by.
    """
    numerator, denominator = numbers(numerator, "numerator"), numbers(denominator, "denominator")
    check_share(level, "level")
    if numerator.shape != denominator.shape or len(numerator) < 2 or not denominator.sum() > 0:
        raise ReproError(f"a ratio needs the same two or more documents on each side and a sum above 0 to divide by; "
                         f"got {numerator.shape} and {denominator.shape}, sum {denominator.sum():g}.")
    with np.errstate(invalid="ignore"):  # a sample of only empty documents is undefined: nan
        resampled = _resampled(numerator, denominator, samples, seed)
    low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(numerator.sum() / denominator.sum()), float(low), float(high))


def linearised(numerator, denominator) -> np.ndarray:
    """One number per document (or book, or stretch), with mean sum(numerator) / sum(denominator). These numbers vary as
    the ratio does when other documents are drawn (first-order Taylor series).

    Raises ReproError when the lengths differ or there is nothing to divide by.
    """
    numerator, denominator = numbers(numerator, "numerator"), numbers(denominator, "denominator")
    if numerator.shape != denominator.shape or not denominator.sum() > 0:
        raise ReproError(f"a ratio needs the same documents on each side and a sum above 0 to divide by; got "
                         f"{numerator.shape} and {denominator.shape}, sum {denominator.sum():g}.")
    ratio = numerator.sum() / denominator.sum()
    return ratio + (numerator - ratio * denominator) / denominator.mean()


def over_seeds(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of the mean of one value per seed; None for a single seed.

    Raises ReproError for values that are not finite, and a level that is not between 0 and 1.
    """
    values = numbers(values, "values").tolist()
    check_share(level, "level")
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes two seconds to import

    reach = float(stdtrit(len(values) - 1, (1 + level) / 2)) * stdev(values) / sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def together(value: float, *bounds: tuple[float, float] | None) -> tuple[float, float]:
    """The bounds of `value` from several sources of error together, such as documents and seeds: at each end, the root
    of the sum of squared distances. An unknown source, None, is ignored."""
    known = [numbers(pair, "bounds", (2,), finite=False).tolist() for pair in bounds if pair is not None]
    value = float(numbers(value, "value", ()))
    return (value - hypot(*(value - low for low, _ in known)), value + hypot(*(high - value for _, high in known)))


def _resampled(numerator: np.ndarray, denominator: np.ndarray, samples: int, seed: int) -> np.ndarray:
    drawn = draws(len(numerator), samples, seed)
    return numerator[drawn].sum(1) / denominator[drawn].sum(1)


def draws(n: int, samples: int, seed: int) -> np.ndarray:
    """The documents in each sample; the same for every comparison over this number of documents."""
    check_whole(n, "n", of="documents")
    check_whole(samples, "samples")
    check_whole(seed, "seed", 0)
    return _drawn(n, samples, seed)


@lru_cache(maxsize=8)
def _drawn(n: int, samples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(n, size=(samples, n))
