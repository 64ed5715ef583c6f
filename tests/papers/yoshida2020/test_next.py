"""The plan of `small` of the next revision, declared before its runs: made active here as the revision will make it."""

import pytest

from repro.papers.base import gpt2_mini
from repro.papers.yoshida2020 import finetuning, matched, pg19, variations, wikitext103, window_choice
from repro.papers.yoshida2020.evaluation import trained
from repro.papers.yoshida2020.tables import CONTROL, FIRST, kind
from repro.study import plan as study_plan
from repro.study.experiment import _plan


@pytest.fixture
def switched(monkeypatch):
    """`small` as it will be. Ids and records are not asked for here."""
    settings = [(gpt2_mini.SCALES, gpt2_mini.NEXT), (finetuning.SCALES, finetuning.NEXT),
                (finetuning.SECOND, finetuning.NEXT_SECOND), (wikitext103.ROWS, wikitext103.NEXT),
                (wikitext103.SCORED, wikitext103.NEXT_SCORED), (pg19.SCALES, finetuning.NEXT | pg19.NEXT),
                (pg19.ROWS, pg19.NEXT_ROWS), (pg19.WINDOWS, pg19.NEXT_WINDOWS), (pg19.SCORED, pg19.NEXT_SCORED),
                (variations.SCALES, finetuning.NEXT | pg19.NEXT | variations.NEXT),
                (variations.PLACES, variations.NEXT_PLACES), (variations.LEFT_OUT, variations.NEXT_LEFT_OUT),
                (variations.SCORED, variations.NEXT_SCORED), (matched.SCALES, finetuning.NEXT),
                (window_choice.SCALES, window_choice.NEXT)]
    for scale, value in settings:
        monkeypatch.setitem(scale, "small", value)
    _plan.cache_clear()
    yield
    _plan.cache_clear()


EVALUATIONS = {"Table 1": wikitext103, "Table 2, Figures 4 and 5": pg19, "variations": variations,
               "second window": matched}
HEADLINE, TABLE = 5, 3  # seeds


def seeds(name, config):
    """Of a row: more for recurrent against baseline without overlap, at both windows."""
    headline = name != "variations" and "test" in config.splits and config.overlap == 0
    return HEADLINE if headline and kind(config) in ("baseline", "recurrent") else TABLE


def hours():
    """Core-hours of training and of scoring, and the trainings, of each table; each training once."""
    done, told = set(), {}
    for name, module in EVALUATIONS.items():
        training = scoring = n = 0
        for config in module.EVALUATION.plan("small"):
            for seed in range(seeds(name, config)):
                scoring += module.EVALUATION.estimate(config).seconds
                run = trained(config.model_copy(update={"seed": seed}))
                for one in (*finetuning.candidates(run), run):
                    if (text := one.model_dump_json()) not in done:
                        done.add(text)
                        n, training = n + 1, training + finetuning.estimate(one).seconds
        told[name] = (n, training / 3600, scoring / 3600)
    return told


def test_every_row_of_a_table_takes_the_same_steps_on_the_same_targets(switched):
    for name, module in EVALUATIONS.items():
        plan = module.EVALUATION.plan("small")
        runs = [trained(config) for config in plan]
        assert {run.steps for run in runs} == {{"variations": 100, "second window": 300}.get(name, 200)}, name
        assert {run.batch_size * finetuning.targets(run) for run in runs} == {2560 if name == "second window" else 6000}
        assert {run.precision for run in runs} == {"bf16"}
        assert {run.windows_per_sequence for run in runs} == {20}


def test_recurrence_with_overlap_never_stands_without_its_control(switched):
    for module in (wikitext103, pg19):
        table = [config for config in module.EVALUATION.plan("small") if "test" in config.splits]
        at = {name: {config.overlap for config in table if kind(config) == name}
              for name in ("baseline", "recurrent", CONTROL, FIRST)}
        assert at["recurrent"] - {0} == at[CONTROL] == {5, 50}
        assert at["baseline"] > at["recurrent"] > at[FIRST] == {0, 50}
        assert {config.window for config in table} == {300}
        assert {config.insert_layer for config in table if kind(config) == "recurrent"} == {1}


def test_the_variations_hold_every_place_of_the_module(switched):
    rows = variations.variations("small")
    places = {name: change["insert_layer"] for name, change in rows.items() if "insert_layer" in change}
    assert list(places.values()) == [0, 2, 3, 5]
    plan = variations.EVALUATION.plan("small")
    assert plan[0].insert_layer == 1 and len(plan) == len(rows) == 16 - 1
    assert {config.steps for config in plan} == {100}


def test_the_second_window_has_both_texts_and_a_choice_of_its_own(switched):
    plan = matched.EVALUATION.plan("small")
    assert {(config.corpus, kind(config), config.overlap) for config in plan} == {
        (corpus, *row) for corpus in ("wikitext-103", "pg19-subset")
        for row in (("baseline", 0), ("baseline", 10), ("recurrent", 0), (FIRST, 0))}
    assert {config.window for config in plan} == {64}
    for config in plan:
        tried = finetuning.candidates(trained(config))
        assert {(run.window, run.corpus, run.steps, run.seed) for run in tried} == {(64, "wikitext-103", 60, 0)}
        assert len(tried) == (9 if config.model == "recurrent" else 3)
    assert window_choice.EXPERIMENT.plan("small")[0].windows == (48, 64, 96, 128)
    assert finetuning.NEXT_SECOND["window"] in window_choice.EXPERIMENT.plan("small")[0].windows


def test_candidates_of_books_places_overlaps_and_seeds_are_the_same_runs(switched):
    runs = [trained(config.model_copy(update={"seed": seed})) for seed in (0, 2)
            for module in (wikitext103, pg19, variations) for config in module.EVALUATION.plan("small")
            if config.model == "recurrent" and config.window == 300]
    assert len({tuple(run.model_dump_json() for run in finetuning.candidates(one)) for one in runs}) == 1
    settings = {(run.learning_rate, run.module_learning_rate, run.zero_init)
                for run in finetuning.candidates(runs[0])}
    assert settings == {(rate, None, zero) for rate in (3e-4, 1e-3, 3e-3) for zero in (False, True)} | {
        (rate, 3 * rate, False) for rate in (3e-4, 1e-3, 3e-3)}


def test_the_hours_are_those_that_there_are(switched):
    """Six of two cores."""
    total = sum(training + scoring for _, training, scoring in hours().values())
    assert total < 12


def test_nothing_of_it_is_planned_yet():
    """The records that are there are those of the settings before."""
    small = study_plan.every_run("small")
    assert not {run.experiment for run in small} & {"recurrence-matched", "choose-window"}
    tuned = [run for run in small if run.experiment == "finetune-gpt2"]
    assert {(run.steps, run.insert_layer) for run in tuned if run.model == "recurrent"} == {(None, 2), (None, 3)}
