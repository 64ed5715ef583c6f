"""Which positions a query sees in the two kinds of layers of T-DMCA."""

import numpy as np
from matplotlib.patches import Rectangle

from repro.errors import ReproError
from repro.plotting.shapes import add_cell, add_text, check_drawable, fit_page
from repro.plotting.style import COLOURS, Drawing, canvas, house

GAP = 3  # cells between the two grids


@house()
def draw_memory_compressed(n_tokens: int = 12, block: int = 4, stride: int = 3) -> Drawing:
    """Which tokens a query sees in a local and in a memory-compressed layer (Liu et al. 2018, section 4.2.4).

    Rows are queries, columns are tokens. A local layer attends within blocks of `block` tokens, as computed by
    `BlockLocal`. A memory-compressed layer attends to all earlier tokens, through one key per `stride` tokens. Each bar
    is one key; it is orange if the query has read only part of the key's group.
    Raises ReproError for sizes that cannot be drawn.

    >>> draw_memory_compressed().alt.partition(":")[0]
    'Who sees whom in the two kinds of layers of T-DMCA'
    """
    from repro.attention import BlockLocal

    check_drawable(n_tokens, most=24)
    for name, value in (("block", block), ("stride", stride)):
        if not 1 <= value <= n_tokens:
            raise ReproError(f"{name} is {value}; it must be from 1 to n_tokens ({n_tokens}).")
    figure, axis = canvas(1, alt=f"Who sees whom in the two kinds of layers of T-DMCA: a local layer stays inside its "
                                 f"block of {block} tokens, a memory-compressed layer sees all earlier tokens through "
                                 f"one key for every {stride}.")
    second = n_tokens + GAP
    local = BlockLocal(block).mask(n_tokens).numpy()
    for x, title, about in ((0, "local", f"blocks of {block} tokens"),
                            (second, "memory-compressed", f"one key for every {stride} tokens")):
        add_text(axis, x, 2.0, title, ha="left", size=11, weight="bold")
        add_text(axis, x, 0.9, about, ha="left", size=10)
        add_text(axis, x + n_tokens / 2, -n_tokens - 0.8, "tokens", color=COLOURS["faint"])
    for i, j in np.ndindex(n_tokens, n_tokens):
        add_cell(axis, j, -1 - i, COLOURS["scored" if local[i, j] else "empty"], "local" if local[i, j] else "unseen")
        if j > i:
            add_cell(axis, second + j, -1 - i, COLOURS["empty"], "unseen")
    for i in range(n_tokens):
        for start in range(0, i + 1, stride):
            width = min(stride, i + 1 - start)
            whole = width == stride
            axis.add_patch(Rectangle((second + start + 0.06, -0.96 - i), width - 0.12, 0.92, edgecolor="none",
                                     facecolor=COLOURS["scored" if whole else "h_prev"],
                                     gid="key" if whole else "part"))
    add_text(axis, -0.6, -n_tokens / 2, "queries", rotation=90, color=COLOURS["faint"])
    y = -n_tokens - 2.6
    for x, colour, words in ((0, "scored", "seen; a bar is one key"),
                             (second, "h_prev", "key of a group still being read")):
        add_cell(axis, x, y, COLOURS[colour], "legend")
        add_text(axis, x + 1.3, y + 0.5, words, ha="left", size=10)
    return fit_page(figure, axis, (-1.2, second + n_tokens + 0.2), (y - 0.3, 2.7))
