"""How far back a fine-tuned baseline looks: its loss by position in the window. Not in the paper.

h_prev replaces tokens before the window. The higher loss at the start of a window bounds what it can gain.
"""

from pydantic import Field, model_validator

from repro.evaluation.positions import by_position, stretches
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import tokeniser_of
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING
from repro.study import ADDED, Artifact, Estimate, Experiment, Outcome, RunConfig, register


class Config(RunConfig):
    """Disjoint windows of the test text."""

    window: int = Field(300, ge=2)

    @model_validator(mode="after")
    def _fits(self):
        context = PRETRAINING.plan(self.scale)[0].n_positions
        if self.window > context:
            raise ValueError(f"window is {self.window} tokens, but the model's context ends at {context}")
        return self


def baseline(config) -> RunConfig:
    """The fine-tuned baseline whose losses are measured."""
    return next(run for run in FINETUNING.plan(config.scale) if run.model == "baseline")


def by_stretch(target_nll, window: int) -> list[list[float]]:
    """[tokens of context, mean loss in nats] over stretches that double. target_nll: (N,) of disjoint windows."""
    mean = by_position(target_nll, window)
    return [[(first + last + 1) / 2, float(mean[first:last].mean())] for first, last in stretches(window)]


def execute(config, context) -> Outcome:
    from repro.data import tokens
    from repro.evaluation import score_documents
    from repro.models import load_causal_lm

    _, folder = context.need(baseline(config))
    text = tokens(config.corpus, "test", tokeniser_of(PRETRAINING.plan(config.scale)[0]))
    score, _ = score_documents(load_causal_lm(folder / "model"), text, config.window, 0)
    curve = by_stretch(score.target_nll, config.window)
    losses = [loss for _, loss in curve]
    return Outcome({"context_gain": losses[0] - min(losses)}, {"context_gain": "nats per token"}, "baseline",
                   {"loss_by_position": curve})


def estimate(config) -> Estimate:
    return Estimate(PRETRAINING.estimate(PRETRAINING.plan(config.scale)[0]).parameters, 0, 1e12, 2**30, 60.0)


def draw(context):
    """The loss above a model's lowest, by tokens of context in the window: a line per scale."""
    from repro.plotting import draw_curves

    lines = {}
    for scale in reversed(context.scales):
        for record in context.records(scale):
            curve = record.curves["loss_by_position"]
            best = min(loss for _, loss in curve)
            lines[scale] = [[position, loss - best] for position, loss in curve]
    return draw_curves(lines, labels=("tokens of context in the window", "loss above the lowest, nats per token"),
                       log_x=True)


EXPERIMENT = Experiment(
    name="context-use", paper="yoshida2020", summary="Loss of the fine-tuned baseline by position in the window.",
    config=Config, scales={"smoke": {"corpus": "synthetic-books", "window": 30}, "small": {"corpus": "wikitext-103"},
                           "medium": {"corpus": "wikitext-103"}, "paper": {"corpus": "wikitext-103-full"}},
    execute=execute, estimate=estimate, needs=lambda config: [baseline(config)])
register(EXPERIMENT, Artifact(
    id="context-use", paper="yoshida2020", title="Loss of the fine-tuned baseline by position in the window",
    chapter="06_wikitext103", experiment=EXPERIMENT.name, source=ADDED, kind="figure",
    look_for="Where a curve is flat, more context no longer helps the model, and a memory has nothing to replace.",
    build=draw))
