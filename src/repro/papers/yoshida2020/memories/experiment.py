"""Memories side by side: other ways to pass something to the next window, on the same base, text, order and steps.

The paper compares its own module with overlap only. Here every row fine-tunes the base model with one of
`repro.recurrence.MEMORIES`, or without one, on disjoint windows ("none") or on overlapping ones ("overlap"). The
overlap is a fifth of the window, which costs about as much as the most expensive memory except "cache". "cache" is a
strong reference: it sees as much as windows of twice the size, at their cost.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import tokeniser_of
from repro.papers.yoshida2020.memories.tables import cost_figure, memory_table
from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.evaluation import Config as Evaluation
from repro.papers.yoshida2020.perplexity.evaluation import estimate_evaluation, evaluate, others, trained
from repro.papers.yoshida2020.perplexity.finetuning import held_out
from repro.study import Artifact, Experiment, Outcome, register

if TYPE_CHECKING:
    from repro.data.synthetic import Bounds

ROWS = get_args(finetuning.Memory)
SMOKE_ROWS = ("none", "cache", "gated", "rmt")  # run the others with --set memory=...
REACH_TEXTS = 4  # validation books on which the reach is measured


class Config(Evaluation):
    """A memory, and how a model with it is trained and tested."""

    memory: finetuning.Memory = "none"
    # The smallest change of loss, in nats per token, with which a memory counts as reaching a window.
    tolerance: Annotated[float, Field(gt=0)] = 1e-4


COMMON = {"splits": ("test",), "windows_per_sequence": 20}
BOOKS = {"corpus": "pg19-subset", "validation_head": 4000, "test_head": 4000}
SCALES = {
    "smoke": {**finetuning.SCALES["smoke"], **COMMON, "windows_per_sequence": 8, "steps": 20, "warmup_steps": 5,
              "validation_tokens": 2000, "test_head": 300},
    "small": {**finetuning.SCALES["small"], **COMMON, **BOOKS, **finetuning.SECOND["small"], "train_draw": "random",
              "learning_rate": 1e-3, "train_documents": 20, "precision": "bf16"},
    "medium": {**finetuning.SCALES["medium"], **COMMON, **BOOKS, "steps": 2000, "learning_rate": 3e-4,
               "train_documents": 384},
}
KNOWN = {"corpus": "synthetic-books", "train_documents": None, "validation_head": None, "test_head": None}
SHORTER = {"small": {"steps": 150}}  # for the generated text, which has few different words
ZERO = dict.fromkeys(("yoshida", "yoshida-first", "embeddings-4"), {"zero_init": True})  # as validation chose (Table 1)
GATES = {"infini", "knn"}  # these learn one number per head and nothing else
FASTER = 30  # their rate, in units of the common one, which moves such a number by at most 0.15 in 300 steps


def grid(scale: str) -> list[dict[str, Any]]:
    """Every row on real books and on generated ones, whose possible gain is known; at `smoke`, where all books are
    generated, a few rows."""
    fifth = SCALES[scale].get("window", finetuning.Config.model_fields["window"].default) // 5
    gates = dict.fromkeys(GATES, {"module_learning_rate": FASTER * SCALES[scale]["learning_rate"]})
    own = {"overlap": {"overlap": fifth, "train_overlap": fifth}} | ZERO | gates
    rows = [{"memory": name} | own.get(name, {})
            for name in (SMOKE_ROWS if scale == "smoke" else ROWS)]
    return rows if scale == "smoke" else [
        row | text for text in ({}, KNOWN | SHORTER.get(scale, {})) for row in rows]


def execute(config, context) -> Outcome:
    """The scores of `evaluate`, and the memory's weights, size of state and reach."""
    from repro.models import load_causal_lm

    outcome = evaluate(config, context)
    _, folder = context.need(trained(config))
    model = load_causal_lm(folder / "model")
    metrics, units = {"weights": 0, "state_numbers": 0, "reach_windows": 0}, {
        "weights": "weights", "state_numbers": "numbers carried by a sequence", "reach_windows": "windows"}
    curves = dict(outcome.curves)
    if hasattr(model, "memory"):
        reach = reach_of(model, config)
        metrics = {"weights": sum(weight.numel() for weight in model.added_parameters()),
                   "state_numbers": model.memory.state_numbers(config.window), "reach_windows": reach.windows}
        curves["change_by_windows_back"] = [[j, change] for j, change in enumerate(reach.changes, 1)]
    if config.corpus == "synthetic-books":
        possible = known(config)
        metrics["share_of_known_gain"] = possible.share(sum(outcome.documents["test"]["nll"]))
        units["share_of_known_gain"] = "of what the whole book can tell beyond the window"
        metrics["known_gain"] = (possible.window_nll.sum() - possible.unlimited_nll.sum()) / possible.n_words.sum()
        units["known_gain"] = "nats per word that the whole book can tell beyond the window"
    return replace(outcome, metrics=outcome.metrics | metrics, units=outcome.units | units, curves=curves)


def reach_of(model, config):
    """How many windows back a change of text still changes the loss, on the first windows of some validation books."""
    import torch

    from repro.recurrence import reach_windows

    text = held_out(config, tokeniser_of(PRETRAINING.plan(config.scale)[0]))
    stride = config.window - config.overlap
    length = config.window + (config.windows_per_sequence - 1) * stride + 1
    books = [text.document(k)[:length] for k in range(len(text))]
    whole = [torch.from_numpy(book).long() for book in books if len(book) == length]
    ids = torch.stack(whole[:REACH_TEXTS])
    return reach_windows(model, ids, ids.roll(1, 0), config.window, config.overlap, config.tolerance)


def known(config) -> "Bounds":
    """The best possible loss on test text given one window, and given the whole book so far; it is the same for every
    row. A window of n tokens counts as n words."""
    from repro.data import corpus
    from repro.data.synthetic import bounds

    texts = [book.text for book in corpus(config.corpus).documents("test")]
    if config.test_head:
        texts = [" ".join(text.split()[:config.test_head]) for text in texts]
    return bounds(texts, config.window, 0)


SCORED = {"smoke": 2_400, "small": 132_000, "medium": 132_000}
EXPERIMENT = Experiment(
    name="memories-pg19", paper="yoshida2020", summary="Memories of other papers next to the recurrence module.",
    config=Config, scales=SCALES, execute=execute, grid=grid,
    estimate=lambda config: estimate_evaluation(config, SCORED[config.scale]), needs=lambda config: [trained(config)],
    reads=others)

CHAPTER, SOURCE = "07_pg19", "not in the paper"
register(
    EXPERIMENT,
    Artifact(id="memories-pg19", paper="yoshida2020", title="Memories side by side", chapter=CHAPTER,
             experiment=EXPERIMENT.name, source=SOURCE, build=memory_table),
    Artifact(id="memories-pg19-cost", paper="yoshida2020", title="Gain and cost of each memory",
             chapter=CHAPTER, experiment=EXPERIMENT.name, source=SOURCE, kind="figure", build=cost_figure,
             look_for="A memory earns its cost if its interval lies left of zero and no cheaper row lies further "
                      "left."))
