"""The allowed pairs of a pattern as tiles: blocks of queries with the keys that they can see.

The tiles follow from the pattern's progressions of keys: a dilated window is a plain window over the positions of one
residue class, so its tiles are slices with a step. If a part of a pattern has few queries or few keys, as global
positions do, they are gathered into a single tile.
"""

from collections.abc import Iterator
from ctypes import string_at
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from repro.attention.decoding import keys_of
from repro.attention.patterns import Pattern, union

NOTHING = -1e30  # the log of zero weight; finite, so that differences of logs are defined
FEW = 128  # positions gathered into one tile, at most; also at most an eighth of the sequence


class Tile(NamedTuple):
    """Queries `rows` against `keys`, slices or listed positions; `bias` (rows, keys) is 0 for allowed pairs and
    -inf for others; None if all are allowed."""

    rows: slice | Tensor
    keys: slice | Tensor
    bias: Tensor | None


class Hidden(NamedTuple):
    """Values that differ between samples: -inf at padding (B*H, 1, N), the documents (B*H, N); dropout and its seed."""

    padding: Tensor | None
    documents: Tensor | None
    heads: int  # of each sample
    dropout: float
    seed: int

    @property
    def keys(self) -> bool:
        """Whether some keys are hidden that the pattern would show."""
        return self.padding is not None or self.documents is not None


@lru_cache(maxsize=64)
def tiles(pattern: Pattern, n: int, block: int, device: torch.device | str = "cpu",
          dtype: torch.dtype = torch.float32, by_keys: bool = False) -> list[Tile]:
    """Tiles that hold every allowed pair of n positions exactly once, each of up to `block` queries or of few keys.

    by_keys: each of up to `block` keys, with the queries that see one of them.
    """
    biases, found, position = {}, [], torch.arange(n)
    for number, part in enumerate(pattern.parts):
        before = union(pattern.parts[:number]).predicate(n) if number else None
        for rows, keys, allowed in _covering(part, n, block, by_keys):
            if before is not None:
                allowed = allowed & ~before(position[rows, None], position[keys])
            known = allowed.shape, string_at(allowed.data_ptr(), allowed.numel())  # its bytes, without NumPy
            if allowed.any() and known not in biases:
                bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf).to(device)
                biases[known] = None if allowed.all() else bias
            if known in biases:
                rows, keys = (one if isinstance(one, slice) else one.to(device) for one in (rows, keys))
                found.append(Tile(rows, keys, biases[known]))
    return found


def _covering(part: Pattern, n: int, block: int,
              by_keys: bool) -> Iterator[tuple[slice | Tensor, slice | Tensor, Tensor]]:
    """(rows, keys, which of their pairs are allowed) of tiles that hold every allowed pair of a part once."""
    position = torch.arange(n)
    stretches = [keys.within(n, position) for keys in part.keys(position)]
    sees = torch.stack([first <= last for first, last, _ in stretches]).any(0) if stretches else position < 0
    rows, keys = sees.nonzero().flatten(), torch.as_tensor(keys_of(part, position, n))
    if 0 < min(len(rows), len(keys)) <= min(FEW, n // 8):
        rows, keys = (slice(0, n), keys) if len(keys) <= len(rows) else (rows, slice(0, n))
        yield rows, keys, part.predicate(n)(position[rows, None], position[keys]).contiguous()
        return
    for first, last, step in stretches:
        for rows, keys in _blocks(first, last, step, block, by_keys):
            j = position[keys]
            yield rows, keys, (j >= first[rows, None]) & (j <= last[rows, None])


def _blocks(first: Tensor, last: Tensor, step: int, block: int, by_keys: bool) -> Iterator[tuple[slice, slice]]:
    """(rows, keys) of at most `block` queries (keys if `by_keys`); a block's queries have keys of one residue class."""
    sees = first <= last
    stride = 1 if (first[sees] % step).unique().numel() <= 1 else step
    for residue in range(stride):
        own = sees[residue::stride]
        if not own.any():
            continue
        origin = (first[residue::stride][own][0] % step).item()
        low, high = ((end[residue::stride] - origin).div(step, rounding_mode="floor") for end in (first, last))
        ways = (residue, stride), (origin, step)
        if by_keys:
            low, high = _turned(low, high, own)
            own, ways = low <= high, ways[::-1]
        own = own.int()
        edges = torch.diff(own, prepend=own.new_zeros(1), append=own.new_zeros(1)).nonzero().flatten().tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            for at in range(start, stop, block):
                end = min(at + block, stop)
                spans = (at, end), (low[at:end].min().item(), high[at:end].max().item() + 1)
                one, other = (slice(zero + begin * by, zero + (until - 1) * by + 1, by)
                              for (zero, by), (begin, until) in zip(ways, spans, strict=True))
                yield (other, one) if by_keys else (one, other)


def _turned(low: Tensor, high: Tensor, sees: Tensor) -> tuple[Tensor, Tensor]:
    """For every key the first query whose keys do not end before it, and the last one whose keys have begun."""
    count, query = high[sees].max().item() + 1, torch.arange(len(low))[sees]
    since = query.new_full((count,), len(low)).scatter_reduce(0, high[sees], query, "amin")
    until = query.new_full((count,), -1).scatter_reduce(0, low[sees], query, "amax")
    return since.flip(0).cummin(0).values.flip(0), until.cummax(0).values
