"""Attention for training short sequences in 16 bits on a CPU: plain products of matrices, all heads at once.

Not an implementation of `attend`, because those use at least single precision for scores: here scores and weights are
rounded to the dtype of the inputs. For 4 heads of 64 features and 4,096 positions, forward and backward took 26 ms in
bfloat16 on one thread in sequences of 256 and 38 ms in sequences of 512, for any pattern. In single precision PyTorch's
fused kernel took 61 and 118 ms; the tiles of `blocked`, for windows of 4 to 64 keys, took 36 to 57 and 40 to 57 ms.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Pattern

ROWS = 512  # queries that `by_rows` takes together


def products(query: Tensor, key: Tensor, value: Tensor, patterns: Sequence[Pattern], scale: float,
             key_mask: Tensor | None = None, dropout: float = 0.0, first: int | None = None) -> Tensor:
    """The result of `attend` with rounded intermediate values; time and memory grow with N * N.

    query: (B, H, Q, D), at the Q positions from `first` on, or at the last Q if it is None; key: (B, H, N, D); value:
    (B, H, N, E); patterns: one for each head; key_mask: (B, N) bool, False for keys that no query may see; dropout: the
    share of weights that are dropped. Returns (B, H, Q, E) in the dtype of the inputs. Inside a product, sums are kept
    in single precision.
    """
    batch, heads, n, _ = key.shape
    single = len(set(patterns)) == 1  # one mask serves all heads
    if first is None:
        first = n - query.shape[2]
        for pattern in set(patterns):
            pattern.check(n)
    mask = _masks(tuple(patterns[:1] if single else patterns), first, first + query.shape[2], n, query.device)[None]
    if key_mask is not None:
        mask = mask & key_mask[:, None, None]
    blind = ~mask.any(-1, keepdim=True)  # sees no key; its weights would be NaN
    bias = query.new_zeros(mask.shape).masked_fill_(~(mask | blind), -torch.inf)
    bias = bias[0] if bias.shape[:2] == (1, 1) else bias.expand(batch, heads, -1, -1).flatten(0, 1)
    scores = torch.baddbmm(bias, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=scale)
    weights = F.dropout(scores.softmax(-1), dropout)
    out = torch.bmm(weights, value.flatten(0, 1)).unflatten(0, (batch, heads))
    return out.masked_fill(blind, 0) if blind.any() else out


def by_rows(query: Tensor, key: Tensor, value: Tensor, patterns: Sequence[Pattern], scale: float,
            key_mask: Tensor | None = None) -> Tensor:
    """The result of `products` for as many queries as keys; in a long text, causal patterns need half the scores.

    `ROWS` queries are taken at a time, with the keys up to the last that one of them sees: scores of later keys are
    neither computed nor kept for the backward pass.

    >>> from repro.attention import Causal
    >>> x = torch.randn(1, 2, 600, 4)
    >>> torch.allclose(by_rows(x, x, x, [Causal()] * 2, 1.0), products(x, x, x, [Causal()] * 2, 1.0), atol=1e-5)
    True
    """
    out, n = [], query.shape[2]
    for first in range(0, n, ROWS):
        stop = min(first + ROWS, n)
        seen = _keys_seen(tuple(patterns), first, stop, n)
        mask = None if key_mask is None else key_mask[:, :seen]
        out.append(products(query[:, :, first:stop], key[:, :, :seen], value[:, :, :seen], patterns, scale, mask,
                            first=first))
    return torch.cat(out, 2)


@lru_cache(maxsize=64)
def _masks(patterns: tuple[Pattern, ...], first: int, stop: int, n: int, device: torch.device) -> Tensor:
    """(H, Q, N) bool, for queries from `first` up to `stop`; cached, because every training step needs the same few."""
    i, j = torch.arange(first, stop, device=device)[:, None], torch.arange(n, device=device)
    return torch.stack([pattern(i, j) for pattern in patterns])


@lru_cache(maxsize=1024)
def _keys_seen(patterns: tuple[Pattern, ...], first: int, stop: int, n: int) -> int:
    """The number of keys, out of n, up to the last that queries from `first` up to `stop` see; at least 1."""
    for pattern in set(patterns):
        pattern.check(n)
    i = torch.arange(first, stop)
    last = [torch.as_tensor(keys.last).max() for pattern in set(patterns) for part in pattern.parts
            for keys in part.keys(i)]
    return max(1, min(n, 1 + int(max(last))))
