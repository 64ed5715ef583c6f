"""What a decoder keeps of a text that it has read, so that the next token costs one token and not the whole text again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

Kept = tuple[Tensor, ...]  # of a layer: keys, values, and what else its next token needs; each (B, ...)


class Past(NamedTuple):
    """A text of n tokens as `extend` of a decoder leaves it."""

    n: int
    layers: tuple[Kept | None, ...]  # the bottom one first; None: nothing that a later token can see

    def of(self, rows: list[int]) -> "Past":
        """The texts that stand at `rows`, which may name one several times or leave it out."""
        return Past(self.n, tuple(kept and tuple(part[rows] for part in kept) for kept in self.layers))


def pieces(start: int, n: int, size: int) -> Iterator[tuple[int, int]]:
    """The pieces, first and behind the last, of n tokens that stand behind `start` others; none goes over a multiple of
    `size`, counted from the beginning of the text."""
    first = start
    while first < start + n:
        behind = min(start + n, (first // size + 1) * size)
        yield first - start, behind - start
        first = behind
