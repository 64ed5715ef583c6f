"""Attention for training short sequences in 16 bits on a CPU: plain products of matrices, all heads at once.

Not one of the ways of `attend`, which all score in single precision at least: here scores and weights are rounded to
the dtype of the inputs. For 4 heads of 64 features and 4,096 positions, forward and backward took 26 ms in bfloat16 on
one thread in sequences of 256 and 38 ms in sequences of 512, whatever the pattern; in single precision PyTorch's fused
kernel took 61 and 118 ms and the tiles of `blocked`, for windows of 4 to 64 keys, 36 to 57 and 40 to 57 ms.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Pattern


def products(query: Tensor, key: Tensor, value: Tensor, patterns: Sequence[Pattern], scale: float,
             key_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """What `attend` gives, rounded on the way; time and memory grow with N * N.

    query: (B, H, Q, D), those of the last Q positions; key: (B, H, N, D); value: (B, H, N, E); patterns: H of them;
    key_mask: (B, N) bool, False where nobody may look; dropout: the share of the weights that are left out. Returns
    (B, H, Q, E) in the dtype of the inputs. Sums are kept in single precision inside a product.
    """
    batch, heads, n, _ = key.shape
    alike = len(set(patterns)) == 1  # then one mask does for all heads
    mask = _masks(tuple(patterns[:1] if alike else patterns), n, query.device)[None, :, -query.shape[2]:]
    if key_mask is not None:
        mask = mask & key_mask[:, None, None]
    blind = ~mask.any(-1, keepdim=True)  # sees no key; weights over nothing would be no numbers
    bias = query.new_zeros(mask.shape).masked_fill_(~(mask | blind), -torch.inf)
    bias = bias[0] if bias.shape[:2] == (1, 1) else bias.expand(batch, heads, -1, -1).flatten(0, 1)
    scores = torch.baddbmm(bias, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=scale)
    weights = F.dropout(scores.softmax(-1), dropout)
    out = torch.bmm(weights, value.flatten(0, 1)).unflatten(0, (batch, heads))
    return out.masked_fill(blind, 0) if blind.any() else out


@lru_cache(maxsize=64)
def _masks(patterns: tuple[Pattern, ...], n: int, device: torch.device) -> Tensor:
    """(H, N, N) bool, kept: every step of a training asks for the same few."""
    return torch.stack([pattern.mask(n, device) for pattern in patterns])
