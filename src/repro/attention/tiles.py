"""Which queries against which keys: a pattern's allowed pairs as tiles, a block of queries against what it can see.

The tiles follow from the pattern's progressions of keys: a dilated window is a plain window over the positions of one
residue class, so its tiles are slices with a step. Where a pattern has few queries or few keys, as global positions
have, these are picked out, wherever they stand, and one tile holds them all.
"""

from collections.abc import Iterator
from ctypes import string_at
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from repro.attention.decoding import keys_of
from repro.attention.patterns import Pattern, union

NOTHING = -1e30  # the log of no weight at all; finite, so that differences of logs exist
FEW = 128  # positions, and an eighth of a sequence: as many are picked out for one tile


class Tile(NamedTuple):
    """Queries `rows` against `keys`, slices or listed positions; `bias` (rows, keys) is 0 where they may, -inf where
    not, None if all may."""

    rows: slice | Tensor
    keys: slice | Tensor
    bias: Tensor | None


class Hidden(NamedTuple):
    """What differs from sample to sample: -inf at padding (B*H, 1, N), the documents (B*H, N); dropout and its seed."""

    padding: Tensor | None
    documents: Tensor | None
    heads: int  # of each sample
    dropout: float
    seed: int

    @property
    def keys(self) -> bool:
        """Whether keys are hidden that the pattern shows."""
        return self.padding is not None or self.documents is not None


@lru_cache(maxsize=64)
def tiles(pattern: Pattern, n: int, block: int, device: torch.device | str = "cpu",
          dtype: torch.dtype = torch.float32) -> list[Tile]:
    """Tiles that hold every allowed pair of n positions exactly once, each of up to `block` queries or of few keys."""
    biases, found = {}, []
    for number, part in enumerate(pattern.parts):
        before = union(pattern.parts[:number]).predicate(n) if number else None
        for rows, keys, allowed in _covering(part, n, block):
            if before is not None:
                position = torch.arange(n)
                allowed = allowed & ~before(position[rows, None], position[keys])
            known = allowed.shape, string_at(allowed.data_ptr(), allowed.numel())  # its bytes, without NumPy
            if allowed.any() and known not in biases:
                bias = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf).to(device)
                biases[known] = None if allowed.all() else bias
            if known in biases:
                rows, keys = (one if isinstance(one, slice) else one.to(device) for one in (rows, keys))
                found.append(Tile(rows, keys, biases[known]))
    return found


def _covering(part: Pattern, n: int, block: int) -> Iterator[tuple[slice | Tensor, slice | Tensor, Tensor]]:
    """(rows, keys, which of these pairs are allowed) of tiles that hold each pair of a part once."""
    position = torch.arange(n)
    stretches = [keys.within(n, position) for keys in part.keys(position)]
    sees = torch.stack([first <= last for first, last, _ in stretches]).any(0) if stretches else position < 0
    rows, keys = sees.nonzero().flatten(), keys_of(part, position, n)
    if 0 < min(len(rows), len(keys)) <= min(FEW, n // 8):
        whole = slice(0, n)
        rows = whole if len(rows) > len(keys) else rows
        keys = torch.as_tensor(keys) if isinstance(rows, slice) else whole
        yield rows, keys, part.predicate(n)(position[rows, None], position[keys]).contiguous()
        return
    for first, last, step in stretches:
        for rows in _blocks(first, last, step, block):
            keys = slice(first[rows].min().item(), last[rows].max().item() + 1, step)
            j = position[keys]
            yield rows, keys, (j >= first[rows, None]) & (j <= last[rows, None])


def _blocks(first: Tensor, last: Tensor, step: int, block: int) -> Iterator[slice]:
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
