"""Fewer queries than keys: the last positions of a sequence whose earlier keys are in a cache."""

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Pattern
from repro.errors import ReproError

BLOCK = 128  # queries processed together


def last_rows(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float,
              key_mask: Tensor | None = None, dropout: float = 0.0, first: int = 0) -> Tensor:
    """Attention for the last positions only: each block of queries reads only the keys that its queries see.

    query: (B, H, Q, D); key, value: (B, H, K, D) with Q <= K. The keys have positions first .. first + K - 1, and
    the queries the last Q of these. Raises ReproError if a query sees a position before `first`.
    """
    end = first + key.shape[2]
    out = []
    for queries, i in zip(query.split(BLOCK, 2), torch.arange(end - query.shape[2], end).split(BLOCK), strict=True):
        needed = keys_of(pattern, i, end)
        if needed[0] < first:
            raise ReproError(f"query {i[0]} sees key {needed[0]} under {pattern}, but the cache has dropped all keys "
                             f"before {first}; use one that keeps them, such as DynamicCache().")
        if isinstance(needed, range):
            j = torch.arange(needed.start, needed.stop, needed.step)
            at = slice(needed.start - first, needed.stop - first, needed.step)
        else:
            j, at = needed, needed - first
        mask = pattern(i[:, None], j).to(query.device)
        if key_mask is not None:
            mask = mask & key_mask[:, None, None, at]
        out.append(F.scaled_dot_product_attention(queries, key[:, :, at], value[:, :, at], mask, dropout, scale=scale))
    return torch.cat(out, 2)


def keys_of(pattern: Pattern, i: Tensor, n: int) -> range | Tensor:
    """The positions below n that any of the queries `i` sees, in order; position n - 1 if they see none."""
    stretches = []
    for part in pattern.parts:
        for first, last, step in (keys.within(n, i) for keys in part.keys(i)):
            first, last = first[first <= last], last[first <= last]
            if first.numel():
                apart = step if (first % step).unique().numel() == 1 else 1
                stretches.append(range(int(first.min()), int(last.max()) + 1, apart))
    if len(stretches) > 1:
        return torch.cat([torch.arange(one.start, one.stop, one.step) for one in stretches]).unique()
    return stretches[0] if stretches else range(n - 1, n)
