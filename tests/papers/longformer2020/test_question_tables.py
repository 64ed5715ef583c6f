"""Tables 7, 8, 9 and 14 on questions and their claims: on records of four questions and two seeds, by hand."""

from types import SimpleNamespace

import pytest

from repro.papers.longformer2020.tasks import question_tables
from repro.papers.longformer2020.tasks.tables import loss_from_cut, recovered
from repro.study import artifact, claim
from repro.study.artifacts import ArtifactContext


def record(task, model, seed, metrics=None, **lists):
    return SimpleNamespace(config={"task": task, "model": model, "seed": seed}, metrics=metrics or {}, seed=seed,
                           documents={"test": lists | {"id": [*range(4)]}})


TRIVIAQA = {  # means of 50, 70 and 40
    "short": [[100, 0, 50, 50], [100, 100, 0, 0]],
    "longformer": [[100, 100, 100, 0], [100, 100, 30, 30]],
    "longformer-cut": [[100, 0, 0, 0], [80, 80, 60, 0]]}
HOTPOTQA = {"joint_f1": [[40, 60, 80, 20], [0, 100, 60, 40]],
            "one_stage_joint_f1": [[40, 40, 80, 0], [20, 100, 20, 40]],
            "answer_f1": [[50, 70, 90, 50], [10, 100, 70, 60]], "support_f1": [[80, 90, 90, 40], [60, 100, 90, 90]]}
KEPT = [{"both_paragraphs_kept": 75.0, "one_stage_joint_f1": 40.0, "best": 97.5, "share_recovered": 0.5},
        {"both_paragraphs_kept": 50.0, "one_stage_joint_f1": 45.0, "best": 97.5, "share_recovered": 0.7}]
RECORDS = {("triviaqa", model): [record("triviaqa", model, seed, f1=f1) for seed, f1 in enumerate(lists)]
           for model, lists in TRIVIAQA.items()} | {
    ("hotpotqa", "longformer"): [record("hotpotqa", "longformer", seed, KEPT[seed], **{
        name: lists[seed] for name, lists in HOTPOTQA.items()}) for seed in (0, 1)]}


class Made(ArtifactContext):
    """Gives the records above, at smoke."""

    def at_common_seeds(self, configs):
        return [RECORDS.get((one.task, one.model), []) if one.scale == "smoke" else [] for one in configs]


def shown(name, *scales):
    """The rows of a table as dicts, the paper's and ours."""
    declared = artifact(f"longformer2020-{name}")
    rows = declared.build(Made(declared, scales or ("smoke",))).to_dict("records")
    ours = [row for row in rows if row["source"].startswith("this study")]
    return [row for row in rows if row not in ours], ours


def means(row, *columns):
    """The means in cells such as "12.5 [3.0, 20.1]"; those without an interval as they are."""
    return [row[name].split(" [")[0] if "[" in row[name] else row[name] for name in columns]


def test_table_7_has_the_means_and_the_gain_of_each_task():
    printed, (trivia, hotpot) = shown("table7-questions")
    assert [row["task"] for row in printed] == ["TriviaQA", "HotpotQA"]
    assert [row["gain"] for row in printed] == ["+0.9", "+0.9"]
    columns = "short", "Longformer", "gain", "Longformer, text cut", "best possible", "recovered", "seeds"
    assert "Longformer, cut like short" not in trivia  # a control of classification
    assert means(trivia, *columns) == ["50.0", "70.0", "+20.0", "40.0", "–", "–", "2"]
    assert means(hotpot, *columns) == ["not run", "50.0", "not run", "not run", "97.5", "60%", "2"]
    older = [SimpleNamespace(metrics={"f1": f1, "best": 90.0, "best_short": 50.0}) for f1 in (60.0, 90.0)]
    assert recovered(older, "f1") == "62%" and recovered(older, "accuracy") == "–" == recovered([], "f1")
    low, high = map(float, trivia["gain"].split("[")[1].rstrip("]").split(", "))
    assert low < 20 < high


def test_table_8_has_the_score_of_validation_questions():
    printed, ours = shown("table8")
    assert [(row["task and metric"], row["best before"], row["Longformer"]) for row in printed] == [
        ("WikiHop, F1", "78.3", "81.9"), ("TriviaQA, F1", "73.3", "77.3"), ("HotpotQA, joint F1", "74.2", "73.2")]
    assert [(row["task and metric"], *means(row, "Longformer")) for row in ours] == [
        *((name, "not run here") for name in ("WikiHop", "TriviaQA", "HotpotQA")),
        ("TriviaQA, F1", "70.0"), ("HotpotQA, joint F1", "50.0")]


def test_table_9_has_the_scores_of_both_stages():
    printed, (leaderboard, two, one) = shown("table9")
    assert len(printed) == 8 and printed[4]["joint F1"] == "73.2"
    columns = "answer F1", "support F1", "joint F1"
    assert means(leaderboard, *columns) == ["not run here"] * 3
    assert (two["model"], *means(two, *columns)) == ("Longformer, two stages", "62.5", "80.0", "50.0")
    assert (one["model"], *means(one, *columns)) == ("Longformer, first stage alone", "–", "–", "42.5")


def test_table_14_has_the_settings_of_each_scale():
    printed, ours = shown("table14", "smoke", "pretrained")
    assert [tuple(row.values()) for row in printed] == [
        ("the paper", "WikiHop", "15", "3e-5", "200", "32", "Adam"),
        ("the paper", "TriviaQA", "5", "3e-5", "1000", "32", "Adam"),
        ("the paper", "HotpotQA", "5", "5e-5", "1000", "32", "Adam")]
    smoke = ("1", "0.005", "10% of the steps", "16", "Muon")
    pretrained = ("2", "0.0001", "10% of the steps", "4", "AdamW")
    assert [tuple(row.values()) for row in ours] == [
        (f"this study, {scale}", task, *settings) for scale, settings in (("pretrained", pretrained), ("smoke", smoke))
        for task in ("TriviaQA", "HotpotQA")]


def test_gains_are_paired_by_seed_and_question():
    declared = claim("longformer2020-triviaqa-above-short")
    records = [one for model in ("longformer", "short") for one in RECORDS["triviaqa", model]]
    assert declared.measure(records).effects.tolist() == [[0, 100, 50, -50], [0, 0, 30, 30]]
    assert declared.expected() == pytest.approx(0.9)
    both = RECORDS["triviaqa", "longformer"] + RECORDS["triviaqa", "longformer-cut"]
    assert declared.assay.room(both) == loss_from_cut(both) == pytest.approx(70 - 40)
    worse = [record("triviaqa", model, 0, f1=[value]) for model, value in (("longformer", 10), ("longformer-cut", 60))]
    assert loss_from_cut(worse) == 0


def test_the_gain_of_a_second_stage_and_its_room():
    declared = claim("longformer2020-two-stages")
    records = RECORDS["hotpotqa", "longformer"]
    assert declared.measure(records).effects.tolist() == [[0, 20, 0, 20], [-20, 0, 40, 0]]
    assert declared.assay.room(records) == question_tables.room_left(records) == (35 + 5) / 2
    assert question_tables.room_left([record("hotpotqa", "longformer", 0, {
        "both_paragraphs_kept": 30.0, "one_stage_joint_f1": 40.0})]) == 0
    assert declared.expected() == 4.2


def test_claims_select_the_runs_that_they_compare():
    for task in ("triviaqa", "hotpotqa"):
        declared = claim(f"longformer2020-{task}-above-short")
        plan = artifact("longformer2020-table7-questions").plan("smoke", {})
        assert {(one.task, one.model) for one in plan if declared.where(one)} == {(task, "short"), (task, "longformer")}
        assert {one.model for one in plan if declared.assay.where(one)} == {"longformer", "longformer-cut"}
        assert {one.model for one in plan if claim("longformer2020-two-stages").where(one)} == {"longformer"}
