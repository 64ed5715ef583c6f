"""Strided and fixed attention in n * sqrt(n): a few batches of large products (Child et al. 2019, sections 4.3, 5.5).

The sequence is padded and laid out as a matrix of m rows with `stride` positions each. The padding comes after every
query, so no query sees it, and n need not be a multiple of the stride. The keys a multiple of `stride` back are in the
query's column; transposing turns each column into a sequence of length m. The query's own block is a row, and the last
`stride` positions also include the end of the previous row. Summary columns are gathered once, and a block sees those
of all earlier blocks. Each part returns its output and the log of the sum of its weights. The parts share no key, so
merging them gives the softmax over all keys.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from repro.attention.patterns import BlockLocal, Fixed, Multiples, Pattern, SlidingWindow, Strided, Summary
from repro.attention.tiles import NOTHING

SCORES = {"cpu": 2**19}  # scores in memory at any time: 2 MiB, about the cache of a core
SCORES_ELSEWHERE = 2**27


class Piece(NamedTuple):
    """One batched product: the query `rows` with the `keys`, for these entries of the batch."""

    batch: slice
    rows: slice
    keys: slice


def factorises(pattern: Pattern) -> bool:
    """Whether this module computes the pattern: `Strided`, `Fixed`, or the second head of either."""
    return isinstance(pattern, Strided | Fixed | Multiples | Summary)


def computed(pattern: Pattern, n: int) -> int:
    """The number of scores that the forward pass computes for one head and n positions, allowed or not."""
    stride, m = pattern.stride, -(-n // pattern.stride)
    if isinstance(pattern, Strided | Multiples):
        return stride * m**2 + isinstance(pattern, Strided) * (2 * m - 1) * stride**2
    own = stride if isinstance(pattern, Fixed) else pattern.summary
    return m * stride * own + stride * pattern.summary * m * (m - 1) // 2


def factorised(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float) -> Tensor:
    """`attend` for a pattern that `factorises`: (B, H, N, D) to (B, H, N, E); scores are in float32 at least."""
    (batch, heads, n, _), stride = query.shape, pattern.stride
    m = -(-n // stride)
    precise = torch.promote_types(query.dtype, torch.float32)
    given = query.dtype
    query, key, value = (F.pad(x.to(precise).flatten(0, 1), (0, 0, 0, m * stride - n)).unflatten(1, (m, stride))
                         for x in (query, key, value))
    inputs = query, key, value
    if isinstance(pattern, Multiples):
        out, _ = _columns(*inputs, scale, itself=True)
    elif isinstance(pattern, Strided):
        out = _merged(_own(*inputs, scale, BlockLocal(stride)), _before(*inputs, scale),
                      _columns(*inputs, scale, itself=False))
    elif isinstance(pattern, Summary):
        out = _merged(_own(*inputs, scale, pattern), _earlier(*inputs, scale, pattern))
    else:
        out = _merged(_own(*inputs, scale, BlockLocal(stride)), _earlier(*inputs, scale, pattern.heads[1]))
    return out.flatten(1, 2)[:, :n].unflatten(0, (batch, heads)).to(given)


# Each of the following takes query, key and value (B*H, m, stride, .) and returns (out, log_sum) in that shape.

def _own(query, key, value, scale, pattern):
    """The keys of the query's own block: all up to the query, or only the summary columns among them."""
    columns = slice(None) if isinstance(pattern, BlockLocal) else _summary(pattern)
    bias = _bias(pattern, query.shape[2], query.shape[2], query.dtype, query.device)[:, columns]
    found = _Softmax.apply(*(x.flatten(0, 1) for x in (query, key[:, :, columns], value[:, :, columns])), bias, scale,
                           _members(query.shape[0] * query.shape[1], *bias.shape, query.device.type))
    return tuple(x.unflatten(0, query.shape[:2]) for x in found)


def _before(query, key, value, scale):
    """The keys of the previous block that are less than `stride` positions back."""
    count, m, stride, _ = query.shape
    bias = _bias(SlidingWindow(stride), 2 * stride, stride, query.dtype, query.device)[stride:]
    out, log_sum = _Softmax.apply(*(x.flatten(0, 1) for x in (query[:, 1:], key[:, :-1], value[:, :-1])), bias, scale,
                                  _members(count * (m - 1), stride, stride, query.device.type))
    first = (0, 0, 0, 0, 1, 0)  # the first block has no predecessor
    return (F.pad(out.unflatten(0, (count, m - 1)), first),
            F.pad(log_sum.unflatten(0, (count, m - 1)), first, value=NOTHING))


def _columns(query, key, value, scale, itself: bool):
    """The keys a multiple of `stride` positions back: the column above the query, and the query's own if `itself`."""
    count, m, stride, _ = query.shape
    bias = _bias(SlidingWindow(m), m, m, query.dtype, query.device)
    if not itself:
        bias = bias.masked_fill(torch.eye(m, dtype=torch.bool, device=bias.device), -torch.inf)
    found = _Softmax.apply(*(x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)), bias, scale,
                           _members(count * stride, m, m, query.device.type))
    return tuple(x.unflatten(0, (count, stride)).transpose(1, 2) for x in found)


def _earlier(query, key, value, scale, pattern):
    """The summary columns of all earlier blocks, gathered."""
    _, m, stride, _ = query.shape
    columns = _summary(pattern)
    pieces = [Piece(slice(None), slice(block * stride, (block + 1) * stride), slice(0, block * pattern.summary))
              for block in range(1, m)]
    found = _Softmax.apply(query.flatten(1, 2), key[:, :, columns].flatten(1, 2), value[:, :, columns].flatten(1, 2),
                           None, scale, pieces)
    return tuple(x.unflatten(1, (m, stride)) for x in found)


def _merged(*parts):
    """The softmax over the keys of all parts."""
    total = torch.stack([log_sum for _, log_sum in parts]).logsumexp(0)
    return sum(out * (log_sum - total).exp() for out, log_sum in parts)


def _summary(pattern: Summary) -> slice:
    """The summary columns of a block."""
    first = pattern.columns[0]
    return slice(first, first + pattern.summary)


@lru_cache(maxsize=64)
def _bias(pattern: Pattern, rows: int, keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(rows, keys): 0 where the pattern lets a position see a key, -inf where not."""
    allowed = pattern(torch.arange(rows)[:, None], torch.arange(keys))
    return torch.zeros(rows, keys, dtype=dtype).masked_fill_(~allowed, -torch.inf).to(device)


def _members(count: int, rows: int, keys: int, device: str) -> list[Piece]:
    """Split a batch of `count` into pieces with few enough scores."""
    size = max(1, SCORES.get(device, SCORES_ELSEWHERE) // (rows * keys))
    return [Piece(slice(at, at + size), slice(None), slice(None)) for at in range(0, count, size)]


class _Softmax(torch.autograd.Function):
    """query (G, R, D), key (G, K, D), value (G, K, E), bias (R, K) or None, to out (G, R, E) and log_sum (G, R, 1).

    Every row is in at most one piece; a row in none sees nothing. The backward pass recomputes the scores.
    """

    @staticmethod
    def forward(ctx, query, key, value, bias, scale, pieces):
        out = query.new_zeros(*query.shape[:2], value.shape[2])
        log_sum = query.new_full((*query.shape[:2], 1), NOTHING)
        for batch, rows, keys in pieces:
            scores = _scores(query[batch, rows], key[batch, keys], bias, scale)
            top = scores.amax(-1, keepdim=True).clamp_(min=NOTHING)
            weights = scores.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            total.masked_fill_(total == 0, 1)  # sees no key
            out[batch, rows] = torch.bmm(weights, value[batch, keys]).div_(total)
            log_sum[batch, rows] = total.log_().add_(top)
        ctx.save_for_backward(query, key, value, out, log_sum)
        ctx.rest = bias, scale, pieces
        return out, log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, to_log_sum):
        query, key, value, out, log_sum = ctx.saved_tensors
        bias, scale, pieces = ctx.rest
        to_query, to_key, to_value = (torch.zeros_like(x) for x in (query, key, value))
        shift = to_log_sum - (grad * out).sum(-1, keepdim=True)
        for batch, rows, keys in pieces:
            weights = _scores(query[batch, rows], key[batch, keys], bias, scale).sub_(log_sum[batch, rows]).exp_()
            to_value[batch, keys].baddbmm_(weights.mT, grad[batch, rows])
            flow = torch.baddbmm(shift[batch, rows], grad[batch, rows], value[batch, keys].mT).mul_(weights)
            to_query[batch, rows] = torch.bmm(flow, key[batch, keys]).mul_(scale)
            to_key[batch, keys].baddbmm_(flow.mT, query[batch, rows], alpha=scale)
        return to_query, to_key, to_value, None, None, None


def _scores(query, key, bias, scale):
    if bias is None:
        return torch.bmm(query, key.mT).mul_(scale)
    return torch.baddbmm(bias, query, key.mT, alpha=scale)
