"""How far back a fine-tuned model looks: its loss by position in the window. Not in the paper.

h_prev carries information from before the window. The extra loss of the baseline at the start of a window bounds the
gain from h_prev. At `pretrained`, where a module has a gain, the recurrent model is measured too.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from repro.evaluation.positions import by_position, stretches
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import RATE, tokeniser_of
from repro.papers.yoshida2020.perplexity import gemma
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING
from repro.study import ADDED, Absent, Artifact, Estimate, Experiment, Outcome, RunConfig, register


class Config(RunConfig):
    """Disjoint windows of the test text."""

    model: Annotated[Literal["baseline", "recurrent"], Absent("baseline")] = "baseline"
    window: int = Field(300, ge=2)
    test_head: Annotated[int | None, Field(ge=2), Absent(None)] = None  # first tokens read of each test book; None: all

    @model_validator(mode="after")
    def _fits(self):
        context = PRETRAINING.plan(self.scale)[0].n_positions
        if self.window > context:
            raise ValueError(f"window is {self.window} tokens, but the model's context ends at {context}")
        return self


def tuned(config, model: str = "baseline") -> RunConfig:
    """The fine-tuning of a kind of model at the scale and seed of a config."""
    if config.scale == "pretrained":
        return gemma.tuned(model, config.seed)
    return next(run for run in FINETUNING.plan(config.scale, seeds=[config.seed]) if run.model == model)


def by_stretch(target_nll, window: int) -> list[list[float]]:
    """[tokens of context, mean loss in nats] over stretches of doubling length. target_nll: (N,) of disjoint
    windows."""
    mean = by_position(target_nll, window)
    return [[(first + last + 1) / 2, float(mean[first:last].mean())] for first, last in stretches(window)]


def whole_windows(target_nll, lengths, window: int) -> np.ndarray:
    """The losses in the complete windows of each document; targets in an incomplete last window are left out.

    target_nll: (N,) of documents that are read one by one. lengths: the number of targets of each document.
    """
    parts = np.split(np.asarray(target_nll), np.cumsum(lengths)[:-1])
    return np.concatenate([part[:len(part) // window * window] for part in parts])


def execute(config, context) -> Outcome:
    from repro.data import tokens
    from repro.evaluation import score_documents
    from repro.evaluation.documents import streams_of
    from repro.models import load_causal_lm

    _, folder = context.need(tuned(config, config.model))
    coder = tokeniser_of(PRETRAINING.plan(config.scale)[0])
    text = tokens(config.corpus, "test", coder)
    if config.test_head:
        text = text.heads(config.test_head, coder)
    model = load_causal_lm(folder / "model")
    with context.progress(len(text.ids), f"scoring, {config.model}", "tokens") as bar:
        score, _ = score_documents(model, text, config.window, 0, progress=bar.advance)
    lengths = [len(ids) - 1 for ids in streams_of(text)]
    curve = by_stretch(whole_windows(score.target_nll, lengths, config.window), config.window)
    losses = [loss for _, loss in curve]
    return Outcome({"context_gain": losses[0] - min(losses)}, {"context_gain": "nats per token"}, config.model,
                   {"loss_by_position": curve})


def estimate(config) -> Estimate:
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    per_token = flops_per_token(base.n_layer, base.n_embd, config.window, 0) + 2 * base.n_embd * base.vocab_size
    flops = per_token * SCORED[config.scale]
    return Estimate(PRETRAINING.estimate(base).parameters, 0, flops, 2**30, flops / RATE[config.scale] / 2)


def draw(context):
    """The loss minus the lowest loss of the scale's baseline, by tokens of context in the window: a line per scale and
    model, the mean over seeds."""
    from repro.plotting import draw_curves

    lines = {}
    for scale in reversed(context.scales):
        curves = {}
        for config in context.plan(scale):
            found = [record.curves["loss_by_position"] for record in context.records_of(config)]
            if found:
                curves[config.model] = np.mean(found, 0)
        best = min((curve[:, 1].min() for model, curve in curves.items() if model == "baseline"), default=0.0)
        for model, curve in curves.items():
            name = scale if model == "baseline" else f"{scale}, recurrent"
            lines[name] = [[position, loss - best] for position, loss in curve.tolist()]
    return draw_curves(lines, labels=("tokens of context in the window", "loss above the baseline's lowest, nats per "
                                      "token"), log_x=True)


SCORED = {"smoke": 15_000, "small": 300_000, "pretrained": 51_000, "medium": 300_000, "paper": 300_000}  # tokens, about
EXPERIMENT = Experiment(
    name="context-use", paper="yoshida2020", summary="Loss of the fine-tuned baseline by position in the window.",
    config=Config, scales={
        "smoke": {"corpus": "synthetic-books", "window": 30}, "small": {"corpus": "wikitext-103"},
        "pretrained": {"corpus": "pg19-subset", "window": 64, "test_head": 1536}, "medium": {"corpus": "wikitext-103"},
        "paper": {"corpus": "wikitext-103-full"}},
    grid=lambda scale: [{"model": "baseline"}, {"model": "recurrent"}][:1 + (scale == "pretrained")],
    execute=execute, estimate=estimate, needs=lambda config: [tuned(config, config.model)])
register(EXPERIMENT, Artifact(
    id="context-use", paper="yoshida2020", title="Loss of the fine-tuned model by position in the window",
    chapter="06_wikitext103", experiment=EXPERIMENT.name, source=ADDED, kind="figure",
    look_for="Where a curve is flat, more context no longer helps the model, and a memory has nothing to replace.",
    build=draw))
