"""The state of a training run: its result, and everything needed to resume after a kill."""

import hashlib
import io
import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from repro.errors import ReproError
from repro.paths import write_atomic
from repro.training.batches import Batches
from repro.training.config import TrainConfig


@dataclass
class TrainResult:
    """Curves as [tokens seen, value] pairs, losses in nats per token; and the number of tokens at the end of training.

    >>> TrainResult(curves={"train": [[8, 2.3], [16, 2.1]]}, tokens=16).curves["train"][-1]
    [16, 2.1]
    """

    curves: dict[str, list[list[float]]] = field(default_factory=lambda: {"train_loss": [], "validation_loss": []})
    best: dict[str, float] = field(default_factory=dict)  # all metrics of the validation whose weights were kept
    tokens: int = 0
    steps: int = 0
    stopped_early: bool = False

    @property
    def best_loss(self) -> float:
        """The validation loss of the weights that were kept; infinite without a validation."""
        return self.best.get("loss", math.inf)


class State:
    """Everything that a killed training run needs to resume: weights, optimizers, position, random states, curves.

    folder: the folder of the checkpoint; None: no checkpoint is written.
    """

    def __init__(self, objective: nn.Module, optimizers: list[Optimizer], config: TrainConfig, batches: Batches,
                 folder: Path | None, scaler: torch.amp.GradScaler):
        self.scaler = scaler  # scales the loss; only active in half precision
        self.objective, self.optimizers, self.config, self.batches = objective, optimizers, config, batches
        self.folder = folder
        self.pending: list[float] = []  # training losses not yet in a curve
        self.kept: dict | None = None  # the best weights
        self.validations_since_best = 0
        self.fingerprint = fingerprint(objective, config, batches) if folder else None

    def judge(self, result: TrainResult, found: float | Mapping[str, float]) -> None:
        """Store the result of a validation; keep the weights if they are the best; return whether to stop early."""
        metrics = {k: float(x) for k, x in (found if isinstance(found, Mapping) else {"loss": found}).items()}
        name = self.config.best
        if name not in metrics:
            raise ReproError(f"best is '{name}', which validate does not return; it returns "
                             f"{', '.join(metrics) or 'nothing'}. Let it also return '{name}', or choose another.")
        for metric, value in metrics.items():
            if not math.isfinite(value):
                raise ReproError(f"the validation {metric} is {value} after {result.tokens:,} {self.batches.unit}; "
                                 "lower the learning rate.")
            result.curves.setdefault(f"validation_{metric}", []).append([result.tokens, value])
        if not result.best or self.config.better(metrics[name], result.best[name]):
            result.best, self.validations_since_best = metrics, 0
            self.kept = {name: x.detach().cpu().clone() for name, x in self.objective.state_dict().items()}
        else:
            self.validations_since_best += 1
        result.stopped_early = bool(self.config.patience) and self.validations_since_best >= self.config.patience

    def restore_best(self) -> None:
        """Load the kept weights into the objective, if there was a validation."""
        if self.kept is not None:
            self.objective.load_state_dict(self.kept)

    def save(self, result: TrainResult) -> None:
        """Write the checkpoint completely or not at all."""
        if self.folder is None:
            return
        buffer = io.BytesIO()
        numpy_state = np.random.get_state()
        torch.save({"fingerprint": self.fingerprint, "objective": self.objective.state_dict(), "kept": self.kept,
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                    "scaler": self.scaler.state_dict(), "result": asdict(result), "pending": self.pending,
                    "validations_since_best": self.validations_since_best, "torch": torch.get_rng_state(),
                    "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
                    "python": random.getstate(), "numpy": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:])},
                   buffer)
        write_atomic(self.folder / "checkpoint.pt", buffer.getvalue())

    def load(self) -> TrainResult | None:
        """Load the checkpoint in the folder, if there is one."""
        path = self.folder / "checkpoint.pt" if self.folder else None
        for unfinished in self.folder.glob(".checkpoint.pt.*") if self.folder else ():
            unfinished.unlink(missing_ok=True)  # left by a kill during a write
        if path is None or not path.exists():
            return None
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise ReproError(f"the checkpoint {path} cannot be read ({type(error).__name__}); delete it to train "
                             "from the start.") from error
        if not isinstance(saved, dict) or saved.get("fingerprint") != self.fingerprint:
            raise ReproError(f"the checkpoint {path} belongs to another configuration (settings, text or model "
                             "differ); delete it or choose another folder.")
        self.objective.load_state_dict(saved["objective"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        if saved.get("scaler"):  # absent in a full-precision checkpoint
            self.scaler.load_state_dict(saved["scaler"])
        self.kept, self.pending = saved["kept"], saved["pending"]
        self.validations_since_best = saved["validations_since_best"]
        torch.set_rng_state(saved["torch"])
        if saved["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(saved["cuda"])
        random.setstate(saved["python"])
        np.random.set_state(saved["numpy"])
        return TrainResult(**saved["result"])


def fingerprint(objective: nn.Module, config: TrainConfig, batches: Batches) -> str:
    """The identity of a training run: the settings of config, objective and batches, and the starting weights."""
    idle = {"checkpoint_every", *["module_learning_rate"] * (config.module_learning_rate is None),
            *["decayed"] * (not config.spares_vectors)}  # no effect on the result
    described = {"training": {k: v for k, v in asdict(config).items() if k not in idle},
                 "objective": objective.settings(), "batches": batches.settings()}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, x in objective.state_dict().items():
        digest.update(f"{name} {tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
