"""Sliding chunks: a window as one product of overlapping blocks (Beltagy et al. 2020, section 3.1 and Appendix A)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Pattern, SlidingWindow


def chunks(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
           documents: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """The paper's training implementation: queries and keys in blocks that overlap by half, in a single product.

    A block is twice as long as one side of the window. Half of the scores are stored but never used.
    """
    dtype, n = query.dtype, query.shape[2]
    query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
    back, ahead = reach(pattern)
    size = max(1, min(n, max(back, ahead)))  # positions in a chunk; a block is two chunks
    around = size, size + -n % size  # padding: a chunk on each side, and the rest of the last one
    query_blocks, key_blocks = (F.pad(x, (0, 0, *around)).unfold(2, 2 * size, size) for x in (query, key))
    scores = torch.matmul(query_blocks.mT, key_blocks) * scale  # (B, H, chunks + 1, 2 * size, 2 * size)
    before, own, behind = (scores[:, :, :-1, size:, :size], scores[:, :, 1:, :size, :size],
                           scores[:, :, 1:, :size, size:])
    scores = torch.cat([before, own, behind], -1) if ahead else torch.cat([before, own], -1)
    width = scores.shape[-1]

    real = key_mask if key_mask is not None else query.new_ones(1, n, dtype=torch.bool)
    allowed = F.pad(real, around).unfold(1, 3 * size, size)[:, None, :, None, :width]
    apart = size + torch.arange(size, device=query.device)[:, None] - torch.arange(width, device=query.device)
    allowed = allowed & (apart <= back) & (apart >= -ahead)
    if documents is not None:
        around_it = F.pad(documents, around).unfold(1, 3 * size, size)
        allowed = allowed & (around_it[:, :, size:2 * size, None] == around_it[:, :, None, :width])[:, None]
    weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)
    weights = F.dropout(weights * allowed, dropout)  # zeros for a query that sees no key
    values = F.pad(value, (0, 0, *around)).unfold(2, 3 * size, size)[..., :width].mT
    return torch.matmul(weights, values).flatten(2, 3)[:, :, :n].to(dtype)


def reach(pattern: SlidingWindow) -> tuple[int, int]:
    """How many keys a query sees before and after it."""
    return (pattern.window - 1, 0) if pattern.causal else (pattern.window // 2,) * 2


def refusal(pattern: Pattern) -> str | None:
    """Why chunks cannot compute the pattern; None if they can."""
    if isinstance(pattern, SlidingWindow) and pattern.dilation == 1:
        return None
    return f"chunks compute one window without gaps, and the pattern is {pattern}; use 'blocked'."
