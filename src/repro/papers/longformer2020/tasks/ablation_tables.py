"""Table 10 and the row of Table 7 on WikiHop, printed and ours; and the claims that they make."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from repro.papers.longformer2020.tasks.ablation import EXPERIMENT, PAPER, WAYS
from repro.papers.longformer2020.tasks.frame import by_unit
from repro.papers.longformer2020.tasks.tables import cell, of, recovered
from repro.study import Artifact, ArtifactContext, Assay, Claim, Measured, Record, register
from repro.study.artifacts import NOT_RUN, paired
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas

CHAPTER = "19_question_answering"
PRINTED = dict(zip(WAYS, printed_rows("longformer2020_table10_wikihop_ablation"), strict=True))  # in the same order
NAMES = {"longformer": "Longformer", "short": "the short model, in pieces", "epochs-15": "three times the passes",
         "full-attention": "full attention, in pieces", "short-sequence": "half the length",
         "no-mlm": "no more masked-token training", "no-projections": "no separate projections",
         "no-global": "no global attention", "positions-only": "only new positions trained before"}
BASELINES = {"chance": "a guess", "most_frequent": "the most frequent name", "latest": "the latest name",
             "best": "the best possible reader", "best_without_context": "the best possible reader of no text"}


def table_10(context: ArtifactContext) -> "pandas.DataFrame":
    """Accuracy in %, printed and ours, and the difference from Longformer; ours with 95% intervals. "recovered", for
    generated questions: how far a model gets from the best reader of no text (0%) to the best possible one (100%)."""
    import pandas

    rows = [["the paper", NAMES[name], f"{int(row['sequence_length_tokens']):,}", row["epochs"],
             row["accuracy_percent"], row["delta_points"] or "–", "–", "–"] for name, row in PRINTED.items()]
    for scale in reversed(context.scales):
        configs = context.plan(scale)
        found = dict(zip(configs, context.at_common_seeds(configs), strict=True))
        first, *_ = configs
        main = found[first]
        for config, records in found.items():
            ours, theirs = paired(records, main)
            change = (NOT_RUN if not records else "–" if config is first or not ours else
                      cell(by_unit(ours, "accuracy") - by_unit(theirs, "accuracy"), "+.1f"))
            right = cell(by_unit(records, "accuracy") if records else None)
            rows.append([f"this study, {scale}: {config.corpus}", NAMES[config.configuration], f"{config.length:,}",
                         config.epochs, right, change, recovered(records, "accuracy"),
                         str(len(records)) if records else NOT_RUN])
        rows += [[f"this study, {scale}: {first.corpus}", name, "–", "–", f"{main[0].metrics[key]:.1f}", *"–––"]
                 for key, name in BASELINES.items() if main and key in main[0].metrics]
    return pandas.DataFrame(rows, columns=["source", "configuration", "tokens read", "passes", "accuracy",
                                           "against Longformer", "recovered", "seeds"])


def wikihop(context: ArtifactContext) -> "pandas.DataFrame":
    """The WikiHop row of Table 7: the short model, and Longformer with as many passes as in that table."""
    import pandas

    short, long = (PRINTED[name] for name in ("short", "epochs-15"))
    rows = [["the paper", short["accuracy_percent"], long["accuracy_percent"],
             f"{printed_change('epochs-15', 'short'):+.1f}", "–"]]
    for scale in reversed(context.scales):
        plan = {config.configuration: config for config in context.plan(scale)}
        found = paired(*context.at_common_seeds([plan["short"], plan["epochs-15"]]))
        right = [by_unit(records, "accuracy") if records else None for records in found]
        gain = cell(right[1] - right[0], "+.1f") if all(found) else NOT_RUN
        rows.append([f"this study, {scale}: {plan['short'].corpus}", *map(cell, right), gain,
                     str(len(found[0])) if all(found) else NOT_RUN])
    return pandas.DataFrame(rows, columns=["source", "short", "Longformer", "gain", "seeds"])


def accuracy(records: Sequence[Record], name: str) -> "np.ndarray":
    """(seeds, questions) of one configuration: 100 where its answer is right, else 0."""
    return by_unit(of(records, configuration=name), "accuracy")


def against(name: str, other: str) -> Callable[[list[Record]], Measured]:
    """Accuracy of one configuration minus that of another, by question, in percentage points."""
    return lambda records: Measured(accuracy(records, name) - accuracy(records, other))


def largest(records: list[Record]) -> Measured:
    """How much more accuracy is lost without global attention than by the ablation that loses most of all others."""
    others = {name: accuracy(records, name) for name in LOSSES if name != "no-global"}
    worst = min(others, key=lambda name: others[name].mean())
    return Measured(accuracy(records, "no-global") - others[worst], note=f"the other ablation: {NAMES[worst]}")


def printed_change(name: str, other: str = "longformer") -> float:
    """The paper's number for one configuration minus another, in percentage points."""
    return float(PRINTED[name]["accuracy_percent"]) - float(PRINTED[other]["accuracy_percent"])


def beyond_guesses(records: list[Record]) -> float:
    """How far Longformer is above the best guess that understands nothing, in percentage points: any candidate, the
    most frequent name, or the latest one."""
    first = next(record for record in records if record.config["configuration"] == "longformer")
    guesses = [first.metrics[name] for name in ("chance", "most_frequent", "latest") if name in first.metrics]
    return max(0.0, float(accuracy(records, "longformer").mean()) - max(guesses))


def runs(*names: str) -> Callable[[Any], bool]:
    """Selects the runs of these configurations."""
    return lambda config: config.configuration in names


LOSSES = {name: printed_change(name) for name in WAYS if name not in ("longformer", "epochs-15")}
SHARED = {"paper": PAPER, "experiment": EXPERIMENT.name, "unit": "question", "unit_shown": "points of accuracy",
          "assay": Assay("how far Longformer is above the best guess that understands nothing", runs("longformer"),
                         beyond_guesses)}
TABLE_10 = Artifact(
    id="longformer2020-table10", paper=PAPER, chapter=CHAPTER, source="Table 10", experiment=EXPERIMENT.name,
    build=table_10, title="Longformer without one part at a time: accuracy on WikiHop in %",
    look_for="Compare differences, not levels: our questions are others in the same format.")
ROW = Artifact(
    id="longformer2020-table7-wikihop", paper=PAPER, chapter=CHAPTER, source="Table 7 (a part: WikiHop)",
    experiment=EXPERIMENT.name, build=wikihop,
    title="Questions with candidates: accuracy in %",
    look_for="The short model is compared with a Longformer that trains for three times as many epochs.")
register(TABLE_10, ROW)


def sign(name: str, sentence: str, differs: str, direction: str = "lower") -> Claim:
    """The claim that a configuration is worse, or better, than Longformer. differs: in what, besides the mechanism that
    the sentence names."""
    return Claim(id=f"longformer2020-table10-{name}", **SHARED, source="Table 10", about=(TABLE_10.id,),
                 family=f"longformer2020-table10-{direction}", where=runs("longformer", name),
                 measure=against(name, "longformer"), direction=direction, sentence=sentence,
                 paper_effect=lambda: printed_change(name),
                 why_no_control=f"Longformer is the control; {differs}")


register(
    sign("short", "RoBERTa in pieces answers fewer questions of WikiHop.",
         "RoBERTa also saw no further masked-token training"),
    sign("epochs-15", "Three times the passes raise accuracy on WikiHop.",
         "the longer run makes three times the updates, with a learning rate that falls more slowly", "higher"),
    sign("full-attention", "Full attention in pieces is less accurate than a window.",
         "full attention also reads in pieces, so no token sees another piece"),
    sign("short-sequence", "Reading half the tokens lowers accuracy on WikiHop.",
         "the shorter run reads half the text, so what answers a question may be missing"),
    sign("no-mlm", "Without more masked-token training, accuracy is lower.",
         "the other run saw no further masked-token training, so it made fewer updates in all"),
    sign("no-projections", "Sharing projections with local tokens lowers accuracy.",
         "the other run also has fewer weights"),
    sign("no-global", "Without global attention, Longformer is less accurate.",
         "the other run also lacks separate projections, which only global tokens use"),
    sign("positions-only", "Training only the new positions before costs accuracy.",
         "both runs read the same texts before, but only Longformer changed its other weights there"),
    Claim(id="longformer2020-table10-largest", **SHARED, source="Table 10", about=(TABLE_10.id,),
          family="longformer2020-table10-lower", where=runs("longformer", *LOSSES), measure=largest, direction="lower",
          paper_effect=lambda: LOSSES["no-global"] - min(LOSSES[name] for name in LOSSES if name != "no-global"),
          why_no_control="the other ablations are the control",
          sentence="Global attention is worth more accuracy than any other part."),
    Claim(id="longformer2020-wikihop-above-short", **SHARED, source="Table 7", about=(ROW.id, TABLE_10.id),
          where=runs("short", "epochs-15", "longformer"), measure=against("epochs-15", "short"), direction="higher",
          paper_effect=lambda: printed_change("epochs-15", "short"),
          why_no_control="the short model is the control: it differs in how much it reads at once, and in its passes",
          sentence="With three times the passes, Longformer answers more questions than RoBERTa.",
          short="WikiHop: Longformer beats the short model."))
