"""A training loop that reads from top to bottom. After a kill at any moment, it resumes with identical results."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from repro.bf16 import bf16_products
from repro.checked import checked
from repro.errors import ReproError, check_method
from repro.ids import evaluating
from repro.processes import first, join
from repro.training.batches import Batches, share
from repro.training.config import TrainConfig
from repro.training.optimizer import optimizers
from repro.training.state import State, TrainResult


@checked
def train(objective: nn.Module, batches: Batches, config: TrainConfig, folder: Path | str | None = None,
          validate: Callable[[nn.Module], float | Mapping[str, float]] | None = None, progress=None,
          device: str | None = None, watch: Callable[[nn.Module], dict[str, float]] | None = None) -> TrainResult:
    """Train `objective` (a module that maps a batch to its mean loss, with `settings()`) in place; return the curves.

    batches: for all processes together; each process takes its share of the rows of every batch. All shares have equal
    weight, so the objective should be a mean over examples, or over targets if every example has the same number.
    validate: maps the unwrapped objective to a loss in nats per token or to named metrics, called every
    `validate_every` tokens and at the end; the objective ends with the weights that have the best `config.best`.
    folder: for checkpoints; a training run found there is continued, a finished one is returned at once.
    watch: maps the unwrapped objective to named numbers, which become additional curves.
    progress: an object with `advance(n, **info)`, called at every step; if its `time_is_up` is true, a checkpoint is
    written first. device: "cpu" to ignore an available GPU.

    Works on a CPU, on one GPU, and under `torchrun` on several. Raises ReproError for an objective without
    `settings()`, a loss or metric that is not finite, and a metric that is not returned. Raises it also for a
    checkpoint that has another configuration or that not every process sees, and a batch that does not divide among
    the processes.

    >>> import numpy as np
    >>> from repro.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=9, n_positions=16, n_layer=1, n_embd=16, n_head=2))
    >>> text = Sequences(np.arange(500) % 9, length=8, batch_size=8)  # each token determines the next
    >>> result = train(NextToken(model), text, TrainConfig(tokens=6_400, learning_rate=1e-2, warmup_steps=5))
    >>> (first, before), *_, (last, after) = result.curves["train_loss"]
    >>> last, after < before / 2
    (6400, True)
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import AcceleratorState

    if not callable(getattr(objective, "settings", None)):
        raise ReproError(f"the objective {type(objective).__name__} has no settings(), which identify its checkpoints; "
                         "add a method that returns a dict of everything that determines its loss.")
    if progress is not None:
        check_method(progress, "progress", "advance", "a progress bar of this study")
    join(cpu=device == "cpu")
    AcceleratorState._reset_state()  # an earlier training in this process may have used another precision
    same_every_step = DistributedDataParallelKwargs(static_graph=True)  # allows weights that never get a gradient
    half = config.precision == "fp16"  # scale here, because accelerate does not on a CPU
    accelerator = Accelerator(mixed_precision="no" if half else config.precision, cpu=device == "cpu",
                              kwargs_handlers=[same_every_step])
    if batches.batch_size % accelerator.num_processes:
        raise ReproError(f"a batch of {batches.batch_size} examples does not divide among "
                         f"{accelerator.num_processes} processes; choose a multiple.")
    steps = math.ceil(config.tokens / batches.units_per_batch)
    torch.manual_seed(config.seed)
    wrapped, *stepping = accelerator.prepare(objective, *optimizers(objective, config))
    scaler = torch.amp.GradScaler(accelerator.device.type, enabled=half)
    state = State(objective, stepping, config, batches, Path(folder) if folder else None, scaler)
    result = state.load() or TrainResult()
    if result.steps != (theirs := first(lambda: result.steps)):
        raise ReproError(f"the first process continues after step {theirs}, but this one after step {result.steps}; "
                         f"put {folder} on a disk that all nodes share.")
    if progress is not None and result.tokens:
        progress.advance(result.tokens)
    wrapped.train()
    saved = time.monotonic()
    with bf16_products(accelerator.device, config.precision == "bf16" or config.optimizer == "muon"):
        while result.steps < steps and not result.stopped_early:
            rate = config.rate(result.steps, steps)
            for optimizer in stepping:
                for group in optimizer.param_groups:
                    group["lr"] = rate * group.get("times", 1.0)
            with torch.autocast(accelerator.device.type, torch.float16, enabled=half):
                loss = wrapped(share(batches.batch(result.steps), batches.batch_size, accelerator.process_index,
                                     accelerator.num_processes, accelerator.device))
            accelerator.backward(scaler.scale(loss))
            for optimizer in stepping:
                scaler.unscale_(optimizer)
            norm = float(accelerator.clip_grad_norm_(objective.parameters(), config.clip))
            value = accelerator.reduce(loss.detach(), "mean").item()
            overflow = half and not math.isfinite(norm) and scaler.get_scale() > 1  # skip the step and halve the scale
            if not math.isfinite(value) or not (math.isfinite(norm) or overflow):
                raise ReproError(f"the training loss is {value} and its gradient norm {norm} at step "
                                 f"{result.steps + 1} (learning rate {rate:.2e}); lower the learning rate or lengthen "
                                 "the warm-up.")
            for optimizer in stepping:
                if not overflow:  # otherwise a process with finite gradients would step alone
                    scaler.step(optimizer)
                optimizer.zero_grad(set_to_none=True)
            scaler.update()
            before, result.steps = result.tokens, result.steps + 1
            result.tokens += batches.units_per_batch
            state.pending.append(value)
            last = result.steps == steps
            due = result.tokens // config.validate_every > before // config.validate_every or last
            if due or len(state.pending) == 20:
                result.curves["train_loss"].append([result.tokens, sum(state.pending) / len(state.pending)])
                state.pending.clear()
                for name, watched in (watch(objective) if watch else {}).items():
                    result.curves.setdefault(name, []).append([result.tokens, watched])
            if due and validate is not None:
                with evaluating(wrapped):
                    state.judge(result, first(lambda: validate(objective)))
            due |= time.monotonic() - saved > config.checkpoint_every or getattr(progress, "time_is_up", False)
            if accelerator.is_main_process and due:
                state.save(result)
                saved = time.monotonic()
            if progress is not None:
                progress.advance(batches.units_per_batch, loss=round(value, 3))
    state.restore_best()
    objective.eval()
    return result
