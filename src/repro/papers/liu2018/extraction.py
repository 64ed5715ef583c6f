"""Extraction alone (Liu et al. 2018, Figure 2): how similar to the lead is the text that a method ranks first?"""

from statistics import fmean
from typing import TYPE_CHECKING

from repro.data.extraction import METHODS
from repro.markup import percentage
from repro.papers.base.gpt2_mini import PROCESS
from repro.papers.liu2018.summarise import CHAPTER, PAPER
from repro.papers.liu2018.task import extracted
from repro.study import (
    Artifact,
    ArtifactContext,
    Estimate,
    Experiment,
    Outcome,
    RunConfig,
    judge,
    published,
    register,
)
from repro.study.artifacts import NOT_RUN, heading

if TYPE_CHECKING:
    import pandas

UNITS = {"words": "words"}


class Config(RunConfig):
    """Every extraction method on the test articles of a corpus; each extracts the number of words in the median
    training lead."""


def execute(config, context):
    from statistics import median

    from repro.data import corpus
    from repro.evaluation.summaries import rouge_l

    source = corpus(config.corpus)
    words = round(median(len(row.summary.split()) for row in source.examples("train")))
    rows, documents, first = list(source.examples("test")), {}, {}
    with context.progress(len(METHODS) * len(rows), "extracting", "articles") as bar:
        for method in METHODS:
            documents[method] = []
            for row in rows:
                extract = " ".join(" ".join(extracted(row, method)[1:]).split()[:words])
                documents[method].append(rouge_l(row.summary, extract))
                if row is rows[0]:
                    first[method] = extract
                bar.advance(1)
    metrics = {method: fmean(found) for method, found in documents.items()} | {"words": words}
    return Outcome(metrics, {name: UNITS.get(name, "ROUGE-L F1 (0 to 1)") for name in metrics}, "none",
                   documents={"test": documents},
                   notes={"title": rows[0].title, "wanted": rows[0].summary, "told": first})


def figure(context: ArtifactContext) -> "pandas.DataFrame":
    """One row per method: ROUGE-L F1 in % with its interval over articles. If the paper draws a bar without a number,
    the cell says so."""
    import pandas

    rows = [["the paper", row["method"], "WikiSum", row["rouge_l_f1"] or "bar without a number", "–"]
            for row in published("liu2018_figure2_extractive_only").to_dict("records")]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)[:1]
            for method in METHODS:
                rows.append([heading(scale), f"{method}, extractive only", config.corpus,
                             _interval(found[0].documents["test"][method]) if found else NOT_RUN,
                             f"{found[0].metrics['words']:.0f}" if found else NOT_RUN])
    return pandas.DataFrame(rows, columns=["scale", "method", "articles", "ROUGE-L F1", "words extracted"])


def example(context: ArtifactContext) -> "pandas.DataFrame":
    """One article: its lead, and the text that each method ranks first."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            for record in context.records_of(config)[:1]:
                notes, found = record.notes, record.documents["test"]
                rows.append([scale, notes["title"], "the lead itself", notes["wanted"], "–"])
                rows += [[scale, notes["title"], method, notes["told"][method], f"{100 * found[method][0]:.1f}"]
                         for method in METHODS]
    rows = rows or [[context.scales[0], *[NOT_RUN] * 4]]
    return pandas.DataFrame(rows, columns=["scale", "article", "method", "words", "ROUGE-L F1"])


def _interval(values: list[float]) -> str:
    import numpy as np

    found = judge(100 * np.array(values), "higher", seeds=1)
    return percentage(found.effect, found.low, found.high)


EXPERIMENT = Experiment(
    name="extract-leads", paper=PAPER, summary="Extraction without a model: ROUGE-L of what each method puts first.",
    config=Config, scales={"smoke": {"corpus": "synthetic-articles"}, "small": {"corpus": "scisummnet-subset"},
                           "medium": {"corpus": "scisummnet-subset"}, "paper": {"corpus": "wikisum"}},
    execute=execute, estimate=lambda config: Estimate(0, 0, 0.0, PROCESS, 60.0))
FIGURE = Artifact(
    id="liu2018-figure2", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source="Figure 2", build=figure,
    title="How much of the lead extraction alone finds: ROUGE-L F1 in % (ours: as many words as a median lead)")
EXAMPLE = Artifact(
    id="liu2018-extraction-example", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source="section 4.1",
    build=example, title="The text of one article that each extraction method ranks first, and the lead (ours)")
register(EXPERIMENT, FIGURE, EXAMPLE)
