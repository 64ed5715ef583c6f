"""The zero-shot sets with a real language model, Gemma 3 270M, as it was published. Not in the paper.

The sizes of `small` have at most 3 million weights and answer nothing. Gemma has 268 million, twice as many as the
paper's smallest model. It reads the same sets in windows of the same length, with its own tokenizer and its whole
vocabulary, and punctuation as typed. One run scores one set. It scores the beginning of the set a second time in
float32, because the rest is computed in bfloat16.
"""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from repro.papers.base.pretraining import PROCESS, RATE
from repro.papers.gpt2_2019 import sets
from repro.papers.gpt2_2019.sizes import PAPER
from repro.papers.gpt2_2019.zero_shot import HERE, KINDS, LANGUAGE, TASKS, scores, unit
from repro.study import Estimate, Experiment, Outcome, RunConfig, register
from repro.study.experiment import corpus_named

if TYPE_CHECKING:
    from repro.data import Tokeniser
    from repro.papers.gpt2_2019.opened import Opened

LAMBADA = "lambada"
SETS = (LAMBADA, *LANGUAGE, *(task for task in TASKS if task in HERE))
Documents = dict[str, dict[str, list]]


class Config(RunConfig):
    """A set, the corpus that it is read from, and how much of it is read."""

    task: Literal[*SETS]
    model: Literal["gemma-3-270m"] = "gemma-3-270m"
    documents: int | None = Field(None, ge=1)  # of running text, the first so many; null: all
    examples: int | None = Field(None, ge=2)  # of a set of tasks, the first so many; null: all
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
        "wikitext2": {"documents": 10},
        "enwik8": {"corpus": "enwik8-prefix", "documents": 10}, "text8": {"corpus": "text8-prefix", "documents": 10},
        "names": {"examples": 80, "sample": 5}, "nouns": {"examples": 80, "sample": 5},
        "reading": {"examples": 100, "sample": 5}, "questions": {"examples": 100, "sample": 5},
        "articles": {"examples": 20, "sample": 2}, "wikitext103": {"documents": 10}}


def grid(scale: str) -> list[dict]:
    """One point per set."""
    return [{"task": task, "corpus": HERE.get(task)} | read for task, read in READ.items()]


def execute(config, context):
    import torch

    from repro.bf16 import bf16_products
    from repro.models import pretrained
    from repro.papers.gpt2_2019.opened import Opened

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
    """What `zero_shot.scores` reads, for the set of this run alone, and the notes of the record."""
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


# Tokens of each set, those of repeated prompts included.
TOKENS = {LAMBADA: 480_000, "enwik8": 75_000, "text8": 85_000, "wikitext2": 110_000, "wikitext103": 110_000,
          "names": 120_000, "nouns": 120_000, "reading": 80_000, "questions": 45_000, "articles": 250_000}


def estimate(config):
    from repro.models.pretrained import declared

    n = declared(config.model).parameters
    flops = 2.0 * n * TOKENS[config.task]
    return Estimate(n, 0, flops, PROCESS + 6 * n, flops / RATE[config.scale] + 60)


EXPERIMENT = Experiment(
    name="zero-shot-gemma", paper=PAPER, summary="Gemma 3 270M on sets that nothing was trained for.", config=Config,
    scales={"pretrained": {}}, grid=grid, execute=execute, estimate=estimate)
register(EXPERIMENT)
