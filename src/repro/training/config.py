"""How to train: every choice that is not the model's or the text's."""

import math
from dataclasses import dataclass

from repro.errors import ReproError, unknown

CHOICES = {"decay": ("none", "linear", "cosine", "cubic"), "precision": ("no", "bf16", "fp16"),
           "optimizer": ("adamw", "muon"), "best_is": ("lowest", "highest"), "decayed": ("matrices", "all")}


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Tokens are targets over all processes, or what else the batches count in (`Batches.unit`); steps
    are optimiser steps. Raises ReproError for a choice that there is not and a number out of range.

    >>> TrainConfig(tokens=1_000, learning_rate=1e-3, optimizer="muon").precision
    'no'
    >>> TrainConfig(tokens=1_000, learning_rate=1e-3, optimizer="sgd")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: unknown optimizer 'sgd'. Known: adamw, muon.
    """

    tokens: int  # stop after this many targets
    learning_rate: float
    warmup_steps: int = 100  # linear, from 0
    decay: str = "none"  # after the warm-up: "none" (constant), or to 0 at the end: "linear", "cosine", "cubic"
    weight_decay: float = 0.0
    clip: float = 1.0  # largest gradient norm
    validate_every: int = 2_000_000  # tokens
    patience: int | None = None  # validations without improvement before stopping early; None never stops
    checkpoint_every: int = 60  # seconds between checkpoints; one more is written at each validation
    precision: str = "no"  # "no" (fp32), "bf16", or "fp16" with a loss that is scaled so that gradients do not vanish
    seed: int = 0
    optimizer: str = "adamw"  # "adamw", or "muon" for the matrices of the blocks with AdamW for all other weights
    best: str = "loss"  # the metric of a validation that chooses the weights to keep, and patience looks at
    best_is: str = "lowest"  # its best value: "lowest" or "highest"
    module_learning_rate: float | None = None  # of the part that the objective's model adds; None: `learning_rate`
    decayed: str = "matrices"  # what weight decay applies to: "matrices" and embeddings, or "all" weights

    def __post_init__(self):
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name, low in (("tokens", 1), ("validate_every", 1), ("warmup_steps", 0), ("patience", 1)):
            if getattr(self, name) is not None and getattr(self, name) < low:
                raise ReproError(f"{name} is {getattr(self, name)}; it must be at least {low}.")
        for name in ("learning_rate", "clip", "module_learning_rate"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ReproError(f"{name} is {getattr(self, name)}; it must be above 0.")

    @property
    def spares_vectors(self) -> bool:
        """Whether weight decay changes some weights and not others."""
        return self.decayed == "matrices" and self.weight_decay != 0

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of optimiser step `step` (from 0) out of `steps`."""
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
