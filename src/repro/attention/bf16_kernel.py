"""Attention of many tiles in bfloat16 by plain products, with the arguments and results of PyTorch's fused kernel.

The fused kernel is no faster in bfloat16 than in single precision where MKL multiplies its small matrices, as on
processors of AMD; batches of products through oneDNN are several times as fast. A product is rounded to 8 bits at its
end, which is too few for a score: what the rounding took away is computed by a second product, and scores keep some 16
bits.
"""

import math

import torch
from torch import Tensor


def forward(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """(B, T, R, D) queries, (B, T, K, D) keys and values: (B, T, R, D) and the logs of sums (B, T, R), in float32."""
    weights = _scores(query, key, attn_mask, scale)
    top = weights.amax(-1, keepdim=True)
    total = weights.sub_(top).exp2_().sum(-1, keepdim=True)
    out = torch.bmm(weights.to(value.dtype), value.flatten(0, 1)).float().div_(total)
    return out.unflatten(0, query.shape[:2]), top.add_(total.log2_()).mul_(math.log(2)).view(query.shape[:3])


def backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor, dropout: float,
             causal: bool, attn_mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, rounded; `out` and `log_sum` are those of all keys."""
    tiles, kind = query.shape[:2], query.dtype
    weights = _scores(query, key, attn_mask, scale).sub_(log_sum.flatten(0, 1)[..., None] / math.log(2)).exp2_()
    grad = grad.to(kind).flatten(0, 1)
    dots = (grad * out.flatten(0, 1)).sum(-1, keepdim=True)
    to_value = torch.bmm(weights.to(kind).mT, grad)
    near = dots.to(kind)  # taken off before the product is rounded: what is left is small where one key has all weight
    flow = torch.baddbmm(near, grad, value.flatten(0, 1).mT, beta=-1).float().sub_(dots - near)
    flow = flow.mul_(weights).mul_(scale).to(kind)
    found = torch.bmm(flow, key.flatten(0, 1)), torch.bmm(flow.mT, query.flatten(0, 1)), to_value
    return tuple(one.unflatten(0, tiles) for one in found)


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, scale: float) -> Tensor:
    """(B * T, R, K) in float32, as powers of 2, which are faster: a rounded product, and what it lacks."""
    tiles = query.shape[:2]
    query, key = query.flatten(0, 1), key.flatten(0, 1).mT
    rounded = torch.bmm(query, key)
    rest = torch.baddbmm(rounded, query, key, beta=-1)
    scores = rounded.float().add_(rest.float()).mul_(scale / math.log(2))
    if attn_mask is not None:
        scores.unflatten(0, tiles).add_(attn_mask)
    return scores
