"""Claims and the scoreboard."""

from types import SimpleNamespace

import pytest

from repro import paths
from repro.errors import ReproError
from repro.study import Artifact, Claim, Record, claim, judge_difference, register, run, scoreboard, verdict_table
from repro.study.claims import judge_seeds, seeds_of_both


@pytest.mark.parametrize(("low", "high", "direction", "verdict"), [
    (-2.0, -0.1, "lower", "reproduced"),
    (-2.0, -0.1, "higher", "not reproduced"),
    (0.1, 2.0, "lower", "not reproduced"),
    (0.1, 2.0, "higher", "reproduced"),
    (-1.0, 1.0, "lower", "inconclusive"),
    (-1.0, 1.0, "higher", "inconclusive"),
    (-1.0, 0.0, "lower", "inconclusive"),
    (0.0, 1.0, "higher", "inconclusive"),
    (0.0, 0.0, "lower", "inconclusive"),
])
def test_verdicts_follow_the_interval(low, high, direction, verdict):
    judged = judge_difference((low + high) / 2, low, high, direction)
    assert judged.verdict == verdict
    assert (judged.effect, judged.low, judged.high) == ((low + high) / 2, low, high)


def test_the_words_of_a_verdict():
    assert judge_difference(-1.456, -1.6, -1.31, "lower").text == "-1.46 [-1.6, -1.31]"
    told = judge_difference(-0.01456, -0.02, 0.0051, "lower", percent=True)
    assert told.text == "-1.46% [-2.00%, +0.51%]"
    assert (told.effect, told.low, told.high) == (-0.01456, -0.02, 0.0051)


def test_a_verdict_over_seeds_says_what_its_interval_is_over_and_a_single_seed_leaves_it_open():
    several = judge_seeds(-0.5, -0.8, -0.2, "lower", 2, "bits", "text")
    assert several.verdict == "reproduced"
    assert several.text == "-0.5 [-0.8, -0.2] bits, interval over 2 seeds and text"
    single = judge_seeds(-0.5, -0.8, -0.2, "lower", 1, "bits", "text")
    assert (single.verdict, single.effect, single.low, single.high) == ("inconclusive", -0.5, -0.8, -0.2)
    assert single.text == "-0.5 [-0.8, -0.2] bits, interval over text only; one seed leaves it open"


def test_seeds_of_both():
    ours, theirs = ([SimpleNamespace(seed=seed) for seed in seeds] for seeds in ((4, 1, 2), (2, 3, 4, 2)))
    assert seeds_of_both(ours, theirs) == [2, 4]
    assert seeds_of_both(ours, []) == []


@pytest.mark.parametrize(("low", "high", "direction"), [
    (1.0, 0.5, "lower"), (float("nan"), 1.0, "lower"), (0.0, float("nan"), "lower"), (0.0, 1.0, "below")])
def test_bad_intervals_and_directions_are_refused(low, high, direction):
    with pytest.raises(ReproError):
        judge_difference(0.0, low, high, direction)


@pytest.fixture
def judged(toy):
    """Which records the claim was given."""
    seen = []

    def judge(records):
        seen.append([(record.model, record.config["overlap"], record.seed) for record in records])
        by_model = {record.model: record.metrics["test_word_perplexity"] for record in records}
        effect = by_model["recurrent"] - by_model["baseline"]
        return judge_difference(effect, effect - 0.4, effect + 0.4, "lower")

    register(Claim("toy-gain", "toy2020", "Recurrence lowers perplexity.", "Section 4, Table 1", "toy-recurrence",
                   judge, where=lambda config: config.overlap == 5, about=("toy-table1",)),
             Claim("toy-cost", "toy2020", "Recurrence is free.", "Table 1", "toy-recurrence", judge,
                   about=("toy-table10",)),
             Artifact("toy-table10", "toy2020", "Table", "10_toy", "toy-recurrence", lambda context: None, "Table 10"),
             Artifact("toy-table1", "toy2020", "Table", "06_toy", "toy-recurrence", lambda context: None, "Table 1"),
             Artifact("toy-table1-other", "other2020", "Table", "06_toy", "toy-base", lambda context: None, "Table 1"))
    return seen


def test_a_claim_is_judged_when_all_its_runs_are_there(toy, judged):
    told = claim("toy-gain").verdict()
    assert told.verdict == "not run"
    assert told.text == "2 of 2 runs missing: repro run toy-recurrence --scale smoke"
    run(toy.experiment.plan("smoke")[1], progress=False)
    assert claim("toy-gain").verdict().text == (
        "1 of 2 runs missing: repro run toy-recurrence --scale smoke --set model=recurrent --set overlap=5")
    assert judged == []
    for seed in (0, 2):
        run(toy.experiment.plan("smoke", seeds=(seed,))[3], progress=False)
    told = claim("toy-gain").verdict()
    assert told.verdict == "reproduced"
    assert judged == [[("baseline", 5, 0), ("recurrent", 5, 0), ("recurrent", 5, 2)]]


def test_verdicts_stand_in_a_table_scale_by_scale(toy, judged):
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    found = verdict_table("smoke")
    assert found[["claim", "scale", "verdict"]].to_numpy().tolist() == [
        ["Recurrence lowers perplexity.", "small", "not run"], ["Recurrence is free.", "small", "not run"],
        ["Recurrence lowers perplexity.", "smoke", "reproduced"], ["Recurrence is free.", "smoke", "not run"]]
    assert found["effect"][2] == claim("toy-gain").verdict().text
    assert list(found.columns) == ["claim", "scale", "verdict", "effect"]
    assert verdict_table("smoke", "10_toy")["claim"].tolist() == 2 * ["Recurrence is free."]
    assert verdict_table("small", "06_toy")["scale"].tolist() == ["small"]
    with pytest.raises(ReproError, match="unknown chapter with claims '6_toy'. Did you mean '06_toy'?"):
        verdict_table("smoke", "6_toy")


def test_the_scoreboard_has_every_artifact_and_claim_at_every_scale(toy, judged):
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    board = scoreboard().set_index("id")
    assert list(board.columns) == ["reference", "kind", "source", "about", "smoke", "small", "medium", "paper"]
    assert board["kind"].to_dict() == {"toy-table1": "table", "toy-table1-other": "table", "toy-table10": "table",
                                       "toy-gain": "claim", "toy-cost": "claim"}
    assert board.loc["toy-table1-other", "reference"] == "other2020"
    # the base model was run on the way; the artifact has the verdict of the claim about Table 1, not of the other one
    assert board["smoke"].to_dict() == {"toy-table1": "reproduced, 2/4 runs", "toy-table1-other": "1/1 runs",
                                        "toy-table10": "2/4 runs", "toy-gain": "reproduced, 2/2 runs",
                                        "toy-cost": "2/4 runs"}
    assert set(board["small"]) == {"not run"}
    assert set(board["paper"]) == {""}


def test_everything_is_looked_at_once_when_everything_is_asked_for(toy, judged, monkeypatch):
    for config in toy.experiment.plan("smoke"):
        run(config, progress=False)
    before, read = scoreboard(), []
    original = Record.read.__func__
    monkeypatch.setattr(Record, "read", classmethod(lambda kind, path: read.append(path) or original(kind, path)))
    assert scoreboard().equals(before)
    assert set(read) == set((paths.results("smoke") / "smoke").rglob("*.json"))
    assert len(read) <= 3 * len(set(read)), "listed, found by its id, and as what another stands on"


def test_an_artifact_has_the_worst_verdict_of_the_claims_about_it(toy, judged):
    register(Claim("toy-loss", "toy2020", "Recurrence raises perplexity.", "Table 1", "toy-recurrence",
                   lambda records: judge_difference(-1.0, -2.0, -0.5, "higher"),
                   where=lambda config: config.overlap == 5, about=("toy-table1",)))
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    assert scoreboard().set_index("id")["smoke"]["toy-table1"] == "not reproduced, 2/4 runs"
