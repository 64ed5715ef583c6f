"""What the claims on perplexity measure, from records written by hand, and what the rule makes of it."""

from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest

from repro.errors import ReproError
from repro.papers.yoshida2020.claims.effects import (
    at_points,
    context_counts,
    every_window,
    falling,
    gain,
    grouped,
    hardest,
    more_on_books,
    overlap_gain,
    pareto_margin,
    printed,
    printed_steps,
    shrinking,
    widening,
    without_module,
)
from repro.papers.yoshida2020.perplexity.tables import CONTROL, log_ratio, row_kind
from repro.study import Measured, claim, claims
from repro.study import experiment as named

WORDS, HARD = np.array([100, 200, 300, 400]), np.array([3.0, 5.0, 4.0, 6.0])
TABLE1, TABLE2 = "yoshida2020_table1_wikitext103", "yoshida2020_table2_pg19"


def record(model, ratio, overlap=0, window=300, masked=1.0, trained=None, seed=0, flops=1.0, noise=(0, 0, 0, 0),
           experiment="recurrence-pg19", **kept):
    """Documents of very different difficulty and length; `ratio` times the word perplexity of a baseline at 1."""
    told = {"nll": (WORDS * (log(ratio) + HARD + noise)).tolist(), "n_words": WORDS.tolist()}
    told |= {name: (WORDS * (log(value) + HARD)).tolist() for name, value in kept.items()}
    return SimpleNamespace(
        id=f"{model}-{overlap}-{seed}", model=model, seed=seed, scale="small", experiment=experiment,
        config={"model": model, "overlap": overlap, "window": window, "train_overlap": trained},
        documents={"test": told, "validation": told},
        metrics={"flops_per_token": flops} | {
            f"{split}_word_perplexity{suffix}": value for split in ("test", "validation")
            for suffix, value in (("", ratio), ("_masked", masked))})


def seeds(model, ratios, **values):
    return [record(model, ratio, seed=seed, **values) for seed, ratio in enumerate(ratios)]


def judged(name, records):
    return claim(f"yoshida2020-{name}").judge(records)


def test_the_mean_over_documents_is_that_of_the_corpus():
    rng = np.random.default_rng(0)
    ours, theirs = (record("recurrent", 1.0, noise=rng.normal(size=4)) for _ in range(2))
    effects = log_ratio([ours], [theirs])
    words = WORDS.sum()
    assert effects.shape == (1, 4)
    assert exp(effects.mean()) == pytest.approx(exp(sum(ours.documents["test"]["nll"]) / words)
                                                / exp(sum(theirs.documents["test"]["nll"]) / words))


def test_documents_spread_as_the_ratio_does_when_one_is_left_out():
    """Against the jackknife, on 40 documents of very different lengths."""
    rng = np.random.default_rng(1)
    words = rng.integers(10, 2000, size=40)
    difference = words * rng.normal(0.05, 0.02, size=40) + rng.normal(size=40)
    ours, theirs = (SimpleNamespace(id="x", documents={"test": {"nll": nll.tolist(), "n_words": words.tolist()}})
                    for nll in (5.0 * words + difference, 5.0 * words))
    effects = log_ratio([ours], [theirs])[0]
    left_out = [np.delete(difference, k).sum() / np.delete(words, k).sum() for k in range(40)]
    jackknife = (39 / 40 * np.sum((np.array(left_out) - np.mean(left_out))**2))**0.5
    assert effects.std(ddof=1) / 40**0.5 == pytest.approx(jackknife, rel=0.05)
    plain = 40 * difference / words.sum()  # what documents add, whatever their length
    assert plain.std(ddof=1) / 40**0.5 > 1.2 * jackknife


def test_other_documents_are_refused():
    other = record("baseline", 1.0)
    other.documents = {"test": {"nll": [1.0], "n_words": [1]}}
    with pytest.raises(ReproError, match="recurrent-0-0 and baseline-0-0 scored different test documents"):
        log_ratio([record("recurrent", 0.9)], [other])


@pytest.mark.parametrize(("ratio", "masked", "verdict", "words"), [
    (0.9, 1.0, "reproduced", ""), (0.9, 0.9, "not reproduced", "no more than its control"),
    (0.9, 0.85, "not reproduced", "no more than its control"), (1.1, 1.0, "not reproduced", "opposite"),
    (1.1, 1.1, "not reproduced", "no effect"), (1.0, 1.0, "not testable here", "no document shows any difference"),
    (0.99, 1.0, "reproduced, smaller", "")])
def test_a_gain_counts_if_it_goes_with_the_module(ratio, masked, verdict, words):
    found = judged("table1-gain-disjoint", seeds("baseline", (1.0,) * 5)
                   + seeds("recurrent", (ratio,) * 5, masked=masked))
    assert found.verdict == verdict and words in found.text
    assert found.effect == pytest.approx(ratio - 1) and found.control == pytest.approx(masked - 1)
    assert found.paper_effect == pytest.approx(29.01 / 30.47 - 1)


def test_one_seed_leaves_a_gain_open():
    found = judged("table1-gain-disjoint", [record("baseline", 1.0), record("recurrent", 0.9)])
    assert found.verdict == "open" and "1 of 5 seeds" in found.text


def test_seeds_are_paired():
    found = gain(seeds("baseline", (1.0, 2.0, 4.0)) + seeds("recurrent", (0.9, 1.8, 3.6)))
    assert found.effects == pytest.approx(np.full((3, 4), log(0.9)))


def test_losses_by_document_without_the_module_are_taken_where_they_are_kept():
    recurrent, baseline = record("recurrent", 0.9, masked=0.5, nll_masked=0.98, nll_other_document=0.95), record(
        "baseline", 1.0)
    assert without_module([recurrent], [baseline]) == pytest.approx(np.full((1, 4), log(0.95)))
    old = record("recurrent", 0.9, masked=0.98)
    assert without_module([old], [baseline]) == pytest.approx(np.array([[log(0.98)]]))
    assert without_module([recurrent, old], [baseline] * 2).shape == (2, 1), "the one that kept none decides"
    alone = record("recurrent", 0.9)
    alone.metrics = {"validation_word_perplexity": 0.8, "validation_word_perplexity_masked": 0.88}
    assert without_module([alone], [baseline]) == pytest.approx(np.array([[log(0.9 * 1.1)]]))


def test_a_baseline_trained_with_the_same_overlap_is_the_one_to_beat():
    records = [record("baseline", 1.0, 50), record("recurrent", 0.9, 50), record("baseline", 0.8, 50, trained=50)]
    assert gain(records).effects.mean() == pytest.approx(log(0.9 / 0.8))
    assert gain(records).note == "against a baseline trained with that overlap too" and not gain(records[:2]).note


def test_shrinking_and_widening_compare_two_gains():
    records = [record("baseline", 1.0), record("recurrent", 0.9, masked=0.98), record("baseline", 1.0, 50),
               record("recurrent", 0.95, 50, masked=0.99)]
    found = shrinking(records)
    assert found.effects.mean() == pytest.approx(log(0.9 / 0.95))
    assert found.control.mean() == pytest.approx(log(0.98 / 0.99))
    fair = shrinking([*records, record("baseline", 0.97, 50, trained=50)])
    assert fair.effects.mean() == pytest.approx(log(0.9) - log(0.95 / 0.97))
    sizes = [record(model, ratio, window=window) for model, window, ratio in (
        ("recurrent", 200, 0.8), ("baseline", 200, 1.0), ("recurrent", 400, 0.7), ("baseline", 400, 1.0),
        ("recurrent", 600, 0.9), ("baseline", 600, 1.0))]
    assert widening(sizes).effects.mean() == pytest.approx(log(0.8 / 0.9))
    assert widening(sizes).note == "window 200 less window 600"


def test_where_nothing_is_gained_nothing_widens():
    harm = [record(model, ratio, window=window) for model, window, ratio in (
        ("recurrent", 200, 1.1), ("baseline", 200, 1.0), ("recurrent", 600, 1.5), ("baseline", 600, 1.0))]
    assert widening(harm).effects.mean() == pytest.approx(log(1.1)) and widening(harm).note == "window 200 alone"


def test_overlap_is_judged_against_disjoint_windows_with_one_seed():
    records = [record("baseline", 1.0), record("baseline", 0.98, 50, noise=(0, 0.001, -0.001, 0))]
    assert overlap_gain(records).effects.mean() == pytest.approx(log(0.98), abs=1e-3)
    found = judged("table1-overlap", records)
    assert found.verdict == "reproduced, smaller" and found.n_seeds == 1, "the paper gains 10.4 %"
    assert context_counts(TABLE1).room(records) == pytest.approx(-log(0.98), abs=1e-3)


def test_every_step_of_the_overlap_has_to_go_down():
    down = [record("baseline", ratio, overlap) for ratio, overlap in ((1.0, 0), (0.9, 5), (0.89, 10), (0.8, 30))]
    found = falling(down)
    assert found.effects.mean() == pytest.approx(log(0.89 / 0.9)) and found.note == "from overlap 5 to 10"
    assert falling([*down, record("baseline", 0.81, 50)]).effects.mean() == pytest.approx(log(0.81 / 0.8))


def test_the_window_with_the_least_sure_gain_decides():
    records = [record(model, ratio if model == "recurrent" else 1.0, window=window, noise=noise) for
               window, ratio, noise in ((200, 0.9, (0,) * 4), (300, 0.98, (0,) * 4), (400, 0.9, (-0.3, 0.2, 0.1, 0.1)))
               for model in ("baseline", "recurrent")]
    for one in records:
        if one.model == "baseline":
            one.documents = record("baseline", 1.0).documents
    found = every_window(records)
    assert found.note == "window 400", "not the smallest gain, but the one that may be none"
    assert every_window([one for one in records if one.config["window"] < 400]).note == "window 300"


def test_the_hardest_is_the_one_whose_control_shows_as_much():
    rows = np.array([[-0.05, -0.051], [-0.052, -0.05], [-0.05, -0.049]])
    explained = Measured(rows, rows.copy(), "as much without")
    small = Measured(rows / 5, 0 * rows, "alone")
    assert hardest([explained, small]).note == "as much without"
    assert hardest([explained._replace(control=0 * rows), small]).note == "alone"


def test_no_difference_in_any_document_says_nothing():
    found = judged("table2-gain-0", seeds("recurrent", (1.0,) * 5) + seeds("baseline", (1.0,) * 5))
    assert found.verdict == "not testable here" and not found.exact and found.detectable is None


def test_recurrent_points_compete_with_all_that_cost_no_more():
    ours = record("recurrent", 0.9, flops=2.0)
    dear, cheap = record("baseline", 0.8, 50, 600, flops=2.1), record("baseline", 1.0, 30, 200, flops=2.0)
    assert pareto_margin([ours, dear, cheap]).effects.mean() == pytest.approx(log(0.9))
    found = pareto_margin([ours, record("baseline", 0.8, 50, 600, flops=2.0), cheap])
    assert found.effects.mean() == pytest.approx(log(0.9 / 0.8))
    assert found.note == "recurrent 300 against baseline 600 with overlap 50"
    second = record("recurrent", 0.95, 0, 600, flops=2.4)
    assert pareto_margin([ours, second, cheap]).note == "recurrent 600 against recurrent 300 with overlap 0"


def test_a_margin_moves_what_no_effect_means():
    def told(ratio):
        return judged("table2-recurrent-0-baseline-30", seeds("baseline", (1.0,) * 3, overlap=30)
                      + seeds("recurrent", (ratio,) * 3, masked=1.2))
    assert (told(1.005).verdict, told(1.015).verdict) == ("reproduced", "not reproduced")
    assert told(1.005).null == pytest.approx(0.01)


def test_groups_of_articles_stand_beside_books():
    effects = np.array([[1.0, 2.0, 3.0, 4.0, 6.0], [0.0, 1.0, 0.0, 1.0, 0.0]])
    found = grouped(effects, 3)
    assert found.shape == (2, 3) and found.mean(1) == pytest.approx(effects.mean(1))
    mean = 3.2
    assert found[0] == pytest.approx([mean + (part - mean * n) / (5 / 3) for part, n in ((3, 2), (7, 2), (6, 1))])
    assert grouped(effects, 5) is effects and grouped(effects[:, :1], 3).shape == (2, 1)
    books = [record(model, ratio, masked=0.99) for model, ratio in (("recurrent", 0.9), ("baseline", 1.0))]
    articles = [record(model, ratio, masked=0.99, experiment="recurrence-wikitext103") for model, ratio in (
        ("recurrent", 0.95), ("baseline", 1.0))]
    found = more_on_books([*books, *articles])
    assert found.effects == pytest.approx(np.full((1, 4), log(0.9 / 0.95))) and abs(found.control).max() < 1e-9
    rooms = [record("baseline", ratio, overlap, experiment=name) for name, least in (
        ("recurrence-pg19", 0.8), ("recurrence-wikitext103", 0.9)) for overlap, ratio in ((0, 1.0), (50, least))]
    assert context_counts(TABLE1).room(rooms) == pytest.approx(-log(0.9)), "where it gains least"


def test_pooling_is_compared_with_the_same_weights():
    passed, every = record("recurrent", 0.9, 50, masked=0.95), record("recurrent", 1.0, 50, masked=1.2)
    passed.config["test_positions"], every.config["test_positions"] = "passed", "all"
    one = claim("yoshida2020-variations-passed")
    found = one.judge([every, passed], [every, passed])
    assert (found.verdict, found.n_seeds, found.effect) == ("reproduced", 1, pytest.approx(-0.1))
    assert found.room == pytest.approx(1 - 1 / 1.2)
    assert [(config.train_overlap, config.test_positions) for config in one.plan("small") if one.where(config)] == [
        (0, "all"), (0, "passed")]


@pytest.mark.parametrize(("name", "fewer", "more"), [  # of the baseline, as Tables 1 and 2 print them
    ("table1-gain-disjoint", 30.47, 27.31), ("table1-gain-shrinks", 30.47, 27.31),
    ("table1-recurrent-falls", 30.47, 27.31), ("table2-gain-0", 147.71, 131.25),
    ("table2-recurrent-0-baseline-30", 147.71, 134.30), ("table2-recurrent-5-baseline-50", 142.30, 131.25),
    ("table2-recurrent-5-baseline-75", 142.30, 128.46), ("table2-recurrent-50-baseline-200", 131.25, 121.40),
    ("table2-more-on-books", 30.47, 27.31),  # on articles, where overlap gains less than on books
    ("matched-wikitext-103-first-block", 30.47, 27.31), ("matched-pg19-subset-second-block", 147.71, 131.25)])
def test_the_papers_room_is_what_overlap_gains_its_baseline(name, fewer, more):
    assert claim(f"yoshida2020-{name}").assay.paper() == pytest.approx(log(fewer / more))


def test_printed_effects_are_those_of_the_tables():
    assert printed(TABLE1, ("recurrent", 0), ("baseline", 0))() == pytest.approx(log(29.01 / 30.47))
    assert printed(TABLE2, ("recurrent", 5), ("baseline", 75))() == pytest.approx(log(128.78 / 128.46))
    assert printed_steps(TABLE1, "baseline")() == pytest.approx(log(28.88 / 29.36))
    assert printed_steps(TABLE2, "baseline")() == pytest.approx(log(126.51 / 128.46))


def test_points_are_found_at_every_scale_that_has_all_of_them():
    for scale, base in (("small", (0, 50)), ("smoke", (0, 5))):
        found = [config for config in named("recurrence-wikitext103").plan(scale)
                 if at_points(("baseline", 0), ("baseline", 50))(config)]
        assert [(config.model, config.overlap, config.train_overlap) for config in found] == [
            ("baseline", overlap, None) for overlap in base]
    assert claim("yoshida2020-table1-gain-disjoint").scales == ("smoke", "small", "pretrained", "medium", "paper")
    assert claim("yoshida2020-table1-gain-5").scales == ("small", "medium", "paper")


def test_each_side_of_a_claim_is_planned_wherever_it_is_judged():
    """A point that a scale does not have would leave a comparison without one side."""
    for one in claims():
        if one.experiment == "recurrence-pg19" or one.experiment == "recurrence-wikitext103":
            plans = {scale: {(config.model, config.overlap, config.train_overlap) for config in one.plan(scale)
                             if one.where(config) and row_kind(config) != CONTROL} for scale in one.scales}
            assert len({len(plan) for scale, plan in plans.items() if scale != "smoke"}) == 1, one.id
            assert all(len(plan) >= 2 for plan in plans.values()), one.id
