"""Attention tile by tile: only blocks of queries against the stretch of keys that they can see.

The successor of Longformer's sliding_chunks (Beltagy et al. 2020, section 3.2 and Appendix A) in plain PyTorch, on any
device, forward and backward, in time and memory proportional to N for a fixed window. The tiles follow from the
pattern's progressions of keys: a dilated window is a plain window over the positions of one residue class, so its
tiles are slices with a step.
"""

from ctypes import string_at
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from repro.attention.patterns import Pattern, union

FAR = 2**28  # a query so late that it leaves every window behind
NOTHING = -1e30  # the log of no weight at all; finite, so that differences of logs exist


class Tile(NamedTuple):
    """Queries `rows` against `keys`; `bias` (rows, keys) is 0 where they may, -inf where not, None if all may."""

    rows: slice
    keys: slice
    bias: Tensor | None


class Hidden(NamedTuple):
    """What differs from sample to sample: -inf at padding (B*H, 1, N), the documents (B*H, N), dropout and its seed."""

    padding: Tensor | None
    documents: Tensor | None
    dropout: float
    seed: int


def blocked(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
            documents: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Sub-quadratic in time and memory; scores are computed in float32 at least.

    The pattern has to be steady where there are documents: its tiles take positions from the sequence's start.
    """
    batch, heads, n, _ = query.shape
    precise = torch.promote_types(query.dtype, torch.float32)
    flat = (x.to(precise).flatten(0, 1) for x in (query, key, value))
    padding = None
    if key_mask is not None:
        padding = query.new_zeros(batch, n, dtype=precise).masked_fill_(~key_mask, -torch.inf)
        padding = padding.repeat_interleave(heads, 0)[:, None]
    if documents is not None:
        documents = documents.repeat_interleave(heads, 0)
    hidden = Hidden(padding, documents, dropout, torch.randint(2**62, ()).item() if dropout else 0)
    out = _Tiled.apply(*flat, tiles(pattern, n, block_size(query.device.type), query.device, precise), scale, hidden)
    return out.unflatten(0, (batch, heads)).to(query.dtype)


def block_size(device: str) -> int:
    """Queries in a tile: 32 measured best on CPU for windows up to 512; fewer and larger ones on a GPU are a guess."""
    return 32 if device == "cpu" else 512


def density(pattern: Pattern) -> float:
    """Which share of all earlier keys a very late query sees, at most: 0 for every window, 1 for all keys."""
    late = torch.tensor([FAR])
    seen = [(last - first) // step + 1 for part in pattern.parts
            for first, last, step in (keys.within(FAR, late) for keys in part.keys(late))]
    return min(1.0, sum(number.clamp(min=0).item() for number in seen) / FAR)


def share_of_pairs(pattern: Pattern, n: int, device: str = "cpu") -> float:
    """Which share of the n * n pairs lies in tiles, allowed or not."""
    cover = tiles(pattern, n, block_size(device))
    return sum(len(range(*tile.rows.indices(n))) * len(range(*tile.keys.indices(n))) for tile in cover) / n**2


@lru_cache(maxsize=64)
def tiles(pattern: Pattern, n: int, block: int, device: torch.device | str = "cpu",
          dtype: torch.dtype = torch.float32) -> list[Tile]:
    """Tiles that hold every allowed pair of n positions exactly once, each of at most `block` queries."""
    biases, found, position = {}, [], torch.arange(n)
    for number, part in enumerate(pattern.parts):
        before = union(pattern.parts[:number]) if number else None
        for first, last, step in (keys.within(n, position) for keys in part.keys(position)):
            for rows in _blocks(first, last, step, block):
                keys = slice(first[rows].min().item(), last[rows].max().item() + 1, step)
                j = position[keys]
                allowed = (j >= first[rows, None]) & (j <= last[rows, None])
                if before is not None:
                    allowed &= ~before(position[rows, None], j)
                known = allowed.shape, string_at(allowed.data_ptr(), allowed.numel())  # its bytes, without NumPy
                if allowed.any() and known not in biases:
                    bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf).to(device)
                    biases[known] = None if allowed.all() else bias
                if known in biases:
                    found.append(Tile(rows, keys, biases[known]))
    return found


def _blocks(first: Tensor, last: Tensor, step: int, block: int):
    """Slices of at most `block` queries that see a key, all of their keys being of one residue class."""
    sees = first <= last
    stride = 1 if (first[sees] % step).unique().numel() <= 1 else step
    for residue in range(stride):
        among = sees[residue::stride].int()
        edges = torch.diff(among, prepend=among.new_zeros(1), append=among.new_zeros(1)).nonzero().flatten().tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            for low in range(start, stop, block):
                high = min(low + block, stop)
                yield slice(residue + low * stride, residue + (high - 1) * stride + 1, stride)


class _Tiled(torch.autograd.Function):
    """Softmax over all tiles of a query, merged by their log-sums; the backward pass computes the scores again."""

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
            to_value[:, keys].baddbmm_((weights if kept is None else weights * kept).mT, grad[:, rows])
            dots = (grad[:, rows] * out[:, rows]).sum(-1, keepdim=True)
            if kept is None:
                flow = torch.baddbmm(dots, grad[:, rows], value[:, keys].mT, beta=-1).mul_(weights)
            else:
                flow = torch.bmm(grad[:, rows], value[:, keys].mT).mul_(kept).sub_(dots).mul_(weights)
            to_query[:, rows].baddbmm_(flow, key[:, keys], alpha=scale)
            to_key[:, keys].baddbmm_(flow.mT, query[:, rows], alpha=scale)
        return to_query, to_key, to_value, None, None, None


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
    """What a tile's weights are multiplied by: 0, or 1 / (1 - dropout); the same whenever that tile is asked for."""
    generator = torch.Generator(weights.device).manual_seed(hidden.seed + number)
    kept = torch.empty_like(weights).bernoulli_(1 - hidden.dropout, generator=generator)
    return kept.div_(1 - hidden.dropout)
