"""Training settings: every choice that does not belong to the model or the text."""

import math
from typing import Literal

from repro.configs import Above, Natural, NotNegative, Positive, config


@config
class TrainConfig:
    """Training settings. Tokens are targets in all processes, or units of the batches (`Batches.unit`); steps are
    optimizer steps. Raises ReproError for an unknown choice or a number out of range.

    >>> TrainConfig(tokens=1_000, learning_rate=1e-3, optimizer="muon").precision
    'no'
    >>> TrainConfig(tokens=1_000, learning_rate=1e-3, optimizer="sgd")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: unknown optimizer 'sgd'. Known: adamw, muon.
    """

    tokens: Positive  # stop after this many targets
    learning_rate: Above
    warmup_steps: Natural = 100  # linear, from 0
    decay: Literal["none", "linear", "cosine", "cubic"] = "none"  # after warm-up: constant, or decay to 0 at the end
    weight_decay: NotNegative = 0.0
    clip: Above = 1.0  # largest gradient norm
    validate_every: Positive = 2_000_000  # tokens
    patience: Positive | None = None  # validations without improvement before stopping early; None never stops
    checkpoint_every: NotNegative = 60  # seconds between checkpoints; each validation also writes one
    precision: Literal["no", "bf16", "fp16"] = "no"  # "no": fp32; "fp16" scales the loss against vanishing gradients
    seed: Natural = 0
    optimizer: Literal["adamw", "muon"] = "adamw"  # "muon": for the matrices of the blocks, AdamW for the rest
    best: str = "loss"  # the validation metric that selects the weights to keep, also for patience
    best_is: Literal["lowest", "highest"] = "lowest"  # which direction is better
    module_learning_rate: Above | None = None  # for the part that the objective's model adds; None: `learning_rate`
    decayed: Literal["matrices", "all"] = "matrices"  # weight decay applies to: matrices and embeddings, or all weights

    @property
    def spares_vectors(self) -> bool:
        """Whether weight decay applies to some weights and not to others."""
        return self.decayed == "matrices" and self.weight_decay != 0

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of optimizer step `step` (from 0) out of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.decay == "none":
            return self.learning_rate
        left = max(0.0, (steps - step) / max(1, steps - self.warmup_steps))
        shapes = {"linear": left, "cubic": left**3, "cosine": (1 - math.cos(math.pi * left)) / 2}
        return self.learning_rate * shapes[self.decay]

    def better(self, new: float, old: float) -> bool:
        """Whether a value of the metric `best` is an improvement."""
        return new < old if self.best_is == "lowest" else new > old
