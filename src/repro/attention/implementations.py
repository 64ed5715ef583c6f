"""One attention, several ways to compute it: every implementation gives what `dense` gives."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Causal, Full, Pattern
from repro.errors import ReproError, unknown


def dense(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float,
          key_mask: Tensor | None = None) -> Tensor:
    """The reference: every score is computed and the mask taken from the pattern. Any dtype, any device."""
    if key_mask is None and pattern == Full():
        return F.scaled_dot_product_attention(query, key, value, scale=scale)
    if key_mask is None and pattern == Causal():
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    mask = pattern.mask(query.shape[2], query.device)
    if key_mask is not None:
        mask = mask & key_mask[:, None, None]
    return F.scaled_dot_product_attention(query, key, value, mask, scale=scale)


IMPLEMENTATIONS = {"dense": dense}


def attend(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern | Sequence[Pattern],
           implementation: str = "auto", scale: float | None = None, key_mask: Tensor | None = None) -> Tensor:
    """Attention of the queries to the keys that the pattern allows.

    query, key: (B, H, N, D); value: (B, H, N, E), with E = D or not. Returns (B, H, N, E) in the dtype of the inputs,
    also under autocast. pattern: one for all heads, or a sequence of H. scale: of the scores, 1 / sqrt(D) if None.
    key_mask: (B, N) bool, False where nobody may look (padding). A query that sees no key at all gets zeros, and
    passes no gradient on.

    Raises ReproError for an unknown implementation and for shapes, dtypes or patterns that do not fit together.
    """
    if implementation not in ("auto", *IMPLEMENTATIONS):
        raise unknown("implementation", implementation, ("auto", *IMPLEMENTATIONS))
    patterns = _check(query, key, value, pattern, key_mask)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    with torch.autocast(query.device.type, enabled=False):
        if len(set(patterns)) == 1:
            return _one(query, key, value, patterns[0], implementation, scale, key_mask)
        out = {}
        for distinct in dict.fromkeys(patterns):
            heads = [head for head, one in enumerate(patterns) if one == distinct]
            part = (x[:, heads] for x in (query, key, value))
            found = _one(*part, distinct, implementation, scale, key_mask)
            out.update(zip(heads, found.unbind(1), strict=True))
        return torch.stack([out[head] for head in range(len(patterns))], 1)


def _one(query, key, value, pattern, implementation, scale, key_mask):
    """All heads with the same pattern."""
    name = "dense" if implementation == "auto" else implementation
    return IMPLEMENTATIONS[name](query, key, value, pattern, scale, key_mask)


def _check(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern | Sequence[Pattern],
           key_mask: Tensor | None) -> list[Pattern]:
    """The pattern of every head, after a look at everything that has to fit."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.ndim != 4 or query.shape != key.shape or query.shape[:3] != value.shape[:3]:
        raise ReproError(f"{shapes}; query and key must be (B, H, N, D), the value (B, H, N, E).")
    if not query.dtype.is_floating_point or not query.dtype == key.dtype == value.dtype:
        raise ReproError(f"query is {query.dtype}, key {key.dtype}, value {value.dtype}; all three must have one "
                         "floating-point dtype.")
    batch, heads, n, _ = query.shape
    if key_mask is not None and (key_mask.shape != (batch, n) or key_mask.dtype != torch.bool):
        raise ReproError(f"key_mask is {key_mask.dtype} {tuple(key_mask.shape)}; it must be bool and (B, N), "
                         f"here {(batch, n)}.")
    patterns = [pattern] * heads if isinstance(pattern, Pattern) else list(pattern)
    if len(patterns) != heads:
        raise ReproError(f"pattern names {len(patterns)} patterns for {heads} heads; give one, or one for each head.")
    for one in dict.fromkeys(patterns):
        one.check(n)
    return patterns
