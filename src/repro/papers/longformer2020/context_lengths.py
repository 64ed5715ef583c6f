"""How long the contexts of the tasks are (Beltagy et al. 2020, Table 6): wordpieces, counted without a model.

RoBERTa splits text into the pieces of GPT-2's tokenizer under other ids, so these counts can be compared with the
paper's. A context is the text of an article or review, or all paragraphs of a question with their titles; questions,
candidates and special tokens are not counted. TriviaQA and OntoNotes cannot be fetched here.
"""

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from repro.errors import ReproError
from repro.markup import bounded
from repro.papers.base.gpt2_mini import PROCESS
from repro.study import Artifact, ArtifactContext, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

PAPER, CHAPTER = "longformer2020", "18_from_roberta_to_longformer"
PRINTED = {row["dataset"]: row for row in printed_rows("longformer2020_table6_context_lengths")}
LIMIT = 512  # wordpieces that RoBERTa reads
AVERAGE, PERCENTILE, LONGER = "average_wordpieces", "percentile95_wordpieces", "percent_above_512"


class Config(RunConfig):
    """The corpus that is counted, and how its texts are split into tokens."""

    splits: tuple[str, ...] = Field(min_length=1)
    tokeniser: Literal["word", "gpt2", "roberta"] = "gpt2"


def execute(config: Config, context: Any) -> Outcome:
    """Count the tokens of every context."""
    import numpy as np

    from repro.data import corpus, tokeniser

    source = corpus(config.corpus)
    coder = tokeniser(config.tokeniser, corpus=config.corpus)
    rows = [row for split in config.splits for row in source.examples(split)]
    if not rows:
        raise ReproError(f"corpus {config.corpus} has no examples in {', '.join(config.splits)}; choose other splits.")
    with context.progress(len(rows), f"counting {config.corpus}", "texts") as bar:
        lengths = []
        for row in rows:
            lengths.append(sum(len(coder.encode(text)) for text in contexts(row)))
            bar.advance(1)
    metrics = {AVERAGE: float(np.mean(lengths)), PERCENTILE: float(np.percentile(lengths, 95)),
               LONGER: 100 * float(np.mean(np.array(lengths) > LIMIT)), "texts": len(lengths)}
    units = {AVERAGE: "wordpieces", PERCENTILE: "wordpieces", LONGER: "per cent of texts", "texts": "texts"}
    return Outcome(metrics, units, "none", documents={"all": {"id": [row.id for row in rows], "wordpieces": lengths}},
                   notes={"tokeniser": coder.fingerprint})


def contexts(row: Any) -> Iterator[str]:
    """The parts of what a model has to read besides the question: texts that are encoded one by one.

    Raises ReproError for a kind of example that has no context.
    """
    if hasattr(row, "titles"):
        for title, paragraph in zip(row.titles, row.paragraphs, strict=True):
            yield from (title, paragraph.text)
    elif hasattr(row, "paragraphs"):
        yield from row.paragraphs
    elif hasattr(row, "text"):
        yield row.text
    else:
        raise ReproError(f"an example of kind '{row.kind}' has no context to count; choose a corpus of labeled texts "
                         "or of questions about paragraphs.")


def estimate(config: Config) -> Estimate:
    """Some 300,000 wordpieces a second."""
    return Estimate(0, 0, 0.0, PROCESS, 30.0 if config.scale == "smoke" else 60.0)


def table(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 6: the printed lengths, then ours, the averages with 95% intervals over texts."""
    import pandas

    rows = [[name, "the paper", "–", row[AVERAGE], row[PERCENTILE], f"{printed_share():g}" if name == "IMDB" else "–"]
            for name, row in PRINTED.items()]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            cells = [NOT_RUN] * 4
            for record in context.records_of(config)[:1]:
                cells = [f"{record.metrics['texts']:,.0f}", _mean(record.documents["all"]["wordpieces"]),
                         f"{record.metrics[PERCENTILE]:.0f}", f"{record.metrics[LONGER]:.1f}"]
            rows.append([f"{config.corpus}, {' and '.join(config.splits)}", f"this study, {scale}", *cells])
    return pandas.DataFrame(rows, columns=["texts of", "source", "texts", "average", "95th percentile",
                                           f"above {LIMIT}, %"])


def printed_share() -> float:
    """The percentage of IMDB's reviews with more than 512 wordpieces that section 6.3 prints."""
    row, = (row for row in printed_rows("longformer2020_text_settings")
            if row["parameter"] == f"documents longer than {LIMIT} wordpieces")
    return float(row["value"])


def _mean(lengths: list[int]) -> str:
    """The mean with its 95% interval."""
    from repro.evaluation.bootstrap import over_seeds

    return bounded(fmean(lengths), *over_seeds(lengths), ".0f")


POINTS = {
    "smoke": {"synthetic-documents": ("test",), "synthetic-hops": ("validation",)},
    "small": {"hyperpartisan": ("train", "validation", "test"), "imdb-subset": ("train", "test"),
              "hotpotqa-subset": ("validation",), "wikihop-sample": ("train", "validation")},
    "paper": {"hyperpartisan": ("train", "validation", "test"), "imdb": ("train", "test"),
              "hotpotqa": ("train", "validation")},
}
EXPERIMENT = Experiment(
    name="context-lengths", paper=PAPER, summary="How long the contexts of the tasks are, in wordpieces.",
    config=Config, execute=execute, estimate=estimate,
    scales={"smoke": {"tokeniser": "word"}, "small": {}, "paper": {"tokeniser": "roberta"}},
    grid=lambda scale: [{"corpus": name, "splits": splits} for name, splits in POINTS[scale].items()],
    selects=("corpus",))
TABLE = Artifact(
    id="longformer2020-table6", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source="Table 6", build=table,
    title="Wordpieces of the contexts of each task (at smoke: words of generated texts)",
    look_for="IMDB's 95th percentile and Hyperpartisan's average are printed as the same number.")
register(EXPERIMENT, TABLE)
