"""Verdicts on recurrence: paired over documents, and only for what the module itself gives."""

from math import log
from types import SimpleNamespace

import pytest

from repro.errors import ReproError
from repro.study.recurrence_tables import compare, judge_gain, judge_overlap, judge_shrinking

WORDS = [100, 200, 300, 400]


def record(model: str, ratio: float, overlap: int = 0, masked: float = 1.0):
    """Documents of very different difficulty; `ratio` times the word perplexity of the baseline on each of them."""
    nll = [n * (log(ratio) + hard) for n, hard in zip(WORDS, (3.0, 5.0, 4.0, 6.0), strict=True)]
    return SimpleNamespace(
        id=model, model=model, config={"overlap": overlap}, documents={"test": {"nll": nll, "n_words": WORDS}},
        metrics={"test_word_perplexity": ratio * 100, "test_word_perplexity_masked": masked * 100})


def test_the_difference_is_paired_and_relative():
    value, low, high = compare([record("recurrent", 0.9)], [record("baseline", 1.0)], "test")
    assert value == pytest.approx(-0.1) and low == pytest.approx(-0.1) and high == pytest.approx(-0.1)


def test_seeds_are_averaged_before_documents_are_drawn():
    value, _, _ = compare([record("recurrent", 0.81), record("recurrent", 1.0)], [record("baseline", 1.0)], "test")
    assert value == pytest.approx(-0.1)


def test_records_of_other_documents_are_refused():
    other = record("baseline", 1.0)
    other.documents = {"test": {"nll": [1.0], "n_words": [1]}}
    with pytest.raises(ReproError, match="different test documents"):
        compare([record("recurrent", 0.9), other], [record("baseline", 1.0)], "test")


@pytest.mark.parametrize(("ratio", "masked", "verdict"), [
    (0.9, 1.0, "reproduced"),  # all of the gain goes with the module
    (0.9, 0.96, "reproduced"),  # more than half of it
    (0.9, 0.94, "inconclusive"),  # less than half: it was the training
    (0.9, 0.9, "inconclusive"),
    (1.1, 1.1, "not reproduced"),
])
def test_a_gain_counts_only_if_the_module_gives_it(ratio, masked, verdict):
    judged = judge_gain([record("baseline", 1.0), record("recurrent", ratio, masked=masked)])
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(ratio - 1)
    assert ("the rest comes from training" in judged.text) == (masked in (0.94, 0.9, 1.1))


@pytest.mark.parametrize(("overlapped", "verdict"), [(0.95, "reproduced"), (0.85, "not reproduced")])
def test_shrinking_compares_the_two_gains(overlapped, verdict):
    records = [record("baseline", 1.0), record("recurrent", 0.9), record("baseline", 1.0, 50),
               record("recurrent", overlapped, 50)]
    judged = judge_shrinking(records)
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(0.9 / overlapped - 1)


def test_shrinking_is_open_when_a_gain_is_not_the_modules():
    judged = judge_shrinking([record("baseline", 1.0), record("recurrent", 0.9), record("baseline", 1.0, 50),
                              record("recurrent", 0.85, 50, masked=0.85)])
    assert judged.verdict == "inconclusive" and "not the module's" in judged.text


def test_overlap_is_judged_against_disjoint_windows():
    judged = judge_overlap([record("baseline", 1.0), record("baseline", 0.98, 50)])
    assert judged.verdict == "reproduced" and judged.effect == pytest.approx(-0.02)
    assert judged.text == "-2.00% [-2.00%, -2.00%]"
