"""How far back the base model looks: its loss by position in the window, on held-out documents.

A model that gains nothing from more distant tokens cannot use a memory of them.
"""

from pydantic import Field, model_validator

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.pretraining import PROCESS, RATE, tokeniser_of
from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, register

DOCUMENTS = {"smoke": 4, "small": 26, "medium": 26, "paper": 26}  # of the validation text, for estimates


class Config(RunConfig):
    """The first disjoint windows of each document of the validation text."""

    window: int = Field(1024, ge=4)
    windows_per_document: int = Field(16, ge=1)  # fewer for a document that is shorter
    after: int = Field(150, ge=1)  # tokens of context; the first of the two stretches compared ends after twice as many

    @model_validator(mode="after")
    def _fits(self):
        context = PRETRAINING.plan(self.scale)[0].n_positions
        if self.window > context:
            raise ValueError(f"window is {self.window} tokens, but the model's context ends at {context}")
        if 2 * self.after >= self.window:
            raise ValueError(f"after is {self.after} tokens; it must be less than half the window ({self.window})")
        return self


def execute(config, context) -> Outcome:
    import numpy as np

    from repro.data import tokens
    from repro.evaluation import perplexity
    from repro.evaluation.positions import by_position, stretches
    from repro.models import load_causal_lm

    base = PRETRAINING.plan(config.scale)[0]
    _, folder = context.need(base)
    model, losses = load_causal_lm(folder / "model"), []
    text = tokens(config.corpus, "validation", tokeniser_of(base))
    streams = [text.document(k)[:config.windows_per_document * config.window + 1] for k in range(len(text))]
    with context.progress(sum(map(len, streams)), "scoring validation text", "tokens") as bar:
        for ids in streams:
            whole = (len(ids) - 1) // config.window * config.window
            if whole:
                score = perplexity(model, ids[:whole + 1], config.window, 0, progress=bar.advance)
                losses.append(by_position(score.target_nll, config.window))
    losses = np.array(losses)  # (documents, window)
    edges = stretches(config.window)
    by_stretch = {stretch_name(first, last): losses[:, first:last].mean(1).tolist() for first, last in edges}
    late = losses[:, config.after:2 * config.after].mean(1) - losses[:, 2 * config.after:].mean(1)
    curve = [[(first + last + 1) / 2, float(losses[:, first:last].mean())] for first, last in edges]
    return Outcome({"late_gain": float(late.mean()), "token_loss": float(losses.mean())},
                   {"late_gain": "nats per token", "token_loss": "nats per token"}, "gpt2-mini",
                   {"loss_by_position": curve}, {"validation": {**by_stretch, "late_gain": late.tolist()}})


def stretch_name(first: int, last: int) -> str:
    """The name of a stretch of positions, counted from 1."""
    return f"position_{first + 1}" if last == first + 1 else f"positions_{first + 1}_to_{last}"


def estimate(config) -> Estimate:
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    n = PRETRAINING.estimate(base).parameters
    per_token = flops_per_token(base.n_layer, base.n_embd, config.window, 0) + 2 * base.n_embd * base.vocab_size
    flops = per_token * config.window * config.windows_per_document * DOCUMENTS[config.scale]
    return Estimate(n, 0, flops, PROCESS + 4 * n, flops / RATE[config.scale])


def draw(context):
    """A panel per scale: the mean over documents of the loss at each stretch of positions, with its interval."""
    import pandas

    from repro.evaluation.bootstrap import bootstrap_ratio
    from repro.evaluation.positions import stretches
    from repro.plotting import draw_table_curves

    rows = []
    for scale in reversed(context.scales):
        for record in context.records(scale)[:1]:  # the curves of seeds would cover each other
            for first, last in stretches(record.config["window"]):
                losses = record.documents["validation"][stretch_name(first, last)]
                value, low, high = bootstrap_ratio(losses, [1] * len(losses))
                rows.append({"source": scale, "model": record.model, "position": (first + last + 1) / 2,
                             "loss": value, "low": low, "high": high})
    return draw_table_curves(pandas.DataFrame(rows, columns=["source", "model", "position", "loss", "low", "high"]),
                             "position", "loss", ("position in the window", "nats per token"), log_x=True)


EXPERIMENT = Experiment(
    name="loss-by-position", paper="yoshida2020", summary="Loss of the base model by position in the window.",
    config=Config, execute=execute, estimate=estimate, needs=lambda config: PRETRAINING.plan(config.scale),
    scales={"smoke": {"corpus": "synthetic-books", "window": 128, "after": 20}, "small": {"corpus": "pg19-subset"},
            "medium": {"corpus": "pg19-subset"}, "paper": {"corpus": "pg19"}})
register(EXPERIMENT, Artifact(
    id="base-loss-by-position", paper="yoshida2020", title="Loss of the base model by position in the window",
    chapter="02_corpora_and_base_models", experiment=EXPERIMENT.name, source="not in the paper",
    kind="figure", build=draw,
    look_for="Where the curve still falls, the model gains from tokens that far back; where it is flat, a memory of "
             "them could not help it."))
