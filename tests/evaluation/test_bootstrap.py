"""Intervals over documents against enumeration of all resamples."""

from itertools import product

import numpy as np
import pytest

from repro.errors import ReproError
from repro.evaluation import bootstrap
from repro.evaluation.bootstrap import bootstrap_ratio

NLL, WORDS, OTHER = [30.0, 90.0, 200.0], [10, 20, 70], [33.0, 80.0, 230.0]


def every_resample(nll, words):
    """The value of each of the equally likely resamples, sorted."""
    picks = product(range(len(nll)), repeat=len(nll))
    return np.sort([np.exp(sum(nll[i] for i in pick) / sum(words[i] for i in pick)) for pick in picks])


def test_the_value_is_the_perplexity_of_all_documents_together():
    assert bootstrap(NLL, WORDS).value == pytest.approx(np.exp(320 / 100), rel=1e-14)


def test_the_paired_value_is_the_ratio_of_perplexities():
    assert bootstrap(NLL, WORDS, against=OTHER).value == pytest.approx(np.exp(3.20) / np.exp(3.43), rel=1e-14)


def test_seeds_are_averaged_document_by_document():
    seeds = [[29.0, 95.0, 190.0], [31.0, 85.0, 210.0]]  # their mean is NLL
    assert bootstrap(seeds, WORDS) == bootstrap(NLL, WORDS)
    assert bootstrap(seeds, WORDS, against=[OTHER, OTHER]) == bootstrap(NLL, WORDS, against=OTHER)
    with pytest.raises(ReproError, match="nll is .*; give numbers"):
        bootstrap([[1.0, 2.0], [1.0]], WORDS)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_bounds_are_quantiles_over_all_resamples(level):
    # Between the quantiles at level -0.03 and +0.03: 10,000 draws stay inside but for a chance of 1 in 10^9.
    exact = every_resample(NLL, WORDS)
    found = bootstrap(NLL, WORDS, level=level)
    for bound, at in ((found.low, (1 - level) / 2), (found.high, (1 + level) / 2)):
        below, above = np.clip([at - 0.03, at + 0.03], 0, 1)
        assert np.quantile(exact, below) - 1e-12 <= bound <= np.quantile(exact, above) + 1e-12
    assert found.low < found.value < found.high


def test_two_documents_give_bounds_known_in_advance():
    # A quarter of the resamples is the first document twice, a quarter the second one twice.
    found = bootstrap([10.0, 40.0], [10, 20])
    assert found.low == pytest.approx(np.exp(1.0), rel=1e-12)
    assert found.high == pytest.approx(np.exp(2.0), rel=1e-12)
    ratio = bootstrap([10.0, 40.0], [10, 20], against=[20.0, 10.0])
    assert ratio.low == pytest.approx(np.exp(-1.0), rel=1e-12)
    assert ratio.high == pytest.approx(np.exp(1.5), rel=1e-12)


def test_pairing_removes_what_both_models_share():
    generator = np.random.default_rng(0)
    hard = generator.normal(300, 100, size=40)  # documents differ much more than models do
    found = bootstrap(hard - 5 + generator.normal(0, 1, 40), np.full(40, 100), against=hard)
    alone = bootstrap(hard, np.full(40, 100))
    assert found.high < 1
    assert (found.high - found.low) / found.value < 0.02 < 0.2 < (alone.high - alone.low) / alone.value


def test_equal_models_have_a_ratio_of_exactly_one():
    assert tuple(bootstrap(NLL, WORDS, against=NLL)) == (1.0, 1.0, 1.0)


def test_about_95_of_100_intervals_cover_the_truth():
    generator = np.random.default_rng(1)
    covered = 0
    for k in range(300):
        found = bootstrap(generator.normal(2.0, 0.5, size=40) * 50, np.full(40, 50), samples=400, seed=k)
        covered += found.low <= np.exp(2.0) <= found.high
    assert 0.88 <= covered / 300 <= 0.98


def test_the_same_seed_gives_the_same_bounds_and_a_wider_level_wider_ones():
    assert bootstrap(NLL, WORDS, seed=3) == bootstrap(NLL, WORDS, seed=3)
    many = np.linspace(100, 200, 30)
    assert bootstrap(many, np.full(30, 50), seed=3) != bootstrap(many, np.full(30, 50), seed=4)
    narrow, wide = (bootstrap(many, np.full(30, 50), level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("arguments", [
    ([1.0, 2.0], [1]), ([1.0, 2.0], [1, 2], [1.0]), ([1.0], [1]), ([], []), ([[1.0, 2.0]], [[1, 2]])])
def test_documents_that_do_not_match_are_refused(arguments):
    with pytest.raises(ReproError, match=r"same two or more documents|of shape \(1, 2\); give numbers"):
        bootstrap(*arguments)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_ratio_has_the_quantiles_of_all_resampled_ratios(level):
    kept, n = [3, 0, 5], [4, 2, 5]
    exact = np.log(every_resample(kept, n))
    found = bootstrap_ratio(kept, n, level=level)
    assert found.value == pytest.approx(8 / 11, rel=1e-14)
    for bound, at in ((found.low, (1 - level) / 2), (found.high, (1 + level) / 2)):
        below, above = np.clip([at - 0.03, at + 0.03], 0, 1)
        assert np.quantile(exact, below) - 1e-12 <= bound <= np.quantile(exact, above) + 1e-12


def test_draws_of_empty_documents_say_nothing():
    assert bootstrap_ratio([1, 0, 0], [2, 0, 0]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("kept", "n"), [([1, 2], [3]), ([1], [3]), ([0, 0], [0, 0]), ([[1, 2]], [[3, 4]])])
def test_ratios_that_cannot_be_taken_are_refused(kept, n):
    with pytest.raises(ReproError, match=r"a ratio needs|of shape \(1, 2\); give numbers"):
        bootstrap_ratio(kept, n)
