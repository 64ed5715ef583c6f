"""Images drawn by a model, spectrograms, learned attention weights, and the connectivity of positions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from repro.plotting.style import COLOURS, Drawing, canvas, house

if TYPE_CHECKING:
    from torch import Tensor

MOST = 8  # pictures per row
KINDS = [COLOURS["empty"], COLOURS["scored"], COLOURS["h_prev"]]  # colors of cells 0, 1 and 2


@house()
def draw_images(rows: Mapping[str, Sequence[np.ndarray]]) -> Drawing:
    """Images (side, side, 3) uint8, one row per name; a name without images says "not run".

    >>> import numpy as np
    >>> draw_images({"drawn": [np.zeros((4, 4, 3), dtype=np.uint8)], "sampled": []}).alt
    'Images. drawn: 1; sampled: not run.'
    """
    columns = min(MOST, max((len(images) for images in rows.values()), default=1) or 1)
    height = 7 / (columns + 1) if any(len(images) for images in rows.values()) else 0.3  # inches
    figure, axes = canvas(0.35 + height * len(rows), columns=columns, rows=len(rows), squeeze=False,
                          alt="Images. " + "; ".join(f"{name}: {len(images) or 'not run'}"
                                                     for name, images in rows.items()) + ".")
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for axis in line:
            axis.set_axis_off()
        for axis, image in zip(line, images, strict=False):
            axis.imshow(image, interpolation="nearest")
        line[0].set_title(name if len(images) else f"{name}: not run", loc="left", size=9)
    figure.is_photograph = True
    return figure


@house()
def draw_spectrograms(sounds: Mapping[str, np.ndarray], rate: int, window: int = 512) -> Drawing:
    """The loudness of each frequency over time, in decibels below the loudest; one panel per sound (n,) from -1 to 1.

    >>> import numpy as np
    >>> draw_spectrograms({"tone": np.sin(np.arange(4_800))}, rate=12_000).alt
    'Spectrograms: tone, 0.40 s.'
    """
    figure, axes = canvas(2.4, columns=max(1, len(sounds)), squeeze=False, sharey=True, alt=(
        f"Spectrograms: {', '.join(f'{name}, {len(x) / rate:.2f} s' for name, x in sounds.items()) or 'not run'}."))
    if not sounds:
        axes[0, 0].set_title("not run")
        axes[0, 0].set_axis_off()
    for axis, (name, x) in zip(axes[0], sounds.items(), strict=False):
        size = max(8, min(window, len(x) // 4))
        frames = np.lib.stride_tricks.sliding_window_view(x, size)[::size // 4] * np.hanning(size)
        power = np.abs(np.fft.rfft(frames)).T ** 2
        loud = 10 * np.log10(np.maximum(power / max(power.max(), 1e-12), 1e-6))
        axis.imshow(loud, origin="lower", aspect="auto", cmap="magma", interpolation="nearest",
                    extent=(0, len(x) / rate, 0, rate / 2000))
        axis.set(title=name, xlabel="seconds")
        axis.grid(visible=False)
    axes[0, 0].set_ylabel("kHz")
    figure.is_photograph = True
    return figure


@house()
def draw_weights(panels: Mapping[str, "Tensor"], columns: int = 4) -> Drawing:
    """How strongly each query (rows, from the top) attends to each key (columns): (n, n) softmax weights, or a mask.

    A stronger blue is a larger weight; every row is scaled to its largest weight.

    >>> draw_weights({"head 1": torch.eye(3)}).alt
    'Who attends to whom, and how much: head 1.'
    """
    rows = -(-len(panels) // columns)
    figure, axes = canvas(2.0 * rows, columns=columns, rows=rows, squeeze=False,
                          alt=f"Who attends to whom, and how much: {', '.join(panels)}.")
    figure.values = [
        {"panel": name, "query": query} | {f"key {key}": round(one, 3) or None for key, one in enumerate(row)}
        for name, weights in panels.items() for query, row in enumerate(weights.tolist())]
    for axis in axes.flat[len(panels):]:
        axis.set_axis_off()
    for axis, (name, weights) in zip(axes.flat, panels.items(), strict=False):
        shown = weights.double().numpy()
        heatmap(axis, shown / np.maximum(shown.max(1, keepdims=True), 1e-12), "Blues", vmax=1)
        axis.set_title(name, size=9)
    return figure


def places(row: np.ndarray) -> str:
    """The positions at which a row (n,) is True, as text: "0 3 4"."""
    return " ".join(map(str, np.flatnonzero(row)))


def heatmap(axis, cells: np.ndarray, cmap: str | list[str] = KINDS, vmax: int = 2, **options) -> None:
    """Draw square cells with values 0 to `vmax`, the first row on top; in an SVG they are pixels, except with
    `linewidths`."""
    import seaborn

    seaborn.heatmap(cells, vmin=0, vmax=vmax, cmap=cmap, cbar=False, ax=axis, **{
        "square": True, "xticklabels": False, "yticklabels": False,
        "rasterized": "linewidths" not in options} | options)


@house()
def draw_connectivity(fields: Mapping[str, Sequence["Tensor"]]) -> Drawing:
    """The positions that each position (rows, from the top) has received information from, after each layer.

    fields: name -> (n, n) bool for each layer, from the first; one row of panels per name. Blue positions were reached
    before, orange ones are new in this layer. A page can play the layers in order, starting where every position knows
    only itself.

    >>> draw_connectivity({"causal": [torch.ones(4, 4).tril().bool()]}).alt
    'Whom each position has heard from, layer by layer. causal: 10 pairs.'
    """
    layers = max(len(masks) for masks in fields.values())
    figure, axes = canvas(0.3 + 1.75 * len(fields), columns=layers, rows=len(fields), squeeze=False, alt=(
        "Whom each position has heard from, layer by layer. " + "; ".join(
            f"{name}: {', '.join(f'{int(mask.sum())} pairs' for mask in masks)}" for name, masks in fields.items())
        + "."))
    figure.values = [{"pattern": name, "layer": layer, "position": position, "heard from": places(row)}
                     for name, masks in fields.items() for layer, mask in enumerate(masks, 1)
                     for position, row in enumerate(mask.numpy())]
    moments = [canvas(3.2, columns=len(fields), squeeze=False, alt=f"After layer {k}.") for k in range(layers + 1)]
    for column, (line, (name, masks)) in enumerate(zip(axes, fields.items(), strict=True)):
        known = [np.eye(len(masks[0]), dtype=bool), *(mask.numpy() for mask in masks)]
        known += [known[-1]] * (layers + 1 - len(known))
        for axis in line[len(masks):]:
            axis.set_axis_off()
        for number, (moment, (panels,)) in enumerate(moments):
            moment.name = f"layer {number}" if number else "before"
            before, now = known[max(0, number - 1)], known[number]
            described = f"{name}, after layer {number}" if number else f"{name}, before the first layer"
            _paint_heard(panels[column], before, now, described)
            if 0 < number <= len(masks):
                _paint_heard(line[number - 1], before, now, described)
    figure.frames = [moment for moment, _ in moments]
    return figure


def _paint_heard(axis, before, now, title: str) -> None:
    """Draw (n, n) booleans: what was reached before, and what is reached now."""
    heatmap(axis, np.where(before, 1, now * 2))
    axis.set_title(title, size=9)
