"""Tiles through PyTorch's fused attention for CPUs: one call of its kernel computes many tiles of the same shape.

Tiles overlap in their keys, but each starts the same distance after the previous one. So a strided view presents them
to the kernel as if they were heads, without a copy. The kernel also returns the log-sum of every query: it merges the
parts of a union, and from it the backward pass recovers the attention weights of each part. The backward pass uses
tiles with disjoint keys, which overlap in their queries: only the gradients of queries are summed over tiles, stretch
by stretch.
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
AT_ONCE = 2**22  # bytes that a call returns: at least as fast as larger calls, and small next to the tensors themselves


def available(device: torch.device) -> bool:
    """Whether this PyTorch has the kernel for the device. Its name is private, so other versions may lack it."""
    return device.type == "cpu" and all(hasattr(torch.ops.aten, name) for name in (FORWARD, BACKWARD))


def takes(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype are used as they are: bfloat16, on a processor with instructions for it."""
    from repro.bf16 import has_bf16  # only this check needs it

    return dtype == torch.bfloat16 and has_bf16()


def fused(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, hidden: Hidden) -> Tensor:
    """Attention (B * H, N, E), in the dtype of the inputs: query and key (B * H, N, D), value (B * H, N, E)."""
    size, widest = value.shape[2], max(query.shape[2], value.shape[2])  # the kernel takes one width of adjacent numbers
    query, key, value = (x if x.shape[2] == widest else pad(x, (0, widest - x.shape[2])) for x in (query, key, value))
    query, key, value = (x if x.stride(2) == 1 else x.contiguous() for x in (query, key, value))
    return _Flash.apply(query, key, value, pattern, scale, hidden)[..., :size]


class Places(NamedTuple):
    """Positions of `number` tiles: `first` has those of the first; each next tile begins `move` positions later."""

    first: slice | Tensor
    move: int = 0
    number: int = 1

    def read(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, number, size, D): a view, or a copy for listed positions."""
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
        """Add the values of all tiles at their positions; tiles may overlap."""
        if isinstance(self.first, Tensor):
            x.index_add_(1, self.first, values[:, 0].to(x.dtype))
        elif not self.move:
            self._view(x, 0, self.size)[:, 0] += values.sum(1)
        else:
            for low in range(0, self.size, self.width):
                part = values[:, :, low:low + self.width]
                self._view(x, low, part.shape[2]).add_(part)

    def _view(self, x: Tensor, low: int, size: int) -> Tensor:
        apart, along, across = x.stride()
        return x.as_strided((len(x), self.number, size, x.shape[2]),
                            (apart, self.move * along, self.step * along, across),
                            x.storage_offset() + (self.first.start + low * self.step) * along)

    @property
    def step(self) -> int:
        """The distance from one position of a tile to the next."""
        return self.first.step or 1

    @property
    def size(self) -> int:
        """The number of positions in a tile."""
        if isinstance(self.first, Tensor):
            return len(self.first)
        return len(range(self.first.start, self.first.stop, self.step))

    @property
    def width(self) -> int:
        """The length of a stretch that, taken from all tiles at the same index, holds no position twice."""
        common = math.gcd(self.move, self.step)
        return self.size if self.number <= self.step // common else self.move // common

    @property
    def apart(self) -> bool:
        """Whether no two tiles share a position."""
        return self.number == 1 or self.move > 0 and self.width >= self.size

    def part(self, start: int, number: int) -> "Places":
        """`number` of the tiles, beginning with tile `start`."""
        if self.number == 1:
            return self
        low, stop, step = self.first.start, self.first.stop, self.first.step
        return Places(slice(low + start * self.move, stop + start * self.move, step), self.move, number)


class Run(NamedTuple):
    """Tiles of one shape with one `bias` (queries, keys); fresh: no earlier run has one of these queries."""

    rows: Places
    keys: Places
    bias: Tensor | None
    fresh: bool = False

    def parts(self, at_once: int) -> Iterator["Run"]:
        """The same tiles, in runs of at most `at_once`."""
        for start in range(0, self.rows.number, at_once):
            number = min(at_once, self.rows.number - start)
            yield self._replace(rows=self.rows.part(start, number), keys=self.keys.part(start, number))


@lru_cache(maxsize=64)
def runs(pattern: Pattern, n: int, dtype: torch.dtype, block: int, by_keys: bool = False) -> list[Run]:
    """The tiles of a pattern joined into runs, in the order of `tiles` or by position: the order with fewer runs."""
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
    """Consecutive tiles joined into runs, as long as each is equally far from the previous one."""
    found = []
    for run in order:
        longer = found and _longer(found[-1], run)
        if longer and (by_keys or longer.rows.apart):
            found[-1] = longer
        else:
            found.append(run)
    return found


def _longer(run: Run, tile: Run) -> Run | None:
    """The run with one more tile; None if the tile does not continue it."""
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
    """How tiles are computed: both passes, the queries in a forward tile, and the keys in a backward tile."""

    forward: Callable
    backward: Callable
    queries: int
    keys: int


def way(dtype: torch.dtype) -> Way:
    """Plain products in bfloat16, else PyTorch's kernel. These tile sizes were the fastest among 32 to 512, for windows
    of 256 on two cores."""
    if dtype == torch.bfloat16:
        return Way(bf16_kernel.forward, bf16_kernel.backward, 64, 64)
    return Way(getattr(torch.ops.aten, FORWARD), getattr(torch.ops.aten, BACKWARD), 32, 64)


class _Flash(torch.autograd.Function):
    """Attention of (B * H, N, D) each: every run takes one call or a few, and runs are merged by their log-sums."""

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
        nobody = log_sum < NOTHING / 2  # queries that see no key: their sum is over hidden keys only
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
    """(run, part of the B * H, bias) of every call; if keys are hidden, each sample has its own calls."""
    samples = [slice(0, len(query))]
    if hidden.keys:
        samples = [slice(row, row + hidden.heads) for row in range(0, len(query), hidden.heads)]
    for run in plan:
        tile = 4 * (run.rows.size + 2 * run.keys.size) * len(query) * query.shape[2]
        for part in run.parts(max(1, AT_ONCE // tile)):
            for at in samples:
                yield part, at, _bias(part, hidden, at) if hidden.keys else run.bias


def _bias(run: Run, hidden: Hidden, at: slice) -> Tensor:
    """The bias (1, tiles, queries, keys) of the pattern and of the keys that are hidden in one sample."""
    bias = torch.zeros(()) if run.bias is None else run.bias
    if hidden.padding is not None:
        bias = (bias + run.keys.read(hidden.padding[at][:1].mT).mT).clamp_(min=NOTHING)
    if hidden.documents is not None:
        here = hidden.documents[at][:1, :, None]
        bias = bias.masked_fill(run.rows.read(here) != run.keys.read(here).mT, NOTHING)
    return bias
