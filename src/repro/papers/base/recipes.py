"""Which optimizer and learning rate make the most progress in a short part of the base model's training. Not in the
papers.

Each row trains the model of `gpt2_mini` on two million tokens of its own text, in short sequences and with the same
seed, and scores the same held-out text. Short trainings favor high rates, so of similar rates the long training uses
the lower one.
"""

from statistics import fmean

from repro.papers.base import gpt2_mini
from repro.papers.base.pretraining import stages
from repro.study import ADDED, Artifact, Experiment, register
from repro.study.artifacts import NOT_RUN

SHORT = {  # differences from the base model's training at the same scale
    "smoke": {"tokens": 40_000, "validate_every": 40_000},
    "small": {"tokens": 2_000_000, "sequence": 256, "batch_size": 16, "growing": (), "warmup_steps": 50,
              "validate_every": 500_000, "weights": "fp32"}}
RATES = {"smoke": {"muon": (2e-2,), "adamw": (2e-2,)},
         "small": {"muon": (3e-3, 6e-3), "adamw": (1e-3, 3e-3)}}


def grid(scale: str) -> list[dict]:
    """A row for each optimizer and each of its rates."""
    return [{"optimizer": name, "learning_rate": rate} for name, rates in RATES[scale].items() for rate in rates]


EXPERIMENT = Experiment(
    name="choose-recipe", paper="yoshida2020",
    summary="Short trials of optimizers and learning rates for the base model.",
    config=gpt2_mini.Config, scales={scale: gpt2_mini.SCALES[scale] | SHORT[scale] for scale in SHORT}, grid=grid,
    execute=gpt2_mini.execute, estimate=gpt2_mini.estimate, reads=lambda config: config.tokeniser_corpora)
TAKEN = "chosen for the base model"


def table(context):
    """A row for each recipe: its tokens and the loss on held-out text; the base model's recipe is marked."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        base = gpt2_mini.EXPERIMENT.plan(scale)[0]
        for config in context.plan(scale):
            losses = [record.metrics["validation_token_loss"] for record in context.records_of(config)]
            length, sequences, _ = stages(config)[-1]
            own = (config.optimizer, config.learning_rate) == (base.optimizer, base.learning_rate)
            rows.append({"scale": scale, "optimizer": config.optimizer, "learning rate": f"{config.learning_rate:g}",
                         "tokens": f"{config.tokens:,}", "batch": f"{sequences} x {length}",
                         "nats per token": f"{fmean(losses):.3f}" if losses else NOT_RUN,
                         "": TAKEN if own else ""})
    return pandas.DataFrame(rows)


register(EXPERIMENT, Artifact(
    id="base-recipes", paper="yoshida2020", title="Optimizers and learning rates on a small part of the text",
    chapter="02_corpora_and_base_models", experiment=EXPERIMENT.name, source=ADDED, build=table))
