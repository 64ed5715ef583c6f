"""The plan of `small`: rows that are alike in all that they are not about, and hours that there are."""

from dataclasses import replace

from repro.papers.yoshida2020.perplexity import finetuning, matched, pg19, variations, wikitext103, window_choice
from repro.papers.yoshida2020.perplexity.evaluation import trained
from repro.papers.yoshida2020.perplexity.tables import CONTROL, FIRST, row_kind
from repro.study import claims

EVALUATIONS = {"Table 1": wikitext103, "Table 2, Figures 4 and 5": pg19, "variations": variations,
               "second window": matched}
HEADLINE, TABLE = 5, 3  # seeds


def seeds(name, config):
    """Of a row: more for recurrent against baseline without overlap, at both windows."""
    headline = name != "variations" and "test" in config.splits and config.overlap == 0
    return HEADLINE if headline and row_kind(config) in ("baseline", "recurrent") else TABLE


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


def test_every_row_of_a_table_takes_the_same_steps_on_the_same_targets():
    for name, module in EVALUATIONS.items():
        plan = module.EVALUATION.plan("small")
        runs = [trained(config) for config in plan]
        short = name in ("variations", "second window")
        assert {run.steps for run in runs} == {{"variations": 150, "second window": 300}.get(name, 200)}, name
        assert {run.batch_size * finetuning.targets(run) for run in runs} == {2560 if short else 6000}
        assert {run.window for run in runs} - {200, 600} == {64 if short else 300}
        assert {run.precision for run in runs} == {"bf16"}
        assert {run.windows_per_sequence for run in runs} == {20}


def test_recurrence_with_overlap_never_stands_without_its_control():
    for module in (wikitext103, pg19):
        table = [config for config in module.EVALUATION.plan("small") if "test" in config.splits]
        at = {name: {config.overlap for config in table if row_kind(config) == name}
              for name in ("baseline", "recurrent", CONTROL, FIRST)}
        assert at["recurrent"] - {0} == at[CONTROL] == {5, 10, 30, 50}
        assert at["baseline"] >= at["recurrent"] > at[FIRST] == {0, 50}
        assert {config.window for config in table} == {300}
        assert {config.insert_layer for config in table if row_kind(config) == "recurrent"} == {1}


def test_the_variations_hold_every_place_of_the_module():
    rows = variations.variations("small")
    places = {name: change["insert_layer"] for name, change in rows.items() if "insert_layer" in change}
    assert list(places.values()) == [0, 2, 3, 5]
    plan = variations.EVALUATION.plan("small")
    assert plan[0].insert_layer == 1 and len(plan) == len(rows) == 16 - 1
    assert {(config.window, config.steps) for config in plan} == {(64, 150)}


def test_the_second_window_has_both_texts_and_a_choice_of_its_own():
    plan = matched.EVALUATION.plan("small")
    assert {(config.corpus, row_kind(config), config.overlap) for config in plan} == {
        (corpus, *row) for corpus in ("wikitext-103", "pg19-subset")
        for row in (("baseline", 0), ("baseline", 10), ("recurrent", 0), (FIRST, 0))}
    assert {config.window for config in plan} == {64}
    for config in plan:
        tried = finetuning.candidates(trained(config))
        assert {(run.window, run.corpus, run.steps, run.seed) for run in tried} == {(64, "wikitext-103", 60, 0)}
        assert len(tried) == (9 if config.model == "recurrent" else 3)
    assert window_choice.EXPERIMENT.plan("small")[0].windows == (48, 64, 96, 128)
    assert finetuning.SECOND["small"]["window"] in window_choice.EXPERIMENT.plan("small")[0].windows


def test_candidates_of_books_places_overlaps_and_seeds_are_the_same_runs():
    runs = [trained(config.model_copy(update={"seed": seed})) for seed in (0, 2)
            for module in (wikitext103, pg19, variations) for config in module.EVALUATION.plan("small")
            if config.model == "recurrent" and config.window == 300]
    assert len({tuple(run.model_dump_json() for run in finetuning.candidates(one)) for one in runs}) == 1
    settings = {(run.learning_rate, run.module_learning_rate, run.zero_init)
                for run in finetuning.candidates(runs[0])}
    assert settings == {(rate, None, zero) for rate in (3e-4, 1e-3, 3e-3) for zero in (False, True)} | {
        (rate, 3 * rate, False) for rate in (3e-4, 1e-3, 3e-3)}


def test_the_hours_are_those_that_there_are():
    """Eight of two cores."""
    total = sum(training + scoring for _, training, scoring in hours().values())
    assert total < 16


def test_claims_are_judged_only_where_all_that_they_compare_is_planned():
    claimed = {one.id: replace(one) for one in claims() if one.id.startswith(("yoshida2020-table1-gain-",
                                                                              "yoshida2020-table2-gain-"))}
    for name in [*(f"table1-gain-{overlap}" for overlap in (5, 10, 30)),
                 *(f"table2-gain-{overlap}" for overlap in (5, 10, 30, 50))]:
        one = claimed[f"yoshida2020-{name}"]
        compared = {row_kind(config) for config in one.plan("small") if one.where(config)}
        assert compared == {"baseline", "recurrent", CONTROL}, name
