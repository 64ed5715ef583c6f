"""Diagrams of windows and of the recurrence module, computed with the code that the models use."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from math import ceil

import numpy as np

from repro.errors import ReproError, unknown
from repro.plotting.shapes import WORDS, add_arrow, add_cell, add_text, box, check_drawable, fit_page
from repro.plotting.style import COLOURS, Drawing, canvas, house
from repro.windows import Window, windows

STEP = 2.0  # distance between rows of hidden states


@house()
def draw_windows(n_tokens: int, window: int, overlap: int | Sequence[int] = (0, 2)) -> Drawing:
    """Which tokens each window reads and which it scores (Yoshida et al. 2020, Figure 3), one panel per overlap.

    All sizes are in tokens; the windows come from `repro.windows.windows`. A pale cell is a token that is read, a dark
    square one that is predicted and scored. Raises ReproError for an overlap out of range and for a text too long or
    short to draw.

    >>> draw_windows(n_tokens=9, window=4, overlap=[0, 2]).alt
    'Windows of 4 tokens over a text of 9, at overlap 0, 2: what each window reads and what it scores.'
    """
    check_drawable(n_tokens, most=120)
    overlaps = [overlap] if isinstance(overlap, int) else list(overlap)
    figure, axis = canvas(1, alt=f"Windows of {window} tokens over a text of {n_tokens}, at overlap "
                                 f"{', '.join(map(str, overlaps))}: what each window reads and what it scores.")
    scale = max(n_tokens / 20, 1)  # letters keep their size, so cells of a longer text need more room
    left, y = -3.6 * scale, 0.0
    for some in overlaps:
        cover = windows(n_tokens, window, some)
        least = min((span.offset + 1 for span in cover[1:]), default=1)
        add_text(axis, left, y, f"overlap {some}", ha="left", size=10.5, weight="bold")
        if len(cover) > 1:
            add_text(axis, 0, y, f"after window 1, a scored token sees {least} or more tokens of its window", ha="left")
        y -= 1.1 * scale
        if n_tokens <= 30:
            for token in range(n_tokens):
                add_text(axis, token + 0.5, y, token, color=COLOURS["faint"])
            y -= 0.6
        for row, span in enumerate(cover):
            y -= max(scale / 2, 1)
            for token in range(span.start, span.stop):
                add_cell(axis, token, y, COLOURS["read"], "read")
            for token in range(span.first_target, span.stop + 1):
                add_cell(axis, token, y, COLOURS["scored"], "scored", size=0.5)
            add_text(axis, -0.4 * scale, y + 0.5, f"window {row + 1}", ha="right")
        y -= 1.2 * scale
    for x, name, colour, size in ((0, "read", "read", 0.92), (0.3 * n_tokens, "predicted and scored", "scored", 0.5)):
        add_cell(axis, x, y - 0.5, COLOURS[colour], "key", size)
        add_text(axis, x + 1 + 0.2 * scale, y, name, ha="left")
    return fit_page(figure, axis, (left, n_tokens + 0.2), (y - 0.7, 0.6 * scale))


@house()
def draw_recurrence(n_windows: int = 3, window: int = 4, overlap: int = 0, n_layer: int = 4,
                    insert_layer: int = 1, layers: str = "learned") -> Drawing:
    """How a long text is read window by window (Yoshida et al. 2020, Figure 1).

    A cell is one hidden state: columns are tokens, the lowest row their embeddings, row l + 1 the output of block l.
    The mean of each row is weighted and summed to z (Equation 1). A feedforward network turns z into h_prev, which is
    drawn next to the input of block `insert_layer` (counted from 0) in the next window. The first window has no h_prev.
    layers: "last" to compute z only from the mean of the last block's states, as in section 5.4.
    A page can show it step by step: read a window, compute z, compute h_prev, read the next window.
    Raises ReproError for a size out of range, and other `layers`.

    >>> print(draw_recurrence(n_windows=2, window=3).alt.partition(";")[0])
    2 windows of 3 tokens
    """
    if n_windows > 3:
        raise ReproError(f"n_windows is {n_windows}; there is room for 1 to 3 beside each other.")
    if layers not in POOLED:
        raise unknown("layers", layers, POOLED)
    cover = _some_windows(n_windows, window, overlap)
    _layer(insert_layer, n_layer)
    whole, *steps = (_recurrence(cover, window, n_layer, insert_layer, layers, shown)
                     for shown in (None, *range(1, 3 * n_windows - 1)))
    whole.frames = steps if n_windows > 1 else ()
    return whole


POOLED = {"learned": "the hidden states of each", "last": "the last block's states of each"}  # pooled to z


def _recurrence(cover: Sequence[Window], window: int, n_layer: int, insert_layer: int, layers: str,
                shown: int | None) -> Drawing:
    """Draw the first `shown` steps of reading these windows; None: all steps."""
    figure, axis = canvas(1, alt=f"{len(cover)} windows of {window} tokens; {POOLED[layers]} are pooled to z, "
                                 f"turned into h_prev and given to block {insert_layer} in the next window.")
    scale = max(len(cover) * window / (29.8 - 6.2 * len(cover)), 1)  # letters keep their size: wide windows, wide gaps
    gap, top = 6.2 * scale, n_layer * STEP + 1 + 0.6 * scale
    lefts = [k * (window + gap) for k in range(len(cover))]
    for layer in range(n_layer):
        add_text(axis, -0.5, layer * STEP + 1.5, f"block {layer}", ha="right")
    add_text(axis, -0.5, min(0.5, 1.5 - 0.55 * scale), "embedding", ha="right")
    steps = []
    for k, (x, span) in enumerate(zip(lefts, cover, strict=True)):
        if k:
            steps += [partial(_pool, axis, x - gap, n_layer if layers == "last" else 1, n_layer, top, scale),
                      partial(_hand_over, axis, x - gap, x - 0.75, insert_layer * STEP, top, scale)]
        steps.append(partial(_read, axis, x, span, f"window {k + 1}", n_layer, insert_layer if k else None, scale))
    for step in steps[:shown]:
        step()
    return fit_page(figure, axis, (-4.4 * scale, lefts[-1] + window + 0.3), (-2.2 * scale, top + 1.2 * scale))


def _read(axis, x: float, span: Window, name: str, n_layer: int, insert_layer: int | None, scale: float) -> None:
    """Draw the hidden states of a window whose first token is at x; block `insert_layer` has room for h_prev."""
    width = span.stop - span.start
    for layer in range(n_layer + 1):
        for token in range(width):
            add_cell(axis, x + token, layer * STEP, COLOURS["read"] if layer else COLOURS["grid"], "state")
    for layer in range(n_layer):
        extra = 1.3 if layer == insert_layer else 0
        axis.add_patch(box(x - extra, layer * STEP + 1.18, width + extra, 0.64,
                            COLOURS["pale"] if extra else COLOURS["empty"],
                            COLOURS["h_prev"] if extra else COLOURS["faint"]))
    for token in range(0, width, ceil(scale / 1.2)):
        add_text(axis, x + token + 0.5, -0.55 * scale, span.start + token, color=COLOURS["faint"])
    add_text(axis, x + width / 2, -1.6 * scale, name, size=10)


def _pool(axis, x: float, first: int, n_layer: int, top: float, scale: float) -> None:
    """Draw the means of layers `first` to the last for the window that ends at x, and z."""
    bus = x + 1.3 * scale
    for layer in range(first, n_layer + 1):
        axis.plot([x + 0.5 * scale, bus], [layer * STEP + 0.5] * 2, color=COLOURS["pool"], lw=1)
        axis.plot(x + 0.5 * scale, layer * STEP + 0.5, "o", ms=6, color=COLOURS["pool"])
    axis.plot([bus, bus], [first * STEP + 0.5, top], color=COLOURS["pool"], lw=1)
    add_text(axis, bus - 0.2 * scale, first * STEP + 0.5 - 0.9 * scale, "means" if first < n_layer else "mean",
          color=WORDS["pool"])
    axis.plot(bus, top + 0.45 * scale, "o", ms=17, color=WORDS["pool"])
    add_text(axis, bus, top + 0.45 * scale, "z", color="white", size=10, weight="bold", va="center_baseline")


def _hand_over(axis, x: float, target: float, y: float, top: float, scale: float) -> None:
    """Draw the path from z of the window that ends at x, through the feedforward network, to h_prev at (target, y)."""
    middle, down, width = top + 0.45 * scale, target - 1.25 * scale, 3.5 * scale
    axis.add_patch(box(down - width / 2, top, width, 0.9 * scale, "white", COLOURS["h_prev"]))
    add_text(axis, down, middle, "feedforward")
    add_arrow(axis, (x + 1.9 * scale, middle), (down - width / 2, middle))
    axis.plot([down, down], [top, y + 0.5], color=COLOURS["ink"], lw=1, solid_capstyle="butt")
    add_arrow(axis, (down, y + 0.5), (target - 0.45, y + 0.5))
    add_cell(axis, target - 0.5, y, COLOURS["h_prev"], "h_prev")
    add_text(axis, target + 0.45, y - 0.42 * scale, "h_prev", color=WORDS["h_prev"], ha="right")


@house()
def draw_insertion(n_windows: int = 3, window: int = 4, overlap: int = 0, n_layer: int = 4,
                   insert_layer: int = 1) -> Drawing:
    """h_prev as an additional key and value of block `insert_layer` (Yoshida et al. 2020, Figure 2).

    Above: the self-attention of that block in any window but the first. Below: which query (row) sees which key
    (column) in that block and in all others, computed with `attention_with_previous`, the function that the model uses.
    Raises ReproError for a size out of range.

    >>> print(draw_insertion(n_windows=2, window=2).alt[:66])
    Block 1 gets one more key and value, h_prev, and no query; the gri
    """
    cover = _some_windows(n_windows, window, overlap)
    _layer(insert_layer, n_layer)
    figure, axis = canvas(1, alt=f"Block {insert_layer} gets one more key and value, h_prev, and no query; the grids "
                                 f"show who sees whom in {n_windows} windows of {window} tokens.")
    grids = [(grid(cover, False), "all other blocks"), (grid(cover, True), f"block {insert_layer}")]
    gap, n_rows = 4, len(grids[0][0][1])
    width = sum(len(columns) for (_, _, columns), _ in grids) + gap
    scale = max(width / 26, 1)  # letters keep their size, so more cells need more room for the letters
    high = _attention_block(axis, width, scale, window, n_layer, insert_layer)
    x = 0
    for (seen, rows, columns), title in grids:
        add_text(axis, x, -1.2 * scale, title, ha="left", size=10.5, weight="bold")
        for j, token in enumerate(columns):
            if token is None:
                add_text(axis, x + j + 0.5, -2.5 * scale, "h", color=WORDS["h_prev"])
            elif token % ceil(scale / 1.15) == 0:
                add_text(axis, x + j + 0.5, -2.5 * scale, token, color=COLOURS["faint"])
        for i, token in enumerate(rows):
            y = -3.2 * scale - 1 - i
            if token % ceil(scale / 1.6) == 0:
                add_text(axis, x - 0.3 * scale, y + 0.45, token, ha="right", color=COLOURS["faint"])
            for j, key in enumerate(columns):
                colour = COLOURS["empty" if not seen[i, j] else "h_prev" if key is None else "scored"]
                add_cell(axis, x + j, y, colour, "seen" if seen[i, j] else "unseen")
        x += len(columns) + gap
    add_text(axis, -2.2 * scale, -3.2 * scale - n_rows / 2, "queries", rotation=90, color=COLOURS["faint"])
    add_text(axis, -0.3, -2.5 * scale, "keys", ha="right", color=COLOURS["faint"])
    return fit_page(figure, axis, (-2.8 * scale, width + 0.3), (-3.2 * scale - n_rows - 0.3, high + 0.3))


def _attention_block(axis, width: float, scale: float, window: int, n_layer: int, insert_layer: int) -> float:
    """Draw the stack of blocks, and the queries, keys and values of the block that h_prev enters; return its height."""
    high, stack = 9.5 * scale, 4 * scale
    each = high / n_layer
    for layer in range(n_layer):
        here = layer == insert_layer
        axis.add_patch(box(-2.2 * scale, (layer + 0.12) * each, stack, 0.76 * each,
                            COLOURS["pale" if here else "empty"], COLOURS["h_prev" if here else "faint"]))
        add_text(axis, stack / 2 - 2.2 * scale, (layer + 0.5) * each, f"block {layer}")
    left = stack - 2.2 * scale
    for end in (0.1, high):
        axis.plot([left + 0.1, left + 1.4 * scale], [(insert_layer + 0.5) * each, end], color=COLOURS["h_prev"], lw=1,
                  ls=":")
    left += 1.4 * scale
    size = min(scale, (width - left - 3 * scale) / (3 * window + 2))  # size of a drawn vector
    middle = (left + width) / 2

    def vectors(centre: float, y: float, kind: str, extra: bool) -> None:
        start = centre - size * (window + extra) / 2
        for k in range(window + extra):
            colour = COLOURS["h_prev" if extra and k == 0 else "read"]
            add_cell(axis, start + k * size, y, colour, kind, unit=size)

    vectors(middle, 0.2, "input", True)
    beside = size * (window + 1) / 2 + 0.3
    add_text(axis, middle - beside, 0.2 + size / 2, "h_prev", ha="right", color=WORDS["h_prev"])
    add_text(axis, middle + beside, 0.2 + size / 2, "tokens of this window", ha="left")
    apart = (width - left) / 3
    for centre, name in zip((middle - apart, middle, middle + apart), ("queries", "keys", "values"), strict=True):
        vectors(centre, 3.9 * scale, name, name != "queries")
        add_text(axis, centre, 3.9 * scale + size + 0.5 * scale, name)
        near = middle + 0.2 * (centre - middle)
        add_arrow(axis, (near, 0.4 + size), (centre, 3.8 * scale))
        add_arrow(axis, (centre, 3.9 * scale + size + scale), (near, high - size - 0.3))
    vectors(middle, high - size - 0.2, "output", False)
    add_text(axis, middle + beside, high - size / 2 - 0.2, "one output per token", ha="left")
    return high


@house()
def draw_inputs(forms: Mapping[str, Sequence[Sequence[tuple[str, bool]]]]) -> Drawing:
    """The input that a model reads for an example of each form (Radford et al. 2018, Figure 1), one row per sequence.

    forms: for each form its sequences, for each sequence its tokens and whether they are special. Raises ReproError for
    a form without a sequence.

    >>> draw_inputs({"classification": [[("start", True), ("a", False), ("text", False), ("extract", True)]]}).alt
    'How an example of classification is read: its tokens, between special ones.'
    """
    if not forms or not all(forms.values()):
        raise ReproError("there is a form without a sequence; give at least one sequence of each.")
    figure, axis = canvas(1, alt=f"How an example of {', '.join(forms)} is read: its tokens, between special ones.")
    y, right = 0.0, 0.0
    for name, rows in forms.items():
        add_text(axis, 0, y, name, ha="left", size=10.5, weight="bold")
        y -= 1.5
        for ids in rows:
            x = 0.0
            for text, special in ids:
                width = 0.62 * max(len(text.strip()), 2) + 0.8
                face = COLOURS["scored"] if special else COLOURS["read"]
                axis.add_patch(box(x, y - 0.6, width, 1.3, face, COLOURS["ink"] if special else face))
                add_text(axis, x + width / 2, y, text.strip(), color="white" if special else COLOURS["ink"],
                      weight="bold" if special else "normal")
                x += width + 0.15
            right = max(right, x)
            y -= 1.6
        y -= 0.6
    return fit_page(figure, axis, (-0.2, max(right, 30)), (y + 0.4, 0.9))


def grid(cover: Iterable[Window], inserted: bool) -> tuple[np.ndarray, list[int], list[int | None]]:
    """Which token sees which when the windows of `cover` are read one after the other.

    Returns seen (queries, keys) as booleans, the token of each query, and the token of each key (None for h_prev).
    inserted: whether this is the layer that h_prev enters.
    """
    blocks, rows, columns = [], [], []
    for k, span in enumerate(cover):
        read = list(range(span.start, span.stop))
        has_previous = inserted and k > 0
        blocks.append(visible(len(read), int(has_previous)))
        rows += read
        columns += [None] * has_previous + read
    seen, row, column = np.zeros((len(rows), len(columns)), bool), 0, 0
    for block in blocks:
        seen[row:row + block.shape[0], column:column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return seen, rows, columns


@cache
def visible(length: int, n_previous: int) -> np.ndarray:
    """Which keys the tokens of a window see, (length, n_previous + length), computed with the model's own attention.

    With equal scores and one-hot values, the output of a query is its attention weight on every key.
    """
    import torch

    from repro.recurrence.causal import attention_with_previous

    values = torch.eye(n_previous + length)[None, None]
    nothing = torch.zeros_like(values)
    previous = (nothing[:, :, :n_previous], values[:, :, :n_previous]) if n_previous else None
    queries, keys = nothing[:, :, n_previous:], nothing[:, :, n_previous:]
    out, _ = attention_with_previous(None, queries, keys, values[:, :, n_previous:], previous=previous)
    return (out[0, :, 0] > 0).numpy()


def _some_windows(n_windows: int, window: int, overlap: int) -> list[Window]:
    if n_windows < 1:
        raise ReproError(f"n_windows is {n_windows}; draw at least 1.")
    n_tokens = n_windows * window - (n_windows - 1) * overlap + 1
    cover = windows(n_tokens, window, overlap)
    check_drawable(sum(span.stop - span.start for span in cover), most=48)
    return cover


def _layer(insert_layer: int, n_layer: int) -> None:
    if not 0 <= insert_layer < n_layer:
        raise ReproError(f"insert_layer is {insert_layer}, but the drawn model has layers 0 to {n_layer - 1}.")
