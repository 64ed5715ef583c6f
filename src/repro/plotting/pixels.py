"""Which pixels of an image one pixel attends to, computed from the attention patterns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from repro.errors import ReproError
from repro.plotting.shapes import SMALL, add_cell, add_text, fit_page
from repro.plotting.style import COLOURS, Drawing, canvas, house

if TYPE_CHECKING:
    from repro.attention import Pattern

MOST = 16  # pixels per side
KINDS = {"query": "ink", "first head": "scored", "second head only": "h_prev", "earlier, not seen": "read",
         "later": "empty"}
GAP = 1.5  # pixels between two panels


@house()
def draw_pixels(patterns: Mapping[str, "Sequence[Pattern]"], side: int = 8, row: int = 5, column: int = 3) -> Drawing:
    """Which pixels of a side x side image the pixel at (row, column) attends to (Child et al. 2019, section 4.3).

    One panel per pattern, given as its two heads; one byte per pixel, read row by row. Blue: the first head; orange:
    pixels that only the second head adds. Raises ReproError for a size that cannot be drawn, a pixel outside the image,
    and if a pattern does not have two heads.

    >>> from repro.attention import Strided
    >>> draw_pixels({"strided": Strided(4).heads}, side=4, row=2, column=1).alt.partition(". ")[2]
    'strided: 3 by the first head, 2 more by the second.'
    """
    if not 2 <= side <= MOST:
        raise ReproError(f"side is {side} pixels; 2 to {MOST} can be drawn.")
    if not (0 <= row < side and 0 <= column < side):
        raise ReproError(f"pixel ({row}, {column}) is outside the image; row and column go from 0 to {side - 1}.")
    if not patterns or any(not isinstance(heads, (list, tuple)) or len(heads) != 2 for heads in patterns.values()):
        raise ReproError("each pattern must be given as its two heads, such as Strided(8).heads.")
    figure, axis = canvas(1, alt=f"Pixels that the pixel in row {row}, column {column} of an image of {side} x {side} "
                                 "pixels attends to.")
    counts, figure.values = [], []
    for panel, (name, heads) in enumerate(patterns.items()):
        left = panel * (side + GAP)
        kinds = seen_pixels(heads, side, row, column)
        for y, x in np.ndindex(side, side):
            add_cell(axis, left + x, -y - 1, COLOURS[KINDS[kinds[y, x]]], kinds[y, x])
        figure.values += [{"pattern": name, "row": y, "column": x, "kind": str(kind)}
                          for (y, x), kind in np.ndenumerate(kinds)]
        add_text(axis, left, 0.7, name, ha="left", size=10.5, weight="bold")
        first, second = (int((kinds == kind).sum()) for kind in ("first head", "second head only"))
        counts.append(f"{name}: {first} by the first head, {second} more by the second")
    width = len(patterns) * (side + GAP) - GAP
    y = -side - 1.3
    for number, (kind, name) in enumerate(KINDS.items()):
        x = (number % 3) * width / 3
        add_cell(axis, x, y - 0.5 - 1.2 * (number // 3), COLOURS[name], "key")
        add_text(axis, x + 1.3, y - 1.2 * (number // 3), kind, ha="left", size=SMALL)
    figure.alt += f" {'; '.join(counts)}."
    return fit_page(figure, axis, (-0.2, max(width, 18) + 0.2), (y - 2, 1.4))


def seen_pixels(heads: "Sequence[Pattern]", side: int, row: int, column: int) -> np.ndarray:
    """(side, side) names of KINDS: the relation of each pixel to the pixel at (row, column)."""
    import torch

    query, keys = row * side + column, torch.arange(side**2)
    first, second = (head(torch.tensor(query), keys).numpy() for head in heads)
    keys = keys.numpy()
    kinds = np.select([keys == query, keys > query, first, second],
                      ["query", "later", "first head", "second head only"], "earlier, not seen")
    return kinds.reshape(side, side)
