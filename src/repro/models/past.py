"""A decoder's cache of the text read so far, so that the next token does not need to read the whole text again.
"""

from collections.abc import Iterator, Sized
from typing import NamedTuple

from torch import Tensor

from repro.errors import ReproError

Kept = tuple[Tensor, ...]  # per layer: keys, values, and other state for the next token; each (B, ...)


class Past(NamedTuple):
    """The cache for a text of n tokens, returned by `extend` of a decoder."""

    n: int
    layers: tuple[Kept | None, ...]  # from the bottom layer; None: later tokens need nothing from it

    def select(self, rows: list[int]) -> "Past":
        """The cache for the texts in `rows`, which may repeat or omit texts."""
        return Past(self.n, tuple(kept and tuple(part[rows] for part in kept) for kept in self.layers))


def check_past(past: Past | None, ids: Tensor, layers: Sized) -> None:
    """Raise ReproError unless `past` is from a model with these layers, for as many texts as `ids` (B, T)."""
    if past is None:
        return
    if not isinstance(past, Past) or len(past.layers) != len(layers):
        raise ReproError(f"past is a {type(past).__name__}; give the result of `extend` of the same model.")
    rows = next((len(kept[0]) for kept in past.layers if kept), len(ids))
    if rows != len(ids):
        raise ReproError(f"ids have {len(ids)} texts, but past has {rows}; give the same number.")


def pieces(start: int, n: int, size: int) -> Iterator[tuple[int, int]]:
    """Pieces (first, one past the last) of n tokens that follow `start` others. No piece crosses a multiple of `size`,
    counted from the beginning of the text."""
    first = start
    while first < start + n:
        behind = min(start + n, (first // size + 1) * size)
        yield first - start, behind - start
        first = behind
