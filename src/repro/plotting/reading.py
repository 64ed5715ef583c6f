"""The words of a text that a summary is written from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from repro.errors import ReproError
from repro.plotting.pictures import heatmap
from repro.plotting.style import Drawing, canvas, house

if TYPE_CHECKING:
    from torch import Tensor

NAMED = 0.4  # a word of the text has a label if some row gives it this share of the row's largest weight


@house()
def draw_reading(written: Sequence[str], read: Sequence[str], weights: "Tensor") -> Drawing:
    """How much each written word (rows) attends to each word that was read (columns): attention weights (T, N).

    A stronger blue is a larger weight; every row is scaled to its largest weight. Only words that matter to a row have
    a label. Raises ReproError for weights of another shape.

    >>> draw_reading(["cat"], ["the", "cat"], torch.tensor([[0.1, 0.9]])).alt
    'How much each written word takes from each word of the text; most from: cat from "cat".'
    """
    if tuple(weights.shape) != (len(written), len(read)):
        raise ReproError(f"weights have shape {tuple(weights.shape)}; for {len(written)} words that were written from "
                         f"{len(read)} it must be ({len(written)}, {len(read)}).")
    cells = weights.double().numpy()
    cells = cells / np.maximum(cells.max(1, keepdims=True), 1e-12)
    most = ", ".join(f'{word} from "{read[k]}"' for word, k in zip(written, cells.argmax(1), strict=True))
    figure, axis = canvas(1.2 + 0.24 * len(written),
                          alt=f"How much each written word takes from each word of the text; most from: {most}.")
    figure.values = [{"written": word} | {f"{k} {text}": round(weight, 3) for k, (text, weight) in enumerate(zip(
        read, row, strict=True))} for word, row in zip(written, weights.tolist(), strict=True)]
    heatmap(axis, cells, "Blues", vmax=1, square=False, yticklabels=list(written))
    at = np.flatnonzero(cells.max(0) >= NAMED)
    axis.set_xticks(at + 0.5, [read[k] for k in at], rotation=90)
    axis.tick_params(axis="y", rotation=0)
    axis.set(xlabel="words of the text, in order", ylabel="written")
    return figure
