"""Attention tile by tile: each block of queries is multiplied only with the keys that it can see.

The successor of Longformer's sliding_chunks (Beltagy et al. 2020, section 3.2 and Appendix A) in plain PyTorch, on any
device, forward and backward, in time and memory proportional to N for a fixed window. On a CPU, PyTorch's fused kernel
computes many tiles at once, if this PyTorch has it; otherwise, and with dropout, tiles are multiplied one by one.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from repro.attention import flash
from repro.attention.factorised import computed, factorised, factorises
from repro.attention.patterns import Pattern
from repro.attention.tiles import NOTHING, Hidden, Tile, tiles

FAR = 2**28  # a query position beyond the reach of any window


def blocked(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
            documents: Tensor | None = None, dropout: float = 0.0, fused: bool | None = None) -> Tensor:
    """Sub-quadratic in time and memory; scores are computed in float32 at least.

    With documents, the pattern must depend on distances only, because its tiles count positions from the start of the
    sequence. Without padding, documents and dropout, strided and fixed patterns use larger products than tiles.
    fused: whether PyTorch's CPU kernel computes the tiles; None: whenever it can.
    """
    if factorises(pattern) and fused is None and key_mask is None and documents is None and not dropout:
        return factorised(query, key, value, pattern, scale)
    batch, heads, n, _ = query.shape
    precise = torch.promote_types(query.dtype, torch.float32)
    if fused is None:
        fused = flash.available(query.device) and not dropout
    kind = query.dtype if fused and flash.takes(query.dtype) else precise
    flat = [x.to(kind).flatten(0, 1) for x in (query, key, value)]
    padding = None
    if key_mask is not None:
        padding = query.new_zeros(batch, n, dtype=precise).masked_fill_(~key_mask, -torch.inf)
        padding = padding.repeat_interleave(heads, 0)[:, None]
    if documents is not None:
        documents = documents.repeat_interleave(heads, 0)
    hidden = Hidden(padding, documents, heads, dropout, torch.randint(2**62, ()).item() if dropout else 0)
    if fused:
        out = flash.fused(*flat, pattern, scale, hidden)
    else:
        plan = tiles(pattern, n, block_size(query.device.type), query.device, precise)
        out = _Tiled.apply(*flat, plan, scale, hidden)
    return out.unflatten(0, (batch, heads)).to(query.dtype)


def block_size(device: str) -> int:
    """Queries in a tile: on a CPU, 32 was the fastest for windows up to 512; larger tiles on a GPU are untested."""
    return 32 if device == "cpu" else 512


def density(pattern: Pattern) -> float:
    """An upper bound on the share of keys that a very late query sees: about 0 for any window, 1 for all keys."""
    late = torch.tensor([FAR])
    seen = [(last - first) // step + 1 for part in pattern.parts
            for first, last, step in (keys.within(FAR, late) for keys in part.keys(late))]
    return min(1.0, sum(number.clamp(min=0).item() for number in seen) / FAR)


def share_of_pairs(pattern: Pattern, n: int, device: str = "cpu") -> float:
    """The share of the n * n pairs that is computed, allowed or not."""
    if factorises(pattern):
        return computed(pattern, n) / n**2
    every = torch.arange(n)
    return sum(len(every[tile.rows]) * len(every[tile.keys]) for tile in tiles(pattern, n, block_size(device))) / n**2


class _Tiled(torch.autograd.Function):
    """Softmax over all tiles of a query, merged by their log-sums; the backward pass recomputes the scores."""

    @staticmethod
    def forward(ctx, query, key, value, plan, scale, hidden):
        out = query.new_zeros(*query.shape[:2], value.shape[2])
        log_sum = query.new_full((*query.shape[:2], 1), NOTHING)
        for number, tile in enumerate(plan):
            rows, keys, _ = tile
            scores = _scores(query, key, tile, scale, hidden)
            top = scores.amax(-1, keepdim=True).clamp_(min=NOTHING)
            weights = scores.sub_(top).exp_()
            merged = torch.logaddexp(log_sum[:, rows], top + weights.sum(-1, keepdim=True).log())
            out[:, rows] *= (log_sum[:, rows] - merged).exp_()
            if hidden.dropout:
                weights *= _kept(weights, hidden, number)
            out[:, rows] += torch.bmm(weights, value[:, keys]).mul_((top - merged).exp_())
            log_sum[:, rows] = merged
        ctx.save_for_backward(query, key, value, out, log_sum)
        ctx.rest = plan, scale, hidden
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, key, value, out, log_sum = ctx.saved_tensors
        plan, scale, hidden = ctx.rest
        to_query, to_key, to_value = (torch.zeros_like(x) for x in (query, key, value))
        for number, tile in enumerate(plan):
            rows, keys, _ = tile
            weights = _scores(query, key, tile, scale, hidden).sub_(log_sum[:, rows]).exp_()
            kept = _kept(weights, hidden, number) if hidden.dropout else None
            _add(to_value, keys, (weights if kept is None else weights * kept).mT, grad[:, rows])
            dots = (grad[:, rows] * out[:, rows]).sum(-1, keepdim=True)
            if kept is None:
                flow = torch.baddbmm(dots, grad[:, rows], value[:, keys].mT, beta=-1).mul_(weights)
            else:
                flow = torch.bmm(grad[:, rows], value[:, keys].mT).mul_(kept).sub_(dots).mul_(weights)
            _add(to_query, rows, flow, key[:, keys], scale)
            _add(to_key, keys, flow.mT, query[:, rows], scale)
        return to_query, to_key, to_value, None, None, None


def _add(into: Tensor, places: slice | Tensor, left: Tensor, right: Tensor, scale: float = 1.0) -> None:
    """Add left @ right at these positions."""
    if isinstance(places, slice):
        into[:, places].baddbmm_(left, right, alpha=scale)
    else:
        into.index_add_(1, places, torch.bmm(left, right), alpha=scale)


def _scores(query: Tensor, key: Tensor, tile: Tile, scale: float, hidden: Hidden) -> Tensor:
    rows, keys, bias = tile
    query, key = query[:, rows], key[:, keys].mT
    scores = torch.bmm(query, key).mul_(scale) if bias is None else torch.baddbmm(bias, query, key, alpha=scale)
    if hidden.padding is not None:
        scores += hidden.padding[:, :, keys]
    if hidden.documents is not None:
        scores.masked_fill_(hidden.documents[:, rows, None] != hidden.documents[:, None, keys], -torch.inf)
    return scores


def _kept(weights: Tensor, hidden: Hidden, number: int) -> Tensor:
    """The dropout factors of a tile, 0 or 1 / (1 - dropout): the same in every call for this tile."""
    generator = torch.Generator(weights.device).manual_seed(hidden.seed + number)
    kept = torch.empty_like(weights).bernoulli_(1 - hidden.dropout, generator=generator)
    return kept.div_(1 - hidden.dropout)
