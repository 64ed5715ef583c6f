"""Attention and the check of its mask as custom operations of a compiled graph, which themselves run uncompiled."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from repro.attention.patterns import Pattern
from repro.attention.position_mask import attend_at
from repro.errors import ReproError

PATTERNS: list[Pattern | tuple[Pattern, ...]] = []  # a graph refers to a pattern by its index here
HIDDEN = 1000  # a mask subtracts at least this from the score of a hidden key; anything less is a bias


def number(pattern: Pattern | list[Pattern]) -> int:
    """The index in PATTERNS of a pattern, or of a list with one for each head."""
    pattern = tuple(pattern) if isinstance(pattern, list) else pattern
    if pattern not in PATTERNS:
        PATTERNS.append(pattern)
    return PATTERNS.index(pattern)


def _computed(query, key, value, where, pattern, scale, dropout, seed) -> Tensor:
    pattern = PATTERNS[pattern]
    pattern = list(pattern) if isinstance(pattern, tuple) else pattern
    devices = [query.device] if query.is_cuda else []
    with torch.random.fork_rng(devices, enabled=dropout > 0):
        if dropout:
            torch.manual_seed(int(seed))
        return attend_at(query, key, value, pattern, where, scale, dropout)


@torch.library.custom_op("repro::attend", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def attend_in_graph(query: Tensor, key: Tensor, value: Tensor, where: Tensor | None, pattern: int, scale: float | None,
                    dropout: float, seed: Tensor) -> Tensor:
    """`attend_at` with the pattern of this number. seed: for dropout, drawn outside the operation. The backward pass
    recomputes the attention."""
    return _computed(query, key, value, where, pattern, scale, dropout, seed).contiguous()


@torch.library.custom_op("repro::attend_backward", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def _backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, where: Tensor | None, pattern: int,
              scale: float | None, dropout: float, seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    stream = torch.cuda.current_stream(query.device) if query.is_cuda else None

    def gradients():
        with torch.enable_grad(), torch.cuda.stream(stream):
            x = [part.detach().requires_grad_() for part in (query, key, value)]
            out = _computed(*x, where, pattern, scale, dropout, seed)
            to_query, to_key, to_value = (part.contiguous() for part in torch.autograd.grad(out, x, grad))
        return to_query, to_key, to_value

    with ThreadPoolExecutor(1) as thread:  # PyTorch records no gradients in the thread of an operation
        return thread.submit(gradients).result()


@attend_in_graph.register_fake
def _(query, key, value, where, pattern, scale, dropout, seed):
    return query.new_empty(*query.shape[:3], value.shape[3])


@_backward.register_fake
def _(grad, query, key, value, where, pattern, scale, dropout, seed):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value))


def _keep(ctx, inputs, output):
    query, key, value, where, ctx.pattern, ctx.scale, ctx.dropout, seed = inputs
    ctx.save_for_backward(query, key, value, where, seed)


def _gradients(ctx, grad):
    query, key, value, where, seed = ctx.saved_tensors
    found = _backward(grad, query, key, value, where, ctx.pattern, ctx.scale, ctx.dropout, seed)
    return *found, None, None, None, None, None


attend_in_graph.register_autograd(_gradients, setup_context=_keep)


@torch.library.custom_op("repro::real_keys", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def real_keys(mask: Tensor, module: str, name: str) -> Tensor:
    """Where an additive attention mask is 0. Raises ReproError for a mask that also contains biases.

    module, name: the layer and its `attn_implementation`, for the message.
    """
    if ((mask != 0) & (mask > -HIDDEN)).any():
        raise ReproError(f"{module} adds a bias per key to its scores, which '{name}' does not support; "
                         "use attn_implementation='sdpa'.")
    return mask == 0


@real_keys.register_fake
def _(mask, module, name):
    return torch.empty_like(mask, dtype=torch.bool)
