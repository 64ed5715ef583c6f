"""The input positions that the last position can depend on, layer by layer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import ListedColormap

from repro.errors import ReproError
from repro.plotting.pictures import KINDS
from repro.plotting.style import Drawing, canvas, house

if TYPE_CHECKING:
    from torch import Tensor


@house()
def draw_receptive_fields(fields: Mapping[str, tuple["Tensor", "Tensor"]]) -> Drawing:
    """One panel per model: one row per layer, the first layer at the bottom; the text ends at the right.

    fields: name -> (n_layer, N) bool of `repro.models.receptive_field` and of `measured_field`. A cell where the two
    differ has the color of an error. A page can show the layers in order. Raises ReproError if the shapes differ.

    >>> from repro.models import longformer_patterns, receptive_field
    >>> field = receptive_field(longformer_patterns([2, 2], n_head=2), n=5)
    >>> draw_receptive_fields({"window 2": (field, field)}).alt
    'Input positions that the last one depends on. window 2: 1, 2 positions back after layers 1 to 2.'
    """
    layers = max(len(computed) for computed, _ in fields.values())
    whole, *steps = (_painted(fields, shown) for shown in (layers, *range(1, layers + 1)))
    for layer, step in enumerate(steps, 1):
        step.name = f"layer {layer}" if layer == 1 else f"layers 1 to {layer}"
    whole.frames = steps
    return whole


def _painted(fields: Mapping[str, tuple["Tensor", "Tensor"]], shown: int) -> Drawing:
    """Draw the first `shown` layers of every panel."""
    described, values = [], []
    figure, axes = canvas(0.7 + 1.6 * len(fields), rows=len(fields), squeeze=False,
                          alt="Input positions that the last one depends on.")
    far = max(_back(one).max() for pair in fields.values() for one in pair)
    for axis, (name, (computed, measured)) in zip(axes[:, 0], fields.items(), strict=True):
        if computed.shape != measured.shape:
            raise ReproError(f"{name}: computed for {tuple(computed.shape)} layers and positions, measured for "
                             f"{tuple(measured.shape)}.")
        own, n = computed.shape
        back = _back(computed)
        kinds = np.where(computed == measured, computed, 2) * (np.arange(own) < shown)[:, None]
        axis.imshow(kinds, cmap=ListedColormap(KINDS), vmin=0, vmax=2, aspect="auto", origin="lower",
                    interpolation="nearest", extent=(-n + 0.5, 0.5, 0.5, own + 0.5))
        for layer, reach in enumerate(back[:shown], 1):
            axis.annotate(f"{reach:,}", (-reach - 0.5, layer), (-2, 0), textcoords="offset points", ha="right",
                          va="center", size=9)
        axis.set(ylabel="after layer", yticks=range(1, own + 1), title=name)
        axis.set_xlim(-min(n - 0.5, 1.15 * far + 4), 0.5)  # nothing is visible further away
        axis.grid(visible=False)
        values += [{"model": name, "layer": layer, "positions back": reach} for layer, reach in enumerate(back, 1)]
        described.append(f"{name}: {', '.join(map(str, back))} positions back after layers 1 to {own}")
    axes[-1, 0].set_xlabel("position, 0 being the last character")
    figure.values = values
    figure.alt += f" {'; '.join(described)}."
    return figure


def _back(seen: "Tensor") -> np.ndarray:
    """For each layer, the distance from the last position to the first that it depends on."""
    return seen.shape[1] - 1 - np.argmax(seen.numpy(), 1)
