"""What a decoder keeps of a text that it has read, so that the next token costs one token and not the whole text again.
"""

from collections.abc import Iterator, Sized
from typing import NamedTuple

from torch import Tensor

from repro.errors import ReproError

Kept = tuple[Tensor, ...]  # of a layer: keys, values, and what else its next token needs; each (B, ...)


class Past(NamedTuple):
    """A text of n tokens as `extend` of a decoder leaves it."""

    n: int
    layers: tuple[Kept | None, ...]  # the bottom one first; None: nothing that a later token can see

    def select(self, rows: list[int]) -> "Past":
        """The texts that stand at `rows`, which may name one several times or leave it out."""
        return Past(self.n, tuple(kept and tuple(part[rows] for part in kept) for kept in self.layers))


def check_past(past: Past | None, ids: Tensor, layers: Sized) -> None:
    """Raise ReproError for what is no past of a model with these layers, or one of other texts than `ids` (B, T)."""
    if past is None:
        return
    if not isinstance(past, Past) or len(past.layers) != len(layers):
        raise ReproError(f"past is a {type(past).__name__}; give what `extend` of the same model has returned.")
    rows = next((len(kept[0]) for kept in past.layers if kept), len(ids))
    if rows != len(ids):
        raise ReproError(f"ids are of {len(ids)} texts and past is of {rows}; give as many of each.")


def pieces(start: int, n: int, size: int) -> Iterator[tuple[int, int]]:
    """The pieces, first and behind the last, of n tokens that stand behind `start` others; none goes over a multiple of
    `size`, counted from the beginning of the text."""
    first = start
    while first < start + n:
        behind = min(start + n, (first // size + 1) * size)
        yield first - start, behind - start
        first = behind
