"""Recomputation: what the backward pass computes again instead of storing, what that saves, and what fits on a GPU.

The states of a recurrent transformer pass from window to window through a bottleneck. If training keeps only what goes
through it and reads each window again in the backward pass, N tokens take M + 2k ceil(N/T) numbers. M is the memory of
one window, and k the size of z and of h_prev (Yoshida et al. 2020, section 3.2).
"""

import gc
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from repro.errors import ReproError, unknown

RECOMPUTE = ("none", "layer", "window", "window+layer")
HEADS = "summary", "classifier"  # prefixes of dropout settings for heads that a language model does not have


def recomputed(active: bool, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`; if `active`, only its arguments are kept and the backward pass calls it again.

    function: a module, or a method of one. Where that has dropout, the state of the random numbers is kept too, so
    that the second call draws the same; it takes 5 kB of host memory, more than z in a small model.
    """
    if not active or not torch.is_grad_enabled():
        return function(*args, **kwargs)
    module = getattr(function, "__self__", function)
    random = any(part.training and _dropped(part) > 0 for part in module.modules())
    leaves, form = tree_flatten((args, kwargs))

    def again(*leaves: Any) -> Any:  # tensors inside other arguments would be kept even where a whole window is
        args, kwargs = tree_unflatten(leaves, form)
        return function(*args, **kwargs)

    return checkpoint(again, *leaves, use_reentrant=False, preserve_rng_state=random)


def _dropped(part: nn.Module) -> float:
    """The largest share of numbers that a module itself may drop in training. Modules name it in many ways, such as `p`
    of a `Dropout` and `attention_dropout` of Llama's attention, or read it from their config, as Falcon's layers do."""
    named = {**getattr(getattr(part, "config", None), "__dict__", {}), **vars(part)}
    shares = [value for name, value in named.items() if "drop" in name and not name.startswith(HEADS)]
    shares += [part.p] if isinstance(part, nn.modules.dropout._DropoutNd) else []
    return max((float(share) for share in shares if isinstance(share, int | float)), default=0.0)


def training_step(model: nn.Module, ids: Tensor, window: int, recompute: str = "none",
                  precision: str = "no") -> Callable[..., None]:
    """A function that trains a `RecurrentLM` for one step on `ids` (B, N + 1), on their device, and leaves no
    gradients.

    precision: "no" or "bf16", as in `repro.training`. The function takes other `ids` and another `window` if given.
    """
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(ids: Tensor = ids, window: int = window) -> None:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(ids, window, labels=ids, recompute=recompute, return_logits=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def training_memory(model: nn.Module, ids: Tensor, window: int, recompute: str = "none", precision: str = "no") -> int:
    """Measured peak bytes of training: weights, gradients, Adam's moments, activations. The text is not counted.

    The arguments are those of `training_step`; the weights change. With the tensors of a `FakeTensorMode`, which have
    shapes but no numbers, the count is the same and takes neither the time nor the memory.
    """
    step = training_step(model.train(), ids, window, recompute, precision)

    def steps() -> None:
        step(ids[:, :3], window=1)  # from now on Adam's moments exist
        step()

    return sum(weight.nbytes for weight in model.parameters()) + peak_memory(steps, ids.device)


def peak_memory(step: Callable[[], Any], device: torch.device | str = "cpu", limit: float = inf) -> int | float:
    """Bytes of the tensors that `step()` makes, at the moment when they are most; what was there before is not counted.

    limit: on a CPU the bytes beyond which `step()` is broken off; then the peak is infinite. On a GPU the allocator is
    asked. On a CPU every tensor is counted from the operation that makes it until its memory is given back. Neither
    sees the autograd graph itself, small objects in host memory that grow with every operation, nor what an operation
    uses inside.
    """
    if torch.device(device).type == "cuda":
        gc.collect()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    try:
        with _Alive(limit) as alive:
            step()
    except _Beyond:
        return inf
    return alive.peak


class _Beyond(Exception):
    """There are more bytes than allowed."""


class _Alive(TorchDispatchMode):
    """Bytes of all storages that were made under this mode and are still there, each counted once."""

    def __init__(self, limit: float):
        super().__init__()
        self.bytes = self.peak = 0
        self.limit = limit

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        old = {id(storage) for storage in _storages((args, kwargs))}
        out = function(*args, **(kwargs or {}))
        for storage in {id(storage): storage for storage in _storages(out)}.values():
            if id(storage) not in old:  # else a view, or written in place
                self.bytes += storage.nbytes()
                weakref.finalize(storage, self._free, storage.nbytes()).atexit = False
        self.peak = max(self.peak, self.bytes)
        if self.peak > self.limit:
            raise _Beyond
        return out

    def _free(self, size: int) -> None:
        self.bytes -= size


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    return (value.untyped_storage() for value in tree_leaves(values) if isinstance(value, Tensor))


def flops(step: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products in `step()`, backward passes and recomputation included."""
    with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
        step()
    return counter.get_total_flops()


CPU_ATTENTION = {  # operations that torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward:
        lambda out, query, key, value, *_, **__: sdpa_backward_flop_count(out, query, key, value),
}


def paper_model(one_window: float, n_windows: int, d_model: int, batch_size: int = 1, bytes_each: int = 4) -> float:
    """M + 2k ceil(N/T) in bytes: one window's memory, plus z and h_prev of each window (Yoshida et al. 2020, section
    3.2).

    k is `d_model` numbers for every sequence of the batch; `n_windows` is ceil(N/T).
    """
    return one_window + 2 * d_model * batch_size * bytes_each * n_windows


@dataclass(frozen=True)
class Plan:
    """The memory that training a `RecurrentLM` will take: `peak` bytes of tensors, as `training_memory` measures them.

    n_parameters: all weights, the recurrence module's included. window: T in tokens. n_windows: ceil(N/T).
    precision: "no" or "bf16". device: "cuda" or "cpu"; under autocast the two keep different numbers.

    Raises ReproError for an unknown `recompute`, `precision` or `device` and for sizes below 1.
    """

    n_layer: int
    d_model: int
    vocab_size: int
    n_parameters: int
    window: int = 300
    n_windows: int = 20
    batch_size: int = 1
    recompute: str = "none"
    precision: str = "no"
    device: str = "cuda"
    activation: str = "gelu_new"  # GPT-2's, written out in several operations; any other is assumed to be one operation

    def __post_init__(self):
        for name, known in (("recompute", RECOMPUTE), ("precision", ("no", "bf16")), ("device", ("cuda", "cpu"))):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name in ("n_layer", "d_model", "vocab_size", "n_parameters", "window", "n_windows", "batch_size"):
            if getattr(self, name) < 1:
                raise ReproError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    @classmethod
    def of(cls, model: nn.Module, **settings: Any) -> "Plan":
        """The plan for a model, which may be on the device "meta"; settings are the other fields."""
        config = model.config
        n_parameters = sum(weight.numel() for weight in model.parameters())
        return cls(config.n_layer, config.n_embd, config.vocab_size, n_parameters,
                   activation=config.activation_function, **settings)

    @property
    def block(self) -> int:
        """Bytes that autograd keeps of one block for one window.

        In numbers per token: 2 d for the inputs of the layer norms and 2 d for their outputs, 4 d for query (once more,
        padded), key and value, and d for what attention returns. The feedforward part adds 20 d, as its GELU is written
        out; as one operation it spares 12 d. Sums over a row (layer norm, softmax) are left out; dropout would add its
        masks. Under autocast all but the layer norms' inputs take 2 bytes; on a GPU, which cubes in single precision,
        three of the five parts of the GELU take 4.
        """
        written_out = self.activation == "gelu_new"
        numbers = 17 + 12 * written_out
        each = {("no", "cpu"): 4 * numbers, ("no", "cuda"): 4 * numbers, ("bf16", "cpu"): 8 + 2 * (numbers - 2),
                ("bf16", "cuda"): 8 + 2 * (numbers - 2) + 2 * 12 * written_out}[self.precision, self.device]
        return each * self.batch_size * self.window * self.d_model

    @property
    def peak(self) -> int:
        """Bytes at the peak: weights, Adam's two moments, gradients, what is kept of every window, and the work."""
        tokens, single = self.batch_size * self.window, self.precision == "no"
        weights, embedding = 4 * self.n_parameters, 4 * self.vocab_size * self.d_model
        state, logits = 4 * tokens * self.d_model, 4 * tokens * self.vocab_size
        scoring = max(3 * logits, 2 * embedding)  # log-probabilities and two gradients; or adding up the weights' own
        through = (40 if single else 20) * tokens * self.d_model  # gradients on their way through a block
        if "layer" in self.recompute:
            inside = (self.n_layer + 2) * state  # inputs of the blocks, of the last layer norm, of the output layer
            kept, work = inside, max(scoring, self.block + through)
            copies = 0 if single else embedding // 2  # autocast's bf16 weights, while they are needed
        else:
            inside = self.n_layer * self.block + 2 * state
            kept, work = inside + logits, max(scoring, through)
            copies = 0 if single else weights // 2
        if "window" in self.recompute:
            kept = 4 * self.batch_size * self.d_model  # z
        one = inside + work + copies  # the window that the backward pass is in
        last = (self.n_windows - 1) * kept + one  # there are no gradients of the weights yet
        others = weights + max((self.n_windows - 2) * kept + one if self.n_windows > 1 else 0, 2 * embedding)
        return 3 * weights + max(last, others)

    def most_windows(self, memory: float) -> int:
        """The largest number of windows whose peak fits into `memory` bytes with the text itself; 0 if none does."""
        text = 8 * self.batch_size * self.window
        return bisect_right(range(1, 10**9), memory, key=lambda n: replace(self, n_windows=n).peak + n * text)
