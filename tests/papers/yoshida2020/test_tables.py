"""Tables on recurrence: differences paired over documents, and what was learned."""

from math import log
from types import SimpleNamespace

import pytest

from repro.errors import ReproError
from repro.papers.yoshida2020.tables import (
    compare,
    layer_weights,
    learning_curves,
    learning_rates,
)
from repro.plotting import draw_curves

WORDS = [100, 200, 300, 400]


def record(model: str, ratio: float, overlap: int = 0, masked: float = 1.0, trained: int | None = None,
           seed: int = 0):
    """Documents of very different difficulty; `ratio` times the word perplexity of the baseline on each of them."""
    nll = [n * (log(ratio) + hard) for n, hard in zip(WORDS, (3.0, 5.0, 4.0, 6.0), strict=True)]
    return SimpleNamespace(
        id=model, model=model, seed=seed, config={"model": model, "overlap": overlap, "train_overlap": trained},
        documents={"test": {"nll": nll, "n_words": WORDS}},
        metrics={"test_word_perplexity": ratio * 100, "test_word_perplexity_masked": masked * 100})


def test_the_difference_is_paired_and_relative():
    value, low, high = compare([record("recurrent", 0.9)], [record("baseline", 1.0)], "test")
    assert value == pytest.approx(-0.1) and low == pytest.approx(-0.1) and high == pytest.approx(-0.1)


def test_seeds_that_both_have_are_paired():
    ours, theirs = [record("recurrent", ratio, seed=seed) for seed, ratio in ((0, 0.9), (1, 0.8), (3, 0.1))], [
        record("baseline", ratio, seed=seed) for seed, ratio in ((1, 1.0), (0, 1.0), (2, 9.0))]
    value, low, high = compare(ours, sorted(theirs, key=lambda one: one.seed), "test")
    assert value == pytest.approx((0.9 * 0.8)**0.5 - 1) and low < -0.2 < -0.1 < high
    with pytest.raises(ReproError, match="records recurrent, baseline have no seed in common"):
        compare(ours[2:], theirs[:1], "test")


def test_learning_curves_keep_the_control_apart_from_the_baseline():
    records = [record("baseline", 1.0), record("recurrent", 0.9), record("baseline", 0.8, trained=5)]
    for height, one in enumerate(records):
        one.curves = {"validation_loss": [[0, float(height)], [1, float(height)]]}
    drawn = draw_curves(learning_curves(records)).axes[0].lines
    assert {line.get_label(): line.get_ydata()[0] for line in drawn} == {
        "baseline, overlap 0": 0, "recurrent, overlap 0": 1, "baseline trained overlapped, overlap 0": 2}
    assert len({line.get_color() for line in drawn}) == 3
    with pytest.raises(ReproError, match="'baseline, overlap 0' comes twice"):
        draw_curves(learning_curves([*records, records[0]]))


def tuned(model, overlap, taken, candidates, weights=None):
    notes = {"candidates": candidates, "learning_rate": taken, "layer_weights": weights}
    return SimpleNamespace(model=model, config={"overlap": overlap}, notes=notes)


def test_what_was_tried_stands_beside_what_was_taken():
    records = [tuned("recurrent", 5, 0.01, [(0.003, 4.5), (0.01, 4.25)], [0.25, 0.75]),
               tuned("baseline", 0, 0.003, [(0.003, 4.75), (0.01, 5.0)]),
               tuned("recurrent", 0, 0.01, [], [0.5, 0.5])]  # took the rate that another had chosen
    assert learning_rates(records).to_dict("records") == [
        {"model": "recurrent", "0.003": "4.5000", "0.01": "4.2500", "taken": "0.01"},
        {"model": "baseline", "0.003": "4.7500", "0.01": "5.0000", "taken": "0.003"}]
    assert list(layer_weights(records).items()) == [("overlap 0", [0.5, 0.5]), ("overlap 5", [0.25, 0.75])]
