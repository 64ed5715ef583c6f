"""The zero-shot sets with a real language model, Gemma 3 270M, as it was published. Not in the paper.

The sizes of `small` have at most 3 million weights and answer nothing. Gemma has 268 million, twice as many as the
paper's smallest model. It reads the same sets in windows of the same length, with its own tokenizer and its whole
vocabulary, and punctuation as typed. One run scores one set. It scores the beginning of the set a second time in
float32, because the rest is computed in bfloat16.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.papers.base.pretraining import PROCESS, RATE
from repro.papers.gpt2_2019 import sets
from repro.papers.gpt2_2019.sizes import CHAPTER, PAPER, SIZES
from repro.papers.gpt2_2019.tables import ROUGE, SUMMARIES, mean
from repro.papers.gpt2_2019.zero_shot import HERE, KINDS, LANGUAGE, TASKS, scores, unit
from repro.study import Artifact, ArtifactContext, Estimate, Experiment, Outcome, Record, RunConfig, register
from repro.study.artifacts import NOT_RUN
from repro.study.experiment import corpus_named
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

    from repro.data import Tokeniser
    from repro.models.opened import Opened

LAMBADA = "lambada"
SETS = (LAMBADA, *LANGUAGE, *(task for task in TASKS if task in HERE))
Documents = dict[str, dict[str, list]]


class Config(RunConfig):
    """A set, the corpus that it is read from, and how much of it is read."""

    task: Literal[*SETS]
    model: Literal["gemma-3-270m"] = "gemma-3-270m"
    documents: int | None = Field(None, ge=1)  # number of documents of running text, from the first; null: all
    examples: int | None = Field(None, ge=2)  # number of examples of a set of tasks, from the first; null: all
    window: int = Field(1024, ge=2)  # tokens besides <bos>: GPT-2's context
    overlap: int = Field(0, ge=0)  # tokens of a window that the previous one scored
    summary_tokens: int = Field(100, ge=1)
    precision: Literal["no", "bf16"] = "bf16"
    sample: int = Field(1, ge=1)  # documents, or examples, that are also scored in float32

    @model_validator(mode="after")
    def _fits(self):
        if self.overlap >= self.window:
            raise ValueError(f"overlap is {self.overlap} tokens; it must be smaller than the window ({self.window})")
        kind = KINDS["corpus" if self.task == LAMBADA else self.task]
        if (found := corpus_named(self.corpus).content_kind) != kind:
            raise ValueError(f"corpus is {self.corpus}, which has the kind {found}; {self.task} needs the kind {kind}")
        return self


# All of it takes one core half an hour, so only the beginning of each set is read.
READ = {LAMBADA: {"corpus": HERE["corpus"], "examples": 2_000, "sample": 100},
        "wikitext2": {"documents": 10}, "reading": {"examples": 100, "sample": 5},
        "enwik8": {"corpus": "enwik8-prefix", "documents": 10}, "articles": {"examples": 20, "sample": 2},
        "nouns": {"examples": 80, "sample": 5}, "text8": {"corpus": "text8-prefix", "documents": 10},
        "names": {"examples": 80, "sample": 5}, "questions": {"examples": 100, "sample": 5},
        "wikitext103": {"documents": 10}}


def grid(scale: str) -> list[dict]:
    """One point per set."""
    return [{"task": task, "corpus": HERE.get(task)} | read for task, read in READ.items()]


def execute(config, context):
    import torch

    from repro.bf16 import bf16_products
    from repro.models import pretrained
    from repro.models.opened import Opened

    base, coder = pretrained.load(config.model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Opened(base.to(device), coder.bos, config.window, exact_output=config.task not in LANGUAGE)
    half, part = config.precision == "bf16", {"documents": config.sample, "examples": max(2, config.sample)}
    with context.progress(1 + half, f"evaluating {config.model} on {config.task}", "readings") as bar:
        with bf16_products(device, half), torch.autocast(device.type, torch.bfloat16, enabled=half):
            documents, notes = scored(config, model, coder)
        metrics = scores(documents, {}) | {"parameters": sum(weight.numel() for weight in base.parameters())}
        bar.advance(1)
        if half:
            exact, _ = scored(config.model_copy(update=part), model, coder)
            metrics |= {f"sample_float32_{name}": value for name, value in scores(exact, {}).items()}
            metrics |= {f"sample_{name}": value for name, value in scores(first(documents, exact), {}).items()}
            bar.advance(1)
    return Outcome(metrics, {name: unit_of(name) for name in metrics}, config.model, documents=documents, notes=notes)


def scored(config, model: "Opened", coder: "Tokeniser") -> tuple[Documents, dict[str, Any]]:
    """The documents that `zero_shot.scores` reads, for the set of this run alone, and the notes of the record."""
    from repro.data import corpus, detokeniser

    name, source, notes = config.task, corpus(config.corpus), {}
    if name in LANGUAGE:
        rewrite = detokeniser("wikitext").apply if name.startswith("wikitext") else str
        return {name: sets.language(model, coder, config.corpus, config, rewrite)}, notes
    rows = list(source.examples("test" if "test" in source.splits else "validation"))[:config.examples]
    if name == LAMBADA:
        found = sets.last_words(model, coder, [row.text for row in rows])
    elif name in ("names", "nouns"):
        found = sets.clozes(model, coder, rows)
    elif name == "reading":
        found = sets.reading(model, coder, rows)
    elif name == "questions":
        found, notes["answers"] = sets.closed_book(model, coder, rows, list(source.examples("train")))
    else:
        found = sets.summaries(model, coder, rows, config.seed, config.summary_tokens)
    return {name: found}, notes


def first(documents: Documents, like: Documents) -> Documents:
    """As many units of each set, from the first on, as `like` has.

    >>> first({"lambada": {"nll": [1.0, 2.0, 3.0]}}, {"lambada": {"nll": [1.1, 2.2]}})
    {'lambada': {'nll': [1.0, 2.0]}}
    """
    return {name: {key: values[:len(like[name][key])] for key, values in part.items()}
            for name, part in documents.items()}


def unit_of(metric: str) -> str:
    """The unit of a metric, also of one of the sample."""
    return unit(metric.removeprefix("sample_").removeprefix("float32_"))


# Tokens read from each set, by READ, including repeated prompts.
TOKENS = {LAMBADA: 180_000, "wikitext2": 50_000, "reading": 45_000, "enwik8": 40_000, "articles": 70_000,
          "nouns": 70_000, "text8": 30_000, "names": 70_000, "questions": 25_000, "wikitext103": 55_000}


def estimate(config):
    from repro.models.pretrained import declared

    n = declared(config.model).parameters
    flops = 2.0 * n * TOKENS[config.task]
    return Estimate(n, 0, flops, PROCESS + 6 * n, flops / RATE[config.scale] + 60)


EXPERIMENT = Experiment(
    name="zero-shot-gemma", paper=PAPER, summary="Gemma 3 270M on zero-shot tasks.", config=Config,
    scales={"pretrained": {}}, grid=grid, execute=execute, estimate=estimate)


class Row(NamedTuple):
    """A row of the table: a set, our metric for it, and the values that it is compared with."""

    task: str
    name: str
    metric: str
    style: str  # as in `tables.mean`
    printed: str  # column of Table 3, or a task of section 3
    control: str = ""  # our metric
    controlled: str = ""  # description of the control


ROWS = (
    Row(LAMBADA, "LAMBADA: perplexity", "lambada_perplexity", "", "lambada_perplexity"),
    Row(LAMBADA, "LAMBADA: accuracy, stop words barred (%)", "lambada_accuracy_stop_words_percent", ".1f",
        "lambada_accuracy_percent", "lambada_accuracy_percent", "nothing barred"),
    Row("nouns", "clozes, nouns (paper: CBT-CN): accuracy (%)", "cloze_nouns_accuracy_percent", ".1f",
        "cbt_common_nouns_accuracy_percent", "cloze_nouns_commonest_percent", "commonest candidate"),
    Row("names", "clozes, names (paper: CBT-NE): accuracy (%)", "cloze_names_accuracy_percent", ".1f",
        "cbt_named_entities_accuracy_percent", "cloze_names_commonest_percent", "commonest candidate"),
    Row("wikitext2", "WikiText-2: perplexity per word", "wikitext2_word_perplexity", "", "wikitext2_perplexity"),
    Row("wikitext103", "WikiText-103: perplexity per word", "wikitext103_word_perplexity", "",
        "wikitext103_perplexity"),
    Row("enwik8", "enwik8: bits per byte", "enwik8_bits_per_byte", ".3f", "enwik8_bits_per_byte"),
    Row("text8", "text8: bits per character", "text8_bits_per_character", ".3f", "text8_bits_per_character"),
    Row("reading", "questions about a text (paper: CoQA): F1 (%)", "reading_f1_percent", ".1f",
        "reading comprehension", "reading_alone_f1_percent", "question alone"),
    Row("questions", "questions without a text (paper: Natural Questions): exact (%)", "questions_exact_percent", ".1f",
        "question answering", "questions_most_common_percent", "most common answer"))


def levels(context: ArtifactContext) -> "pandas.DataFrame":
    """A row per set and measure: the paper's smallest and largest model, Gemma, its control, and Gemma on the beginning
    of the set in both precisions."""
    import pandas

    rows = []
    for scale in context.scales:
        found = {config.task: (config, context.records_of(config)) for config in context.plan(scale)}
        for row in (row for row in ROWS if row.task in found):
            config, records = found[row.task]
            ours, control, sample, exact = (mean(records, metric, row.style) if metric else "–" for metric in (
                row.metric, row.control, f"sample_{row.metric}", f"sample_float32_{row.metric}"))
            rows.append(_cells(row.name, config, printed(row.printed), ours, control, row.controlled, sample, exact))
        paper = {row["model"]: row["rouge_average"] for row in printed_rows("gpt2_2019_table4_summarization")}
        for kind in ("hint", "no_hint", "scrambled") if "articles" in found else ():
            config, records = found["articles"]
            ours, control = rouge(records, kind), rouge(records, "random_3")
            rows.append(_cells(f"summaries {SUMMARIES[kind].removeprefix('GPT-2 ')} (paper: news): ROUGE", config,
                               {SIZES[-1]: paper.get(SUMMARIES[kind], "–")}, ours, control, "three random sentences"))
    return pandas.DataFrame(rows)


def _cells(name: str, config: Config, paper: dict[str, str], ours: str, control: str, controlled: str,
           sample: str = "–", exact: str = "–") -> dict[str, str]:
    """One row of the table. paper: numbers by model. sample, exact: in both precisions."""
    return {"set": name, "Gemma 3 270M": ours,
            **{f"paper: {size}": paper.get(size, "–") for size in (SIZES[0], SIZES[-1])},
            "control": control if control in ("–", NOT_RUN) else f"{control} ({controlled})",
            "read here": f"{config.corpus}, {beginning(config)}",
            "a sample in bfloat16": sample, "the sample in float32": exact}


def beginning(config: Config) -> str:
    """How much of a set is read, in words."""
    kind = f"stretches of {sets.STRETCH:,} characters" if config.task in ("enwik8", "text8") else "articles"
    for n, units in ((config.documents, kind), (config.examples, "examples")):
        if n is not None:
            return f"the first {n:,} {units}"
    return "all"


def printed(name: str) -> dict[str, str]:
    """The paper's numbers by model: of a column of Table 3, or of a task in its text, which prints the largest's."""
    rows = printed_rows("gpt2_2019_table3_zero_shot_lm")
    if name in rows[0]:
        return {row["model"]: row[name] for row in rows}
    return {SIZES[-1]: next(row["value"] for row in printed_rows("gpt2_2019_text_results") if row["task"] == name)}


def rouge(records: Sequence[Record], kind: str) -> str:
    """The mean of the three ROUGE scores of one kind of summary, in %."""
    if not records:
        return NOT_RUN
    values = [record.metrics[f"summary_{kind}_{measure}"] for record in records for measure in ROUGE]
    return f"{sum(values) / len(values):.1f}"


TABLE = Artifact(
    id="gpt2_2019-gemma", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=levels,
    source="not in the paper",
    title="Gemma 3 270M next to the paper's smallest and largest model",
    look_for="Compare orders of magnitude, not digits: this Gemma has 4-bit weights and another tokenizer, and may "
             "have been trained on these texts.")
register(EXPERIMENT, TABLE)
