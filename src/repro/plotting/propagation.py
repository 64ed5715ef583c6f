"""Information across a window boundary: continuations against their own and other contexts, and how far back the loss
depends on the text."""

from collections.abc import Mapping, Sequence

import numpy as np

from repro.errors import ReproError
from repro.plotting.curves import forest
from repro.plotting.style import COLOURS, MARKERS, Drawing, canvas, colours, house, plain, series

Triple = tuple[float, float, float]  # value, low, high


@house()
def draw_own_and_other(rows: Mapping[str, tuple[Triple, Triple]],
                       label: str = "mean Jensen-Shannon divergence (nats)") -> Drawing:
    """One row per pair of values: against the own context (filled) and against that of another book (hollow), with
    intervals.

    label: of the axis. The further apart the two marks, the more of a context shows in its continuation.
    Raises ReproError when there is no row.

    >>> draw_own_and_other({"baseline": ((0.35, 0.3, 0.4), (0.55, 0.5, 0.6))}).alt
    'mean Jensen-Shannon divergence (nats). baseline: own 0.350, other 0.550.'
    """
    if not rows:
        raise ReproError("there is nothing to draw: no row was given.")
    described = "; ".join(f"{name}: own {own[0]:.3f}, other {other[0]:.3f}" for name, (own, other) in rows.items())
    figure, axis = canvas(0.9 + 0.42 * len(rows), alt=f"{label}. {described}.")
    figure.values = [{"name": name, "context": context, label: value, "low": low, "high": high}
                     for name, pair in rows.items()
                     for context, (value, low, high) in zip(("own", "other"), pair, strict=True)]
    chosen = {name: colour if series(name) else COLOURS["ink"] for name, colour in colours(rows).items()}
    values = [[value for value, _, _ in pair] for pair in zip(*rows.values(), strict=True)]
    axis.hlines(range(len(rows)), *values, COLOURS["grid"], lw=4, zorder=1)
    for k, (against, look) in enumerate((("own context", {}), ("context of another book", {"mfc": "white"}))):
        forest(axis, [(name, *pair[k]) for name, pair in rows.items()], chosen, ms=8, mew=1.6, **look)
        axis.plot([], [], "o", ms=8, color=COLOURS["ink"], mew=1.6, label=against, **look)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(label)
    figure.legend(loc="outside upper right", ncols=2)
    return figure


@house()
def draw_reach(curves: Mapping[str, Sequence[Triple]], places: Sequence[str] = (), back: str = "windows back",
               label: str = "mean |change of loss|, nats per token") -> Drawing:
    """Change of the loss by the distance of a changed text, on a logarithmic scale, with intervals.

    curves: name -> (value, low, high) for each distance, labeled 1, 2, ... unless `places` names them. back: the unit
    of the distances. Values of exactly 0 are hollow marks on a line below.
    Raises ReproError when no value is above 0.

    >>> draw_reach({"recurrent": [(0.2, 0.1, 0.3), (0.03, 0.02, 0.04)], "baseline": [(0, 0, 0), (0, 0, 0)]}).alt
    'mean |change of loss|, nats per token, by windows back. recurrent: 0.2, 0.03; baseline: 0, 0.'
    """
    positive = [value for points in curves.values() for value, _, _ in points if value > 0]
    if not positive:
        raise ReproError("there is no change to draw: every value is 0.")
    bottom, top = 10 ** np.floor(np.log10(min(positive))), max(point[2] for line in curves.values() for point in line)
    zero = bottom / 10
    described = "; ".join(f"{name}: {', '.join(f'{point[0]:.1g}' for point in line)}" for name, line in curves.items())
    figure, axis = canvas(3.3, alt=f"{label}, by {back}. {described}.")
    figure.values = [{"line": name, back: place, label: value, "low": low, "high": high}
                     for name, points in curves.items()
                     for place, (value, low, high) in zip(places or range(1, 1 + len(points)), points, strict=False)]
    axis.set_yscale("log")
    axis.axhline(zero, color=COLOURS["faint"], lw=1)
    chosen = colours(curves)
    for k, (name, points) in enumerate(curves.items()):
        x = np.arange(1, len(points) + 1) + 0.06 * (k - (len(curves) - 1) / 2)  # next to each other
        y, low, high = np.array(points, float).T
        some = y > 0
        axis.plot(x[some], y[some], color=chosen[name], marker=MARKERS[k], label=name)
        axis.plot(x[~some], np.full((~some).sum(), zero), MARKERS[k], color=chosen[name], mfc="white")
        axis.vlines(x[some], np.maximum(low, bottom)[some], high[some], color=chosen[name], lw=1.2)
    axis.set_ylim(zero / 2, 2 * top)
    powers = 10.0 ** np.arange(np.log10(bottom), np.ceil(np.log10(top)) + 0.5)
    axis.set_yticks([zero, *powers], ["0", *(f"{power:.0e}" if power < 1e-3 else plain(power) for power in powers)])
    axis.minorticks_off()
    ticks = range(1, 1 + max(map(len, curves.values())))
    axis.set_xticks(ticks, places or ticks)
    if places:
        axis.tick_params(axis="x", labelrotation=40)  # range labels are wide
    axis.set(xlabel=back, ylabel=label.replace(", ", "\n"))
    axis.legend()
    return figure
