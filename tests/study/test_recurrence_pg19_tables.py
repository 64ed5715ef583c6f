"""Verdicts on books: pairs of overlaps with their cost, the worst window, the worst cheaper baseline."""

from math import log
from types import SimpleNamespace

import pytest

from repro.study import artifact, claim, experiment
from repro.study.recurrence_pg19_tables import families, judge_front, judge_pair, judge_windows

WORDS = [100, 200, 300, 400]


def record(model: str, ratio: float, window: int = 300, overlap: int = 0, flops: float = 1.0, masked: float = 9.0):
    nll = [n * (log(ratio) + hard) for n, hard in zip(WORDS, (3.0, 5.0, 4.0, 6.0), strict=True)]
    told = {"nll": nll, "n_words": WORDS}
    return SimpleNamespace(id=model, model=model, documents={"test": told, "validation": told},
                           config={"model": model, "window": window, "overlap": overlap},
                           metrics={"flops_per_token": flops, "validation_word_perplexity": ratio,
                                    "validation_word_perplexity_masked": masked})


@pytest.mark.parametrize(("ratio", "margin", "verdict"), [
    (0.99, 0.0, "reproduced"), (1.005, 0.0, "not reproduced"), (1.005, 0.01, "reproduced"),
    (1.015, 0.01, "not reproduced")])
def test_a_pair_is_judged_against_the_margin(ratio, margin, verdict):
    judged = judge_pair([record("recurrent", ratio, flops=2.0), record("baseline", 1.0, flops=5.0)], margin)
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(ratio - 1)
    assert judged.text.endswith("at 0.40 of the cost")


@pytest.mark.parametrize(("masked", "verdict"), [(0.99, "inconclusive"), (1.005, "reproduced")])
def test_a_pair_that_holds_without_the_module_is_left_open(masked, verdict):
    judged = judge_pair([record("recurrent", 0.9, masked=masked), record("baseline", 1.0)])
    assert judged.verdict == verdict
    assert ("masked out" in judged.text) == (verdict == "inconclusive")


def test_the_window_with_the_smallest_gain_decides():
    records = [record(model, ratio, window) for window, ratio in ((200, 0.9), (300, 1.1), (400, 0.8))
               for model, ratio in (("baseline", 1.0), ("recurrent", ratio))]
    judged = judge_windows(records)
    assert judged.verdict == "not reproduced" and judged.effect == pytest.approx(0.1)
    assert "window 300" in judged.text
    assert judge_windows([r for r in records if r.config["window"] != 300]).verdict == "reproduced"


def test_only_baselines_that_cost_no_more_count_against_the_front():
    ours = record("recurrent", 0.9, flops=2.0)
    dear, cheap = record("baseline", 0.8, 600, 50, flops=2.1), record("baseline", 1.0, 200, 30, flops=2.0)
    assert judge_front([ours, dear, cheap]).verdict == "reproduced"
    judged = judge_front([ours, record("baseline", 0.8, 600, 50, flops=2.0), cheap])
    assert judged.verdict == "not reproduced"
    assert "baseline 600 with overlap 50" in judged.text


def test_the_plans_hold_the_points_of_the_paper():
    plan = experiment("recurrence-pg19").plan("small")
    table = {(c.model, c.overlap) for c in plan if "test" in c.splits}
    assert table == {("baseline", o) for o in (0, 5, 10, 30, 50, 75, 100, 150, 200)} | {
        ("recurrent", o) for o in (0, 5, 10, 30, 50)}
    assert {c.window for c in plan if "test" in c.splits} == {300}
    curves = families(plan)
    assert {(c.model, c.overlap) for c in curves} == {("recurrent", 0)} | {("baseline", o) for o in (0, 10, 30, 50)}
    assert {c.window for c in curves} == {200, 300, 400, 500, 600} and len(curves) == 25
    for scale, expected in (("smoke", 2), ("small", 2), ("paper", 2)):
        for name in ("recurrent-0-baseline-30", "recurrent-5-baseline-50", "half-the-cost"):
            one = claim(f"yoshida2020-table2-{name}")
            assert len([c for c in experiment("recurrence-pg19").plan(scale) if one.where(c)]) == expected


def test_paper_scale_has_the_published_settings():
    plan = experiment("recurrence-pg19").plan("paper")
    one = next(c for c in plan if c.model == "recurrent" and c.window == 300 and c.overlap == 50)
    assert (one.train_documents, one.epochs, one.warmup_steps, one.validate_every) == (1250, 2.0, 100, 2_000_000)
    assert (one.insert_layer, one.hidden_layers, one.hidden_size, one.windows_per_sequence) == (2, 3, 200, 20)
    assert one.validation_head == 15_000
    assert experiment("pretrain-gpt2-mini").plan("paper")[0].source == "openai-community/gpt2"


def test_variations_are_each_one_change(monkeypatch):
    plan = experiment("variations-pg19").plan("small")
    first = plan[0].model_dump()
    changed = [{key for key, value in c.model_dump().items() if value != first[key]} for c in plan]
    assert changed[0] == set()
    assert all(len(one) == 1 for one in changed[1:10])
    assert plan[6].insert_layer == 3
    assert [(c.overlap, c.train_overlap, c.test_positions) for c in plan[10:]] == [
        (50, 0, "all"), (50, 0, "passed"), (50, None, "all")]
    assert "not run" in str(artifact("yoshida2020-variations").render("paper", also=()).table)
