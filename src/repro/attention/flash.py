"""Tiles through PyTorch's own fused attention for CPUs: many tiles of one shape are one call of its kernel.

Tiles overlap in their keys, but each starts as far behind the last, so that a view with strides of its own shows the
kernel all of them as if they were heads, and nothing is copied. The kernel returns the log of every sum: by it the
parts of a union are merged, and with it the backward pass finds the shares of all parts again. The backward pass takes
tiles of disjoint keys, which overlap in the queries that see them: only the gradients of these are added up, by
stretches.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from repro.attention import bf16_kernel
from repro.attention.patterns import Pattern
from repro.attention.tiles import NOTHING, Hidden, tiles

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = FORWARD + "_backward"
AT_ONCE = 2**22  # bytes that a call returns: as fast as with more, or faster, and little beside the tensors themselves


def available(device: torch.device) -> bool:
    """Whether this PyTorch has the kernel for that device. Its name is private, so that another one may lack it."""
    return device.type == "cpu" and all(hasattr(torch.ops.aten, name) for name in (FORWARD, BACKWARD))


def takes(dtype: torch.dtype) -> bool:
    """Whether numbers of fewer bits stay as they are: where the processor multiplies them itself."""
    from repro.bf16 import has_bf16  # asked for nothing else here

    return dtype == torch.bfloat16 and has_bf16()


def fused(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, hidden: Hidden) -> Tensor:
    """(B * H, N, D) each, the value (B * H, N, E): the attention, in their dtype."""
    size, widest = value.shape[2], max(query.shape[2], value.shape[2])
    query, key, value = (x if x.shape[2] == widest else pad(x, (0, widest - x.shape[2]))  # the kernel knows one size
                         for x in (query, key, value))
    return _Flash.apply(query, key, value, pattern, scale, hidden)[..., :size]


class Places(NamedTuple):
    """Positions of `number` tiles: those of the first, and how many further on each next one begins."""

    first: slice | Tensor
    move: int = 0
    number: int = 1

    def read(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, number, size, D): a view, or a copy of positions without order."""
        if isinstance(self.first, Tensor):
            return x[:, self.first][:, None]
        return self._view(x, 0, self.size)

    def write(self, x: Tensor, values: Tensor) -> None:
        """The reverse of `read`, for tiles that share no position."""
        if isinstance(self.first, Tensor):
            x[:, self.first] = values[:, 0]
        else:
            self.read(x).copy_(values)

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add to each position what all tiles have for it."""
        if isinstance(self.first, Tensor):
            x.index_add_(1, self.first, values[:, 0].to(x.dtype))
        elif not self.move:
            self._view(x, 0, self.size)[:, 0] += values.sum(1)
        else:
            for low in range(0, self.size, self.width):
                part = values[:, :, low:low + self.width]
                self._view(x, low, part.shape[2]).add_(part)

    def _view(self, x: Tensor, low: int, size: int) -> Tensor:
        apart, along, _ = x.stride()
        return x.as_strided((len(x), self.number, size, x.shape[2]), (apart, self.move * along, self.step * along, 1),
                            x.storage_offset() + (self.first.start + low * self.step) * along)

    @property
    def step(self) -> int:
        """From one position of a tile to the next."""
        return self.first.step or 1

    @property
    def size(self) -> int:
        """Positions of a tile."""
        if isinstance(self.first, Tensor):
            return len(self.first)
        return len(range(self.first.start, self.first.stop, self.step))

    @property
    def width(self) -> int:
        """So many neighbours in one tile are in no other one's neighbours of the same rank."""
        common = math.gcd(self.move, self.step)
        return self.size if self.number <= self.step // common else self.move // common

    @property
    def apart(self) -> bool:
        """Whether no two tiles share a position."""
        return self.number == 1 or self.move > 0 and self.width >= self.size

    def part(self, start: int, number: int) -> "Places":
        """`number` of the tiles, from the one with the number `start` on."""
        if self.number == 1:
            return self
        low, stop, step = self.first.start, self.first.stop, self.first.step
        return Places(slice(low + start * self.move, stop + start * self.move, step), self.move, number)


class Run(NamedTuple):
    """Tiles of one shape with one `bias` (queries, keys); fresh: no tile before has one of these queries."""

    rows: Places
    keys: Places
    bias: Tensor | None
    fresh: bool = False

    def parts(self, at_once: int) -> Iterator["Run"]:
        """The same tiles, at most so many in each."""
        for start in range(0, self.rows.number, at_once):
            number = min(at_once, self.rows.number - start)
            yield self._replace(rows=self.rows.part(start, number), keys=self.keys.part(start, number))


@lru_cache(maxsize=64)
def runs(pattern: Pattern, n: int, dtype: torch.dtype, block: int, by_keys: bool = False) -> list[Run]:
    """The tiles of a pattern, in as few runs as are found in the order of `tiles` or in that of their positions."""
    same_kind = {}
    for tile in tiles(pattern, n, block, "cpu", dtype, by_keys):
        run = Run(Places(tile.rows), Places(tile.keys), tile.bias)
        kind = *((one.size, isinstance(one.first, slice) and one.step) for one in (run.rows, run.keys)), id(tile.bias)
        same_kind.setdefault(kind, []).append(run)
    found = []
    for kind in same_kind.values():
        orders = [kind]
        if isinstance(kind[0].rows.first, slice) and isinstance(kind[0].keys.first, slice):
            orders.append(sorted(kind, key=lambda run: (run.rows.first.start, run.keys.first.start)))
        found += min((_joined(order, by_keys) for order in orders), key=len)
    seen = torch.zeros(1, n, 1)
    for number, run in enumerate(found):
        bias = None if run.bias is None else run.bias.clamp(min=NOTHING)
        found[number] = run._replace(bias=bias, fresh=not run.rows.read(seen).any())
        run.rows.add(seen, torch.ones(()).expand(1, run.rows.number, run.rows.size, 1))
    return found


def _joined(order: list[Run], by_keys: bool) -> list[Run]:
    """Neighbours in one run, where each is as far from the last as that from the one before."""
    found = []
    for run in order:
        longer = found and _longer(found[-1], run)
        if longer and (by_keys or longer.rows.apart):
            found[-1] = longer
        else:
            found.append(run)
    return found


def _longer(run: Run, tile: Run) -> Run | None:
    """The run with one more tile, if it fits in."""
    if not all(isinstance(places.first, slice) for places in (*run[:2], *tile[:2])):
        return None
    joined = []
    for places, one in zip(run[:2], tile[:2], strict=True):
        move, rest = divmod(one.first.start - places.first.start, places.number)
        if rest or move < 0 or places.number > 1 and move != places.move:
            return None
        joined.append(places._replace(move=move, number=places.number + 1))
    return run._replace(rows=joined[0], keys=joined[1])


class Way(NamedTuple):
    """How tiles are computed: both passes, queries in a tile of the first, keys in one of the second."""

    forward: Callable
    backward: Callable
    queries: int
    keys: int


def way(dtype: torch.dtype) -> Way:
    """In bfloat16 plain products. Sizes measured best among 32 to 512, for windows of 256 on two cores."""
    if dtype == torch.bfloat16:
        return Way(bf16_kernel.forward, bf16_kernel.backward, 64, 64)
    return Way(getattr(torch.ops.aten, FORWARD), getattr(torch.ops.aten, BACKWARD), 32, 64)


class _Flash(torch.autograd.Function):
    """(B * H, N, D) each: every run in one call or a few, and runs merged by the logs of their sums."""

    @staticmethod
    def forward(ctx, query, key, value, pattern, scale, hidden):
        ctx.way, precise = way(query.dtype), torch.promote_types(query.dtype, torch.float32)
        out = torch.zeros_like(query, dtype=precise)
        log_sum = out.new_full((*query.shape[:2], 1), NOTHING)
        plan = runs(pattern, query.shape[1], precise, ctx.way.queries)
        for run, at, bias in _calls(plan, query, hidden):
            found, log = ctx.way.forward(run.rows.read(query[at]), run.keys.read(key[at]), run.keys.read(value[at]),
                                         attn_mask=bias, scale=scale)
            log = log[..., None]
            if not run.fresh:
                before = run.rows.read(log_sum[at])
                merged = torch.logaddexp(before, log)
                found = found.mul_((log - merged).exp_()).add_(run.rows.read(out[at]) * (before - merged).exp_())
                log = merged
            run.rows.write(out[at], found)
            run.rows.write(log_sum[at], log)
        nobody = log_sum < NOTHING / 2  # is seen: a sum of hidden keys alone
        if nobody.any():
            out.masked_fill_(nobody, 0)
            log_sum.masked_fill_(nobody, -NOTHING)
        ctx.save_for_backward(query, key, value, out, log_sum)
        ctx.rest = pattern, scale, hidden
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, key, value, out, log_sum = ctx.saved_tensors
        pattern, scale, hidden = ctx.rest
        to_query, to_key, to_value = (torch.zeros_like(x, dtype=out.dtype) for x in (query, key, value))
        plan, grad = runs(pattern, query.shape[1], out.dtype, ctx.way.keys, by_keys=True), grad.contiguous()
        for run, at, bias in _calls(plan, query, hidden):
            rows, keys = run.rows, run.keys
            found = ctx.way.backward(rows.read(grad[at]), rows.read(query[at]), keys.read(key[at]),
                                     keys.read(value[at]), rows.read(out[at]), rows.read(log_sum[at])[..., 0],
                                     0.0, False, attn_mask=bias, scale=scale)
            rows.add(to_query[at], found[0])
            keys.add(to_key[at], found[1])
            keys.add(to_value[at], found[2])
        return *(one.to(query.dtype) for one in (to_query, to_key, to_value)), None, None, None


def _calls(plan: list[Run], query: Tensor, hidden: Hidden) -> Iterator[tuple[Run, slice, Tensor | None]]:
    """(run, which of the B * H, bias) of every call: for each sample its own where keys are hidden."""
    samples = [slice(0, len(query))]
    if hidden.keys:
        samples = [slice(row, row + hidden.heads) for row in range(0, len(query), hidden.heads)]
    for run in plan:
        tile = 4 * (run.rows.size + 2 * run.keys.size) * len(query) * query.shape[2]
        for part in run.parts(max(1, AT_ONCE // tile)):
            for at in samples:
                yield part, at, _bias(part, hidden, at) if hidden.keys else run.bias


def _bias(run: Run, hidden: Hidden, at: slice) -> Tensor:
    """(1, tiles, queries, keys): what the pattern and one sample hide."""
    bias = torch.zeros(()) if run.bias is None else run.bias
    if hidden.padding is not None:
        bias = (bias + run.keys.read(hidden.padding[at][:1].mT).mT).clamp_(min=NOTHING)
    if hidden.documents is not None:
        here = hidden.documents[at][:1, :, None]
        bias = bias.masked_fill(run.rows.read(here) != run.keys.read(here).mT, NOTHING)
    return bias
