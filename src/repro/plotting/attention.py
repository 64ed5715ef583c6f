"""Attention patterns as grids of query-key pairs, and the cost of attention as texts grow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from repro.errors import ReproError
from repro.plotting.curves import legend_below, paint
from repro.plotting.pictures import heatmap, places
from repro.plotting.style import COLOURS, MARKERS, Drawing, canvas, colours, house, plain

if TYPE_CHECKING:
    from repro.attention import Pattern

COLUMNS = 4
MOST = 64  # positions that a reader can distinguish in a panel
DASHES = "--", "-.", ":"
LINES = 7  # lines per panel; more cannot be followed


@house()
def draw_patterns(patterns: Mapping[str, "Pattern | Sequence[Pattern]"], n: int = 24) -> Drawing:
    """The keys (columns) that each of n queries (rows, from the top) sees (Beltagy et al. 2020, Figure 2).

    patterns: one panel for each name. For a sequence of two patterns, pairs of the first are blue, and pairs that only
    the second allows are orange. The number of allowed pairs appears below the name. Raises ReproError for an n that
    cannot be drawn.

    >>> from repro.attention import SlidingWindow, Strided
    >>> draw_patterns({"window": SlidingWindow(4), "strided": Strided(4).heads}, n=16).alt
    'Who sees whom among 16 positions. Allowed pairs: window 58, strided 82.'
    """
    if not 2 <= n <= MOST:
        raise ReproError(f"n is {n} positions; 2 to {MOST} can be drawn.")
    rows = -(-len(patterns) // COLUMNS)
    figure, axes = canvas(2.25 * rows, columns=COLUMNS, rows=rows, squeeze=False,
                          alt=f"Who sees whom among {n} positions. Allowed pairs:")
    counts, figure.values = [], []
    for axis, (name, pattern) in zip(axes.flat, patterns.items(), strict=False):
        layers = pattern if isinstance(pattern, Sequence) else [pattern]
        kinds = np.zeros((n, n), int)
        for kind, layer in enumerate(layers, 1):
            kinds = np.where((kinds == 0) & layer.mask(n).numpy(), kind, kinds)
        pairs = np.count_nonzero(kinds)
        heads = ("keys", "keys added by the second")[:len(layers)]
        figure.values += [{"pattern": name, "query": query} | {
            head: places(row == kind) for kind, head in enumerate(heads, 1)} for query, row in enumerate(kinds)]
        heatmap(axis, kinds, linewidths=0.4, xticklabels=n - 1, yticklabels=n - 1)  # only the first and last label
        axis.set_title(f"{name}\n", size=10)
        axis.text(0, 1.03, f"{pairs} pairs, {pairs / n**2:.0%}", transform=axis.transAxes, size=9)
        axis.tick_params(length=0, rotation=0)
        counts.append(f"{name} {pairs}")
    for axis in axes.flat[len(patterns):]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("query", labelpad=-4)
    for axis in axes.flat[:len(patterns)]:
        axis.set_xlabel("key", labelpad=-6)
    figure.alt += f" {', '.join(counts)}."
    return figure


@house()
def draw_growth(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], label: str = "positions N",
                bounds: Sequence[str] = ()) -> Drawing:
    """Measurements against text length on logarithmic axes; lines that grow equally fast are parallel.

    panels: title -> name -> [n, value] pairs; a name has the same color in every panel. bounds: the names whose values
    are computed, not measured; their lines are dashed. A panel without a pair says "not run". More than 7 names are
    spread over several rows of panels with the same axes.

    >>> draw_growth({"memory": {"full": [[8, 64], [16, 256]], "window": [[8, 32], [16, 64]]}}).alt
    'memory against positions N. Lines: full; window.'
    """
    names = dict.fromkeys(name for curves in panels.values() for name in curves)
    measured, computed = [name for name in names if name not in bounds], [name for name in names if name in bounds]
    colour = colours(measured)
    drawn = [name for name in names if any(len(curves.get(name, ())) for curves in panels.values())]
    ordered = sorted(drawn, key=lambda name: name not in bounds)
    rows = -(-len(drawn) // LINES) or 1
    size = -(-len(drawn) // rows)
    figure, axes = canvas((3.2 + 0.2 * -(-size // 3)) * rows + 0.2, columns=len(panels), rows=rows, squeeze=False,
                          sharex="col", sharey="col" if rows > 1 else False, alt=(
        f"{'; '.join(panels)} against {label}. Lines: {'; '.join(drawn)}."))
    figure.values = [{"panel": title, "line": name, label: n, "value": value}
                     for title, curves in panels.items() for name, points in curves.items() for n, value in points]
    for (row, column), axis in np.ndenumerate(axes):
        title, curves = list(panels.items())[column]
        for name, points in curves.items():
            if name in drawn and name not in ordered[row * size:(row + 1) * size]:
                continue
            if name in bounds:
                style = {"color": COLOURS["ink"], "lw": 1.3, "ls": DASHES[computed.index(name) % len(DASHES)]}
            else:
                style = {"color": colour[name], "marker": MARKERS[measured.index(name) % len(MARKERS)]}
            if len(points):
                axis.plot(*zip(*points, strict=True), label=name, **style)
        axis.set(title=title if not row else "", xlabel=label if row == rows - 1 else "", yscale="log")
        axis.set_xscale("log", base=2)
        values = [value for points in curves.values() for _, value in points]
        if not values:
            axis.set(xticks=[], yticks=[])
            axis.minorticks_off()
            axis.text(0.5, 0.5, "not run", ha="center", transform=axis.transAxes)
            continue
        lengths = sorted({n for points in curves.values() for n, _ in points})
        axis.set_xticks(lengths[(len(lengths) + 1) % 2::2] if len(lengths) > 6 else lengths)  # more labels would touch
        axis.xaxis.set_minor_formatter(NullFormatter())
        few = max(values) < 1000 * min(values)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.yaxis.set_minor_formatter(NullFormatter())
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(plain)
    for line in axes:
        if any(axis.lines for axis in line):
            if rows == 1:
                legend_below(figure, line)
            else:
                legend_beside(line)
    return figure


def legend_beside(axes: Sequence) -> None:
    """Label the lines of a row of panels to the right of its last panel."""
    named = {name: line for axis in axes for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    axes[-1].legend(named.values(), named, loc="center left", bbox_to_anchor=(1.02, 0.5))


@house()
def draw_cost_and_quality(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, str]]]], limit: str,
                          labels: tuple[str, str]) -> Drawing:
    """Quality against cost: one panel per title, one line per name, through points (cost, quality, label).

    limit: the name whose single point is a star, with a dashed line at its quality. Without panels the figure says "not
    run".

    >>> lines = {"no dilation": [(64, 2.4, "w = 8"), (128, 2.2, "w = 16")], "full attention": [(512, 2.0, "all")]}
    >>> draw_cost_and_quality({"small": lines}, limit="full attention", labels=("pairs", "bits")).alt
    'bits against pairs; panels: small.'
    """
    figure, axes = canvas(3.7, columns=len(panels) or 1, squeeze=False, alt=(
        f"{labels[1]} against {labels[0]}; panels: {', '.join(panels) or 'not run'}."))
    figure.values = [{"panel": title, "line": name, "point": point, labels[0]: x, labels[1]: y}
                     for title, lines in panels.items() for name, points in lines.items() for x, y, point in points]
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=False):
        bounds = {name: points[0][1] for name, points in lines.items() if name == limit}
        paint(axis, {name: [point[:2] for point in points] for name, points in lines.items() if name != limit}, labels,
              bounds)
        for number, (name, points) in enumerate(lines.items()):
            at, ha, va = [((6, 3), "left", "bottom"), ((-6, -3), "right", "top")][number % 2]  # off falling lines
            for x, y, label in points:
                if name == limit:
                    axis.plot(x, y, marker="*", ms=10, color=COLOURS["bound"])
                else:
                    axis.annotate(label, (x, y), at, textcoords="offset points", ha=ha, va=va, size=9,
                                  bbox={"fc": "white", "ec": "none", "pad": 0.4, "alpha": 0.7})  # lines may cross
        axis.get_legend().remove()
        axis.set_title(title)
        axis.set_xscale("log", base=2)
        axis.margins(x=0.2, y=0.12)
        axis.xaxis.set_major_formatter(plain)
    if panels:
        legend_below(figure, axes[0])
    else:
        axes[0, 0].set_title("not run")
        axes[0, 0].set_axis_off()
    return figure
