"""A training loop that reads top to bottom, survives a kill at any moment and ends in the same numbers."""

import hashlib
import io
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from repro.errors import ReproError, unknown
from repro.paths import write_atomic
from repro.processes import first, join
from repro.training.sequences import Sequences

DECAYS = ("none", "linear")
PRECISIONS = ("no", "bf16")


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Tokens are targets over all processes; steps are optimiser steps."""

    tokens: int  # stop after this many targets
    learning_rate: float
    warmup_steps: int = 100  # linear, from 0
    decay: str = "none"  # after the warm-up: "none" (constant) or "linear" (to 0 at the end)
    weight_decay: float = 0.0
    clip: float = 1.0  # largest gradient norm
    validate_every: int = 2_000_000  # tokens
    patience: int | None = None  # validations without improvement before stopping early; None never stops
    checkpoint_every: int = 60  # seconds between checkpoints; one more is written at each validation
    precision: str = "no"  # "no" (fp32) or "bf16"
    seed: int = 0

    def __post_init__(self):
        if self.decay not in DECAYS:
            raise unknown("decay", self.decay, DECAYS)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        for name, low in (("tokens", 1), ("validate_every", 1), ("warmup_steps", 0), ("patience", 1)):
            if getattr(self, name) is not None and getattr(self, name) < low:
                raise ReproError(f"{name} is {getattr(self, name)}; it must be at least {low}.")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ReproError(f"{name} is {getattr(self, name)}; it must be above 0.")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of optimiser step `step` (from 0) out of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, (steps - step) / max(1, steps - self.warmup_steps))


@dataclass
class TrainResult:
    """Curves as [tokens seen, nats per token] pairs, and where the training ended."""

    curves: dict[str, list[list[float]]] = field(default_factory=lambda: {"train_loss": [], "validation_loss": []})
    best_loss: float = math.inf
    tokens: int = 0
    steps: int = 0
    stopped_early: bool = False


def train(objective: nn.Module, sequences: Sequences, config: TrainConfig, folder: Path | str | None = None,
          validate: Callable[[nn.Module], float] | None = None, progress=None,
          device: str | None = None, watch: Callable[[nn.Module], dict[str, float]] | None = None) -> TrainResult:
    """Train `objective` (a module from a batch of tokens to its mean loss) in place and return the curves.

    sequences: batches for all processes together; each process takes its share of every batch.
    validate: from the unwrapped objective to a loss in nats per token, called every `validate_every` tokens and at
    the end; the weights with the lowest one are the ones left in the objective.
    folder: checkpoints go there; a training found there is continued, a finished one is returned at once.
    watch: from the unwrapped objective to named numbers, which become curves beside the training loss.
    progress: an object with `advance(n, **info)`, told of every step. device: "cpu" to stay off a GPU that is there.

    Works on a CPU, on one GPU, and under `torchrun` on several. Raises ReproError for a loss that is not finite, a
    checkpoint of another configuration or that not every process sees, or a batch that does not divide among them.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import AcceleratorState

    join(cpu=device == "cpu")
    AcceleratorState._reset_state()  # an earlier training in this process may have used another precision
    same_every_step = DistributedDataParallelKwargs(static_graph=True)  # allows weights that never get a gradient
    accelerator = Accelerator(mixed_precision=config.precision, cpu=device == "cpu", kwargs_handlers=[same_every_step])
    share, rest = divmod(sequences.batch_size, accelerator.num_processes)
    if rest:
        raise ReproError(f"a batch of {sequences.batch_size} sequences does not divide among "
                         f"{accelerator.num_processes} processes; choose a multiple.")
    mine = slice(accelerator.process_index * share, (accelerator.process_index + 1) * share)
    steps = math.ceil(config.tokens / sequences.tokens_per_batch)
    torch.manual_seed(config.seed)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay,
                                  fused=True)
    wrapped, optimizer = accelerator.prepare(objective, optimizer)
    state = _State(objective, optimizer, config, sequences, Path(folder) if folder else None)
    result = state.load() or TrainResult()
    if result.steps != (theirs := first(lambda: result.steps)):
        raise ReproError(f"the first process goes on after step {theirs}, this one after step {result.steps}: {folder} "
                         "has to be on a disk that all nodes share.")
    if progress is not None and result.tokens:
        progress.advance(result.tokens)
    wrapped.train()
    saved = time.monotonic()
    while result.steps < steps and not result.stopped_early:
        rate = config.rate(result.steps, steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = sequences.batch(result.steps)[mine].to(accelerator.device)
        loss = wrapped(batch)
        accelerator.backward(loss)
        norm = float(accelerator.clip_grad_norm_(objective.parameters(), config.clip))
        value = accelerator.reduce(loss.detach(), "mean").item()
        if not math.isfinite(value) or not math.isfinite(norm):
            raise ReproError(f"the training loss is {value} and its gradient norm {norm} at step {result.steps + 1} "
                             f"(learning rate {rate:.2e}); lower the learning rate or lengthen the warm-up.")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        before, result.steps = result.tokens, result.steps + 1
        result.tokens += sequences.tokens_per_batch
        state.pending.append(value)
        last = result.steps == steps
        due = result.tokens // config.validate_every > before // config.validate_every or last
        if due or len(state.pending) == 20:
            result.curves["train_loss"].append([result.tokens, sum(state.pending) / len(state.pending)])
            state.pending.clear()
            for name, watched in (watch(objective) if watch else {}).items():
                result.curves.setdefault(name, []).append([result.tokens, watched])
        if due and validate is not None:
            wrapped.eval()
            state.judge(result, first(lambda: validate(objective)))
            wrapped.train()
        if accelerator.is_main_process and (due or time.monotonic() - saved > config.checkpoint_every):
            state.save(result)
            saved = time.monotonic()
        if progress is not None:
            progress.advance(sequences.tokens_per_batch, loss=round(value, 3))
    state.restore_best()
    objective.eval()
    return result


class _State:
    """Everything a killed training needs to go on: weights, optimiser, position, random states, curves."""

    def __init__(self, objective, optimizer, config, sequences, folder):
        self.objective, self.optimizer, self.config, self.folder = objective, optimizer, config, folder
        self.pending: list[float] = []
        self.best: dict | None = None
        self.validations_since_best = 0
        described = {k: v for k, v in asdict(config).items() if k != "checkpoint_every"} | {
            "length": sequences.length, "batch_size": sequences.batch_size, "order": sequences.seed,
            "window": getattr(objective, "window", None), "overlap": getattr(objective, "overlap", None),
            "truncate": getattr(objective, "truncate", None),
            "model": _settings(objective)}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
        digest.update(np.ascontiguousarray(sequences.tokens).tobytes())
        for name, x in objective.state_dict().items():  # the weights training starts from
            digest.update(f"{name} {tuple(x.shape)}".encode())
            digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        self.fingerprint = digest.hexdigest()

    def judge(self, result: TrainResult, loss: float) -> None:
        """Note a validation loss; keep the weights if it is the lowest; say whether to stop early."""
        if not math.isfinite(loss):
            raise ReproError(f"the validation loss is {loss} after {result.tokens:,} tokens; lower the learning rate.")
        result.curves["validation_loss"].append([result.tokens, loss])
        if loss < result.best_loss:
            result.best_loss, self.validations_since_best = loss, 0
            self.best = {name: x.detach().cpu().clone() for name, x in self.objective.state_dict().items()}
        else:
            self.validations_since_best += 1
        result.stopped_early = bool(self.config.patience) and self.validations_since_best >= self.config.patience

    def restore_best(self) -> None:
        if self.best is not None:
            self.objective.load_state_dict(self.best)

    def save(self, result: TrainResult) -> None:
        """Write the checkpoint whole or not at all."""
        if self.folder is None:
            return
        buffer = io.BytesIO()
        numpy_state = np.random.get_state()
        torch.save({"fingerprint": self.fingerprint, "objective": self.objective.state_dict(), "best": self.best,
                    "optimizer": self.optimizer.state_dict(), "result": asdict(result), "pending": self.pending,
                    "validations_since_best": self.validations_since_best, "torch": torch.get_rng_state(),
                    "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
                    "python": random.getstate(), "numpy": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:])},
                   buffer)
        write_atomic(self.folder / "checkpoint.pt", buffer.getvalue())

    def load(self) -> TrainResult | None:
        """Go back to the checkpoint in the folder, if there is one."""
        path = self.folder / "checkpoint.pt" if self.folder else None
        for unfinished in self.folder.glob(".checkpoint.pt.*") if self.folder else ():
            unfinished.unlink(missing_ok=True)  # what a kill in the middle of a write left
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
        self.optimizer.load_state_dict(saved["optimizer"])
        self.best, self.pending = saved["best"], saved["pending"]
        self.validations_since_best = saved["validations_since_best"]
        torch.set_rng_state(saved["torch"])
        if saved["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(saved["cuda"])
        random.setstate(saved["python"])
        np.random.set_state(saved["numpy"])
        return TrainResult(**saved["result"])


def _settings(objective: nn.Module) -> dict:
    """What the model's config says of how it computes, without where it was loaded from."""
    config = getattr(getattr(objective, "model", None), "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    return {k: v for k, v in settings.items() if k not in ("_name_or_path", "transformers_version", "architectures")}
