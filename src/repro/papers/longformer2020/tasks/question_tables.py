"""Tables 7 (its rows on TriviaQA and HotpotQA), 8, 9 and 14, printed and ours; and their claims."""

from typing import TYPE_CHECKING

from repro.papers.longformer2020.tasks.experiment import EXPERIMENT, PAPER, TASKS
from repro.papers.longformer2020.tasks.frame import by_unit
from repro.papers.longformer2020.tasks.tables import AS_SHORT_SHOWN, LONG, cell, gain_claim, table_7
from repro.study import Artifact, ArtifactContext, Assay, Claim, Measured, Record, register
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

CHAPTER = "19_question_answering"
NAMES = ("WikiHop", "TriviaQA", "HotpotQA")
NOT_HERE = "not run here"  # a leaderboard scores hidden answers


def questions(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 7's rows on TriviaQA and HotpotQA, without the control of classification."""
    return table_7(context, NAMES[1:]).drop(columns=AS_SHORT_SHOWN)


def table_8(context: ArtifactContext) -> "pandas.DataFrame":
    """The leaderboards as printed, in %, and the score of our validation questions."""
    import pandas

    rows = [["the paper, leaderboard", f"{row['dataset']}, {row['metric'].split(' as ')[0]}",
             row["earlier_sota_f1_percent"], row["longformer_large_f1_percent"]]
            for row in printed_rows("longformer2020_table8_leaderboard_large")]
    rows += [["this study, leaderboard", name, "–", NOT_HERE] for name in NAMES]
    for scale in reversed(context.scales):
        for task in (TASKS["triviaqa"], TASKS["hotpotqa"]):
            if scale in task.scales:
                rows.append([f"this study, {scale}: {task.scales[scale]['corpus']}, validation",
                             f"{task.printed}, {task.metric.replace('_', ' ').replace('f1', 'F1')}", "–",
                             _mean(context, scale, task.name, task.metric)])
    return pandas.DataFrame(rows, columns=["source", "task and metric", "best before", "Longformer"])


def table_9(context: ArtifactContext) -> "pandas.DataFrame":
    """HotpotQA's leaderboard as printed, in %, and both of our stages on validation questions."""
    import pandas

    rows = [["the paper, test set", row["model"], *(row[f"{name}_f1_percent"] for name in ("answer", "support",
                                                                                      "joint"))]
            for row in printed_rows("longformer2020_table9_hotpotqa_test")]
    rows.append(["this study, test set", "Longformer", *[NOT_HERE] * 3])
    for scale in reversed(context.scales):
        task = TASKS["hotpotqa"]
        if scale in task.scales:
            source = f"this study, {scale}: {task.scales[scale]['corpus']}, validation"
            rows += [[source, "Longformer, two stages", *(_mean(context, scale, "hotpotqa", f"{name}_f1")
                                                          for name in ("answer", "support", "joint"))],
                     [source, "Longformer, first stage alone", "–", "–",
                      _mean(context, scale, "hotpotqa", "one_stage_joint_f1")]]
    return pandas.DataFrame(rows, columns=["source", "model", "answer F1", "support F1", "joint F1"])


def table_14(context: ArtifactContext) -> "pandas.DataFrame":
    """The settings of the paper and ours."""
    import pandas

    printed = {row["parameter"]: row for row in printed_rows("longformer2020_table14_qa_hyperparameters")}
    rows = [["the paper", name, *(printed[key][name.lower()] for key in printed)] for name in NAMES]
    for scale in reversed(context.scales):
        for task in (TASKS["triviaqa"], TASKS["hotpotqa"]):
            if scale in task.scales:
                config = context.plan(scale, task=task.name)[0]
                warmup = f"{100 * config.warmup_share:.0f}% of the steps"
                rows.append([f"this study, {scale}", task.printed, str(config.epochs), f"{config.learning_rate:g}",
                             warmup, str(config.batch_size), {"adamw": "AdamW", "muon": "Muon"}[config.optimizer]])
    return pandas.DataFrame(rows, columns=["source", "task", *(name.lower() for name in printed)])


def _mean(context: ArtifactContext, scale: str, task: str, name: str) -> str:
    """The mean over questions and seeds of one of Longformer's scores, with its interval."""
    config, = (config for config in context.plan(scale, task=task) if config.model == LONG)
    records = context.records_of(config)
    return cell(by_unit(records, name) if records else None)


def two_stages(records: list[Record]) -> Measured:
    """Joint F1 of Longformer's two stages minus that of the first alone, by question, in percentage points."""
    return Measured(by_unit(records, "joint_f1") - by_unit(records, "one_stage_joint_f1"))


def room_left(records: list[Record]) -> float:
    """How far the second stage could raise joint F1: to the share of questions whose evidence the first stage keeps."""
    return max(0.0, sum(record.metrics["both_paragraphs_kept"] - record.metrics["one_stage_joint_f1"]
                        for record in records) / len(records))


TWO_STAGES = 4.2  # points of joint F1 that a second stage gains: appendix D, a footnote
SHARED = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE_7 = Artifact(
    id="longformer2020-table7-questions", **SHARED, source="Table 7 (a part: TriviaQA and HotpotQA)", build=questions,
    title="Questions with an answer in the text: scores in %, with 95% intervals",
    look_for="Intervals are over seeds and questions. Ours are a part of HotpotQA; in the row of TriviaQA, the same "
             "questions without their evidence.")
TABLE_8 = Artifact(
    id="longformer2020-table8", **SHARED, source="Table 8", build=table_8,
    title="Leaderboards of May 2020, and our validation questions, in %",
    look_for="Test and validation scores cannot be compared in level.")
TABLE_9 = Artifact(
    id="longformer2020-table9", **SHARED, source="Table 9", build=table_9,
    title="HotpotQA: the printed test scores, and our two stages on validation questions, in %")
TABLE_14 = Artifact(
    id="longformer2020-table14", **SHARED, source="Table 14", build=table_14,
    title="Settings for question answering: the paper's and ours")
register(
    TABLE_7, TABLE_8, TABLE_9, TABLE_14,
    gain_claim(TASKS["triviaqa"], "Longformer finds answers in long documents with a higher F1 than a model that reads "
                                  "pieces.", "TriviaQA: Longformer beats the short model.", TABLE_7.id),
    gain_claim(TASKS["hotpotqa"], "Longformer has a higher joint F1 on HotpotQA than a model that reads pieces.",
               "HotpotQA: Longformer beats the short model.", TABLE_7.id),
    Claim(
        id="longformer2020-two-stages", paper=PAPER, source="Appendix D", experiment=EXPERIMENT.name,
        about=(TABLE_9.id,), direction="higher", unit="question", seeds=3, paper_effect=lambda: TWO_STAGES,
        where=lambda config: config.task == "hotpotqa" and config.model == LONG, measure=two_stages,
        unit_shown="points of joint F1",
        why_no_control="the first stage is the control: the same reader on the whole text",
        assay=Assay("the distance from the first stage's joint F1 to the share of questions whose evidence it keeps",
                    lambda config: config.task == "hotpotqa" and config.model == LONG, room_left),
        sentence="On HotpotQA, a second stage that reads only the paragraphs kept by the first raises joint F1.",
        short="HotpotQA: two stages beat one."))
