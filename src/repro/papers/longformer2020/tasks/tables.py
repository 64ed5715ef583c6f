"""Table 7: Longformer and the short model on every task, printed and ours; and the claims that it makes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from repro.errors import ReproError
from repro.markup import bounded, percentage
from repro.papers.longformer2020.tasks.classification import FOLDS
from repro.papers.longformer2020.tasks.experiment import EXPERIMENT, PAPER, TASKS
from repro.papers.longformer2020.tasks.frame import recovered as share_recovered
from repro.papers.longformer2020.tasks.reader import AS_SHORT, CUT, LONG, MODELS, SHORT
from repro.study import Artifact, ArtifactContext, Assay, Claim, Measured, Record, judge, register
from repro.study.artifacts import NOT_RUN, paired
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from repro.papers.longformer2020.tasks.frame import Task

AS_SHORT_SHOWN = "Longformer, cut like short"
AS_SHORT_READS = "a Longformer, with its window and projections, that reads only what the short model reads"
BEFORE = "no control: gains over the short model alone"
PRINTED = {row["dataset"]: row for row in printed_rows("longformer2020_table7_finetuning_base")}


def table_7(context: ArtifactContext, names: Sequence[str] = tuple(PRINTED)) -> "pandas.DataFrame":
    """Scores in %, printed and ours, with the gain of Longformer over the short model; ours with 95% intervals.

    names: of the paper's rows that are shown.
    "recovered", for generated texts: how far Longformer gets from the best score of a reader without long context (0%)
    to the best possible one (100%).
    """
    import pandas

    rows = []
    for name in names:
        row = PRINTED[name]
        short, long = (float(row[f"{model}_base_percent"]) for model in ("roberta", "longformer"))
        rows.append([name, row["metric"], "the paper", f"{short:.1f}", f"{long:.1f}", f"{long - short:+.1f}", *"–––––"])
        task = next((one for one in TASKS.values() if one.printed == name), None)
        for scale in reversed(context.scales) if task else ():
            if context.plan(scale, task=task.name):
                rows.append([name, metric_of(task), f"this study, {scale}: {task.scales[scale]['corpus']}",
                             *_ours(context, task, scale)])
    return pandas.DataFrame(rows, columns=["task", "metric", "source", "short", "Longformer", "gain",
                                           AS_SHORT_SHOWN, "Longformer, text cut", "best possible",
                                           "recovered", "seeds"])


def metric_of(task: "Task") -> str:
    """The metric of our rows. Where the paper averages the F1 of five seeds, ours is that of five folds together."""
    pooled = " (five folds pooled)" if getattr(task, "folds", False) else ""
    return PRINTED[task.printed]["metric"].removesuffix(" (mean of five seeds)") + pooled


def same_texts(task: "Task", *groups: list[Record]) -> list[list[Record]]:
    """`paired` records, which can be subtracted. Raises ReproError unless they scored the same texts in one order."""
    found = paired(*groups)
    for same in zip(*found, strict=True):
        if any(one.documents[task.split]["id"] != same[0].documents[task.split]["id"] for one in same):
            raise ReproError(f"records {', '.join(one.id for one in same)} scored different texts; run them on the "
                             "same corpus and split.")
    return found


def _ours(context: ArtifactContext, task: "Task", scale: str) -> list[str]:
    """The cells of one task at one scale: the seeds are those of the claim, and for the cut text all that it has."""
    configs = {config.model: config for config in context.plan(scale, task=task.name)}
    gained = {model: config for model, config in configs.items() if model != CUT}
    found = dict(zip(gained, context.at_common_seeds(list(gained.values())), strict=True))
    found |= {CUT: context.records_of(configs[CUT])} if CUT in configs else {}
    values = {model: task.values(records) for model, records in found.items() if records}
    cells = {model: cell(values.get(model)) for model in MODELS} | ({} if task.first_piece else {AS_SHORT: "–"})
    long, short = same_texts(task, found.get(LONG, []), found.get(SHORT, []))
    gain = cell(task.values(long) - task.values(short), "+.1f") if long else NOT_RUN
    best = [record.metrics["best"] for record in found.get(LONG, []) if "best" in record.metrics]
    seeds, cut = max(map(len, found.values())), len(found.get(CUT, []))
    other = f" (text cut: {cut})" if 0 < cut != seeds else ""
    return [cells[SHORT], cells[LONG], gain, cells[AS_SHORT], cells[CUT], f"{best[0]:.1f}" if best else "–",
            recovered(found.get(LONG, []), task.metric), f"{seeds or NOT_RUN}{other}"]


def recovered(records: Sequence[Record], metric: str) -> str:
    """The share that these runs recover of what long context can give, their mean; "–" if it is not known. Records made
    before the share was stored have what it is computed from."""
    every = [share_recovered(one.metrics.get(metric), one.metrics) for one in records]
    shares = [one["share_recovered"] for one in every if "share_recovered" in one]
    return f"{sum(shares) / len(shares):.0%}" if shares else "–"


def cell(values: "np.ndarray | None", style: str = ".1f") -> str:
    """The mean of (seeds, units) with its 95% interval, cut off at 0 and 100 unless the style is that of a difference,
    with a sign; None: not run."""
    if values is None:
        return NOT_RUN
    found = judge(values, "higher", seeds=1)
    ends = found.effect, found.low, found.high
    return bounded(*ends, style) if style.startswith("+") else percentage(*ends)


def of(records: Sequence[Record], **settings: Any) -> list[Record]:
    """The records of runs with these settings."""
    return [record for record in records if all(record.config[name] == value for name, value in settings.items())]


def scores(records: Sequence[Record], model: str) -> "np.ndarray":
    """(seeds, units) in % of one model on the task of these records."""
    chosen = of(records, model=model)
    return TASKS[chosen[0].config["task"]].values(chosen)


def gain(records: list[Record]) -> Measured:
    """Longformer's score minus that of the short model, by unit, in percentage points; the control is the same for a
    Longformer that reads as much as the short model, if there is one."""
    short = scores(records, SHORT)
    control = scores(records, AS_SHORT) - short if of(records, model=AS_SHORT) else None
    return Measured(scores(records, LONG) - short, control)


def loss_from_cut(records: list[Record]) -> float | None:
    """How much Longformer loses when it reads only the beginning, in percentage points, at common seeds; None without
    any."""
    long, cut = paired(of(records, model=LONG), of(records, model=CUT))
    return max(0.0, float(scores(long, LONG).mean() - scores(cut, CUT).mean())) if long else None


def gains_more(records: Sequence[Record]) -> Measured:
    """Longformer's gain in F1 on Hyperpartisan minus its gain in accuracy on IMDB, in percentage points; the control is
    the same for a Longformer that reads as much as the short model.

    Both tasks have one label a text and the same short model, which reads the first 512 tokens. Coreference, the third
    task here with documents, is no comparison: LitBank's texts are longer than Hyperpartisan's (about 2,500 and 800
    tokens), and its short model reads all pieces of a text.

    Each document holds its deviation from the mean gain of its task, weighted so that the documents of a task count as
    its mean does; the mean over all of them is the difference.
    """
    import numpy as np

    def difference(long: np.ndarray, short: np.ndarray) -> np.ndarray:
        n = long.shape[1] + short.shape[1]
        apart = [sign * n / gains.shape[1] * (gains - gains.mean()) for sign, gains in ((1, long), (-1, short))]
        return long.mean() - short.mean() + np.concatenate(apart, 1)

    found = [gain(of(records, task=name)) for name in CONTRAST]
    note = ", ".join(f"{name} {np.mean(one.effects):+.1f}" for name, one in zip(CONTRAST, found, strict=True))
    return Measured(difference(*(one.effects for one in found)), difference(*(one.control for one in found)),
                    f"gains: {note}")


def printed_gain(name: str) -> float:
    """The gain that Table 7 prints for one of its rows, in percentage points."""
    row = PRINTED[name]
    return float(row["longformer_base_percent"]) - float(row["roberta_base_percent"])


def gain_claim(task: "Task", sentence: str, short: str, chapter_table: str, seeds: int = 3) -> Claim:
    """The claim that Longformer beats the short model on a task, as Table 7 prints it. If that model reads the first
    piece alone, a Longformer that reads no more is the control."""
    controlled = task.first_piece

    def runs(*models: str):
        return lambda config: config.task == task.name and config.model in models

    return Claim(
        id=f"longformer2020-{task.name}-above-short", paper=PAPER, source="Table 7", experiment=EXPERIMENT.name,
        about=(chapter_table,), where=runs(SHORT, LONG, *[AS_SHORT] * controlled), measure=gain, direction="higher",
        unit=task.unit, seeds=seeds,
        paper_effect=lambda: printed_gain(task.printed), unit_shown=f"points of {metric_of(task).partition(' (')[0]}",
        control=AS_SHORT_READS if controlled else "", criterion_before=BEFORE if controlled else "",
        why_no_control="" if controlled else "the short model is the control; besides how much it reads at once, it "
                                             "differs in its attention, which has no window and no projections for "
                                             "global tokens",
        assay=Assay("how much Longformer loses when it reads only the first 128 tokens", runs(LONG, CUT),
                    loss_from_cut),
        sentence=sentence, short=short)


CONTRAST = "hyperpartisan", "imdb"  # the longer texts first
TABLE_7 = Artifact(
    id="longformer2020-table7", paper=PAPER, chapter="20_classification_and_coreference", source="Table 7",
    experiment=EXPERIMENT.name, build=table_7,
    title="An encoder that reads short pieces, and the same encoder as a Longformer: scores in %",
    look_for="Compare gains, not levels: ours starts from MiniLM at pretrained and reads parts of the corpora. "
             "Intervals are 95%, over seeds and units.")
register(
    TABLE_7,
    gain_claim(TASKS["imdb"], "Longformer classifies IMDB's reviews more accurately than a model that reads 512 "
                              "tokens.", "IMDB: Longformer beats the short model.", TABLE_7.id),
    gain_claim(TASKS["hyperpartisan"], "Longformer finds hyperpartisan articles with a higher F1 than a model that "
                                       "reads 512 tokens.", "Hyperpartisan: Longformer beats the short model.",
               TABLE_7.id, seeds=5),
    gain_claim(TASKS["coreference"], "Longformer finds which words refer to the same person or thing with a higher "
                                     "average F1 than a model that reads pieces of 384 tokens.",
               "Coreference: Longformer beats the short model.", TABLE_7.id),
    Claim(
        id="longformer2020-long-tasks-gain-more", paper=PAPER, source="Table 7 and section 6.4",
        experiment=EXPERIMENT.name, about=(TABLE_7.id,), measure=gains_more, direction="higher", unit="document",
        where=lambda config: (config.scale in TASKS["hyperpartisan"].scales and config.task in CONTRAST
                              and config.model != CUT),
        seeds=FOLDS,  # of both tasks: with fewer, not every article would be tested
        paper_effect=lambda: printed_gain("Hyperpartisan") - printed_gain("IMDB"),
        unit_shown="points of F1 minus points of accuracy",
        control=AS_SHORT_READS, criterion_before=BEFORE,
        assay=Assay("how much Longformer loses on Hyperpartisan when it reads only the first 128 tokens",
                    lambda config: config.task == "hyperpartisan" and config.model in (LONG, CUT), loss_from_cut),
        sentence="Longformer gains more over the short model on Hyperpartisan's long articles than on IMDB's shorter "
                 "reviews.",
        short="Hyperpartisan's long articles gain more than IMDB's reviews."))
