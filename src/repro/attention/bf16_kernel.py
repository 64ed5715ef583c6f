"""Bfloat16 attention over many tiles as plain matrix products, called like PyTorch's fused kernel.

On processors where MKL multiplies the kernel's small matrices, such as AMD's, the fused kernel is no faster in bfloat16
than in single precision; batched products through oneDNN are several times as fast. Each product is rounded to 8 bits,
too few for an attention score, so a second product computes the rounding error, and scores keep about 16 bits.
"""

import math

import torch
from torch import Tensor


def forward(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Queries (B, T, R, D), keys and values (B, T, K, D) -> output (B, T, R, D) and log-sums (B, T, R), in float32."""
    weights = _scores(query, key, attn_mask, scale)
    top = weights.amax(-1, keepdim=True)
    total = weights.sub_(top).exp2_().sum(-1, keepdim=True)
    out = torch.bmm(weights.to(value.dtype), value.flatten(0, 1)).float().div_(total)
    return out.unflatten(0, query.shape[:2]), top.add_(total.log2_()).mul_(math.log(2)).view(query.shape[:3])


def backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor, dropout: float,
             causal: bool, attn_mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, in their dtype; `out` and `log_sum` cover all keys, not only these."""
    tiles, kind = query.shape[:2], query.dtype
    weights = _scores(query, key, attn_mask, scale).sub_(log_sum.flatten(0, 1)[..., None] / math.log(2)).exp2_()
    grad = grad.to(kind).flatten(0, 1)
    dots = (grad * out.flatten(0, 1)).sum(-1, keepdim=True)
    to_value = torch.bmm(weights.to(kind).mT, grad)
    near = dots.to(kind)  # subtracted before the product is rounded: the rest is small if one key has all the weight
    flow = torch.baddbmm(near, grad, value.flatten(0, 1).mT, beta=-1).float().sub_(dots - near)
    flow = flow.mul_(weights).mul_(scale).to(kind)
    found = torch.bmm(flow, key.flatten(0, 1)), torch.bmm(flow.mT, query.flatten(0, 1)), to_value
    return tuple(one.unflatten(0, tiles) for one in found)


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, scale: float) -> Tensor:
    """Scores (B * T, R, K) in float32 and base 2, which is faster: a rounded product plus its rounding error."""
    tiles = query.shape[:2]
    query, key = query.flatten(0, 1), key.flatten(0, 1).mT
    rounded = torch.bmm(query, key)
    rest = torch.baddbmm(rounded, query, key, beta=-1)
    scores = rounded.float().add_(rest.float()).mul_(scale / math.log(2))
    if attn_mask is not None:
        scores.unflatten(0, tiles).add_(attn_mask)
    return scores
