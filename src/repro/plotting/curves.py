"""Curves and bar charts of measured values."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from repro.errors import ReproError
from repro.evaluation.pareto import pareto_front
from repro.plotting.style import COLOURS, CYCLE, MARKERS, Drawing, canvas, colours, house, named, plain, series

if TYPE_CHECKING:
    import pandas

MODELS = ("baseline", "recurrent")
ASIDE = 0.012  # offset between overlapping intervals, in panel widths
PANELS = 4  # per row, so that tick labels have room
Points = Sequence[Sequence[float]]  # [x, y] pairs
T = TypeVar("T")
Named = Mapping[str, T] | Iterable[tuple[str, T]]  # lines by label; pairs keep duplicate labels, which a mapping loses


@house()
def draw_table_curves(frame: "pandas.DataFrame", x: str = "overlap", y: str = "perplexity",
                      labels: tuple[str, str] = ("overlap (tokens)", "perplexity per word"),
                      log_x: bool | Literal[2, 10] = False, level: float | None = None) -> Drawing:
    """A metric against the overlap for each model, with intervals: one panel per `source`, each with its own scale.

    frame: one row per point with columns `source` (such as "paper" or "small"), `model`, `x`, `y` and, if there are
    intervals, `low` and `high`. Values are numbers or numeric text; rows without a number are left out. log_x:
    logarithmic x axis, with ticks at powers of 2 or, for 10, at powers of 10. level: height of a gray line across each
    panel, such as 0 if y is a change. If no row has a number, the figure says "not run".
    Raises ReproError for a missing column and for two rows of one source, model and `x`.

    >>> import pandas
    >>> frame = pandas.DataFrame({"source": "paper", "model": ["baseline", "recurrent"], "overlap": 0,
    ...     "perplexity": ["30.47", "29.01"]})
    >>> draw_table_curves(frame).alt
    'perplexity per word against overlap (tokens), a line for each model; panels: paper.'
    """
    import pandas

    missing = [name for name in ("source", "model", x, y) if name not in frame]
    if missing:
        raise ReproError(f"the frame has no column {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}.")
    frame = frame.copy()
    for name in {x, y, "low", "high"} & set(frame):
        frame[name] = pandas.to_numeric(frame[name], errors="coerce")
    frame = frame.dropna(subset=[x, y])
    _once(frame, ["source", "model", x])
    models = list(dict.fromkeys([*(name for name in MODELS if name in set(frame["model"])), *frame["model"]]))
    figure, panels = _facets(3.1, frame, x, y, "model", models, labels, f"{labels[1]} against {labels[0]}, a line for "
                             "each model; panels: {}.", by_factor=bool(log_x))
    figure.values = rows_of(frame, {"source": "source", "model": "line", x: labels[0], y: labels[1]})
    for axis, here in panels:
        if not here[y].any():
            axis.set_ylim(0, 1)  # if all values are 0, the axis would extend below 0
        if level is not None:
            axis.axhline(level, color=COLOURS["faint"], lw=1, zorder=0)
        if log_x:
            _doublings(axis, here[x], log_x == 10)
        elif here[x].nunique() == 1:
            axis.set_xticks(here[x].unique())  # no ticks at fractions around a single x
    legend_below(figure, figure.axes)
    return figure


@house()
def draw_gains(frame: "pandas.DataFrame", names: Sequence[str] = ()) -> Drawing:
    """Recurrence's gain over the baseline, in %, by overlap; one panel per `source`. The paper's points and ours are
    filled marks joined by lines; controls are hollow marks.

    frame: one row per point with columns `source`, `name`, `overlap` (% of the window), `gain`, `low` and `high`; the
    last two are missing if there is no interval. Names that begin with "paper" or "recurrent" are not controls. names:
    all names that can occur, so that each looks the same in every figure. Without a row the figure says "not run".
    Raises ReproError for two rows of one source, name and overlap.

    >>> import pandas
    >>> frame = pandas.DataFrame({"source": "small", "name": "recurrent", "overlap": [0, 10], "gain": [-1.5, -0.5],
    ...     "low": [-2, -1], "high": [-1, 0.1]})
    >>> draw_gains(frame).alt
    'Gain of recurrence over the baseline against overlap; panels: small; marks: recurrent.'
    """
    _once(frame, ["source", "name", "overlap"])
    shown = list(dict.fromkeys(frame["name"]))
    figure, panels = _facets(
        3.6 + 0.2 * -(-len(shown) // 3), frame, "overlap", "gain", "name", list(dict.fromkeys([*names, *shown])),
        ("overlap (% of the window)", "gain over the baseline (%)"), "Gain of recurrence over the baseline against "
        f"overlap; panels: {{}}; marks: {', '.join(shown) or 'none'}.",
        hollow=[name for name in shown if series(name) not in ("paper", "recurrent")], lw=1.2)
    figure.values = rows_of(frame, {"source": "source", "name": "line", "overlap": "overlap (% of the window)",
                                    "gain": "gain over the baseline (%)"})
    for axis, _ in panels:
        axis.axhline(0, color=COLOURS["faint"], lw=1, zorder=0)
    legend_below(figure, figure.axes)
    return figure


@house()
def draw_cost_front(frame: "pandas.DataFrame", label: str = "change of perplexity (%)") -> Drawing:
    """Each model's change against a reference and its extra cost. One panel per `source` and `window`, all on one
    scale, each with its Pareto front.

    frame: one row per point with columns `source`, `window` (tokens), `model`, `overlap` (tokens), `cost` (% more than
    the reference), `change` (%, below 0 is better), `low` and `high`; the last two are missing if there is no interval.
    The points of a model are joined in order of cost. The number next to a point is its overlap.
    Raises ReproError when there is no point, and for two rows of one source, window, model and overlap.

    >>> import pandas
    >>> frame = pandas.DataFrame({"source": "small", "window": 300, "model": ["baseline", "recurrent"], "overlap": 0,
    ...     "cost": 0.0, "change": [0.0, 0.7], "low": [None, -1.3], "high": [None, 2.7]})
    >>> draw_cost_front(frame).alt
    'change of perplexity (%) against extra FLOPs per token (%) with the Pareto front; panels: small, T = 300.'
    """
    if frame.empty:
        raise ReproError("there is no point to draw: every run is missing.")
    _once(frame, ["source", "window", "model", "overlap"])
    panels = list(frame.groupby(["source", "window"], sort=False))
    names = [name for name in MODELS if name in set(frame["model"])]
    palette, rows = colours(names), -(-len(panels) // PANELS)
    titles = [f"{source}, T = {window}" for (source, window), _ in panels]
    figure, axes = canvas(1 + 2.4 * rows, columns=min(len(panels), PANELS), rows=rows, squeeze=False, sharey=True, alt=(
        f"{label} against extra FLOPs per token (%) with the Pareto front; panels: {'; '.join(titles)}."))
    figure.values = rows_of(frame, {"source": "source", "window": "window (tokens)", "model": "line", "overlap":
                                    "overlap (tokens)", "cost": "extra FLOPs per token (%)", "change": label})
    for k, (axis, title, (_, here)) in enumerate(zip(axes.flat, titles, panels, strict=False)):
        points = here[["cost", "change"]].to_numpy().tolist()
        front = [points[place] for place in pareto_front(points)]
        axis.step(*zip(*front, strict=True), where="post", color=COLOURS["grid"], lw=7, zorder=0, label="Pareto front",
                  marker="o", ms=7, mew=0, solid_capstyle="round")
        axis.axhline(0, color=COLOURS["faint"], lw=1, zorder=0.5)
        for name, marker in zip(names, MARKERS, strict=False):
            mine = here[here["model"] == name].sort_values("cost")
            axis.plot(mine["cost"], mine["change"], color=palette[name], marker=marker, mec="white", lw=1.4, label=name)
            axis.vlines(mine["cost"], mine["low"], mine["high"], palette[name], lw=1.2, zorder=1)
            for one in mine[mine["overlap"] > 0].itertuples():
                axis.annotate(one.overlap, (one.cost, one.change), (5, 4), textcoords="offset points", size=9)
        axis.margins(x=0.2, y=0.08)
        axis.set(title=title, xlabel="extra FLOPs (%)", ylabel=label if k % PANELS == 0 else "")
    for axis in axes.flat[len(panels):]:
        axis.remove()
    legend_below(figure, figure.axes)
    return figure


@house()
def draw_quality_and_cost(frame: "pandas.DataFrame", label: str = "change (%)") -> Drawing:
    """One row per name: its cost in FLOPs per token on the left, its change in % with an interval on the right; two
    such panels for each `source`.

    frame: one row per point with columns `source`, `name`, `flops`, `change`, `low` and `high`; the last two are
    missing if there is no interval, as for the reference. Without a row the figure says "not run". Raises ReproError
    for two rows of one source and name.

    >>> import pandas
    >>> frame = pandas.DataFrame({"source": "small", "name": ["none", "rmt"], "flops": [1.0, 1.2],
    ...     "change": [0.0, -4.7], "low": [None, -5.7], "high": [None, -3.7]})
    >>> draw_quality_and_cost(frame).alt
    'FLOPs per token and change (%). small: none +0.0, rmt -4.7.'
    """
    _once(frame, ["source", "name"])
    names, groups = list(dict.fromkeys(frame["name"])), list(frame.groupby("source", sort=False))
    colour = colours(names)
    described = " ".join(
        f"{source}: {', '.join(f'{one.name} {one.change:+.1f}' for one in rows.itertuples(index=False))}."
        for source, rows in groups)
    figure, axes = canvas(1.2 + 0.26 * max(len(names), 4), columns=2 * max(len(groups), 1), squeeze=False, sharey=True,
                          alt=f"FLOPs per token and {label}. {described or 'not run'}")
    figure.values = rows_of(frame, {"source": "source", "name": "name", "flops": "FLOPs per token", "change": label})
    for (cost, effect), (source, rows) in zip(axes[0].reshape(-1, 2), groups, strict=False):
        effect.axvline(0, color=COLOURS["faint"], lw=1, zorder=0)
        forest(cost, rows[["name", "flops"]].to_numpy(), colour)
        forest(effect, rows[["name", "change", "low", "high"]].to_numpy(), colour)
        cost.set(title=source, xlabel="FLOPs per token", xlim=(0, None))
        cost.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        effect.set(xlabel=label)
    if not groups:
        axes[0, 0].set(yticks=[])
        axes[0, 0].text(0.5, 0.5, "not run", ha="center", transform=axes[0, 0].transAxes)
    return figure


def _facets(height: float, frame: "pandas.DataFrame", x: str, y: str, by: str, names: Sequence[str],
            labels: tuple[str, str], alt: str, by_factor: bool = False, hollow: Sequence[str] = (),
            lw: float = 1.8) -> tuple[Drawing, list]:
    """One panel per `source` of a frame, with a line for each of `names` in its column `by`; returns the panels with
    their rows.

    by_factor: the x axis is logarithmic. hollow: names whose marks are hollow and not joined. Without a row the figure
    says "not run".
    """
    import seaborn

    groups = list(frame.dropna(subset=[x, y]).groupby("source", sort=False))
    figure, axes = canvas(height, columns=len(groups) or 1, squeeze=False,
                          alt=alt.replace("{}", ", ".join(source for source, _ in groups) or "not run"))
    palette = colours(names)
    for axis, (source, here) in zip(axes[0], groups, strict=False):
        here = here.sort_values(x, kind="stable")
        steps = ASIDE * (here[by].map(names.index) - (len(names) - 1) / 2)
        moved = here[x] * (here[x].max() / here[x].min())**steps if by_factor else here[x] + steps * np.ptp(here[x])
        shown = [name for name in names if name in set(here[by])]
        seaborn.lineplot(here.assign(**{x: moved}), x=x, y=y, sort=False, hue=by, hue_order=shown, palette=palette,
                         style=by, style_order=shown, markers=dict(zip(names, cycle(MARKERS), strict=False)),
                         dashes=False, estimator=None, lw=lw, ms=6, legend=False, ax=axis)
        for line, name in zip(axis.lines, shown, strict=True):
            line.set(label=name, **{"mfc": "white", "mec": palette[name], "ls": ""} if name in hollow else {})
        if {"low", "high"} <= set(here):
            axis.vlines(moved, here["low"], here["high"], [palette[name] for name in here[by]], lw=1.2, zorder=1)
        axis.set(title=source, xlabel=labels[0], ylabel="")
    axes[0, 0].set_ylabel(labels[1])
    if not groups:
        axes[0, 0].text(0.5, 0.5, "not run", ha="center", transform=axes[0, 0].transAxes)
    return figure, [(axis, here) for axis, (_, here) in zip(axes[0], groups, strict=False)]


@house()
def draw_curves(curves: Named[Points], labels: tuple[str, str] = ("tokens", "nats per token"),
                bounds: Mapping[str, float] | None = None, title: str = "", log_x: bool = False) -> Drawing:
    """Lines through [x, y] pairs, such as `record.curves`, and horizontal lines at known `bounds`.

    Curves with ten points or fewer get markers. log_x: logarithmic axis with base 2.
    Raises ReproError when no curve has a point, and for two lines with one label.

    >>> draw_curves({"train": [[0, 5.0], [20_000, 3.0]]}, bounds={"best possible": 2.0}).alt
    'nats per token against tokens: train, best possible.'
    """
    curves = named(curves)
    if not any(len(points) for points in curves.values()):
        raise ReproError("there is no point to draw: every curve is empty.")
    figure, axis = canvas(3.2, alt=f"{labels[1]} against {labels[0]}: {', '.join([*curves, *(bounds or {})])}.")
    figure.values = points_of(curves, labels, bounds or {})
    paint(axis, curves, labels, bounds or {})
    axis.set_title(title)
    if log_x:
        _doublings(axis)
    return figure


def points_of(curves: Mapping[str, Points], labels: tuple[str, str], bounds: Mapping[str, float]) -> list[dict]:
    """The rows that `paint` draws: one for each point, then one for each bound, which has no x."""
    return [*({"line": name, labels[0]: x, labels[1]: y} for name, points in curves.items() for x, y in points),
            *({"line": name, labels[0]: None, labels[1]: value} for name, value in bounds.items())]


def rows_of(frame: "pandas.DataFrame", names: Mapping[str, str]) -> list[dict]:
    """The rows of a frame in these columns, renamed, and its intervals `low` and `high` if it has them."""
    names = {**names, **{name: name for name in ("low", "high") if name in frame}}
    return frame[list(names)].rename(columns=names).to_dict("records")


def paint(axis, curves: Mapping, labels: tuple[str, str], bounds: Mapping[str, float]) -> None:
    """Draw `curves` and `bounds` into `axis`, with a legend. Raises ReproError for a label that both have."""
    named([*curves.items(), *bounds.items()])
    colour = colours(curves)
    for k, (name, points) in enumerate(curves.items()):
        if len(points):
            xs, ys = np.asarray(points, float).T
            _line(axis, xs, ys, name, colour[name], k, marked=len(points) <= 10)
    for k, (name, value) in enumerate(bounds.items()):
        axis.axhline(value, color=COLOURS["bound"], lw=1.4, ls=("--", ":", "-.")[k % 3], label=name)
    axis.set(xlabel=labels[0], ylabel=labels[1])
    axis.margins(y=0.08)
    if max((x for points in curves.values() for x, _ in points), default=0) >= 10_000:
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if axis.lines:
        axis.legend()


@house()
def draw_bars(values: Named[float], label: str, digits: int = 2, bounds: Mapping[str, float] | None = None,
              alt: str = "") -> Drawing:
    """Horizontal bars with their values, from top to bottom, and vertical lines at `bounds`. label: of the axis.

    If no bar belongs to a known series, all have one color, and their names are next to them. Raises ReproError for a
    name that comes twice.

    >>> draw_bars({"baseline": 15.25, "recurrent": 13.5}, "perplexity").alt
    'perplexity: baseline 15.25, recurrent 13.50.'
    """
    values = named(values)
    colour = colours(values) if any(map(series, values)) else dict.fromkeys(values, CYCLE[0])
    figure, axis = canvas(0.9 + 0.36 * len(values), alt=alt or f"{label}: {_described(values, digits)}.")
    figure.values = [{"name": name, label: value} for name, value in (*values.items(), *(bounds or {}).items())]
    names = list(values)
    bars = axis.barh(names, list(values.values()), height=0.62, color=[colour[name] for name in names])
    axis.bar_label(bars, [f"{value:,.{digits}f}" for value in values.values()], padding=4, size=9,
                   bbox={"fc": "white", "ec": "none", "pad": 0.6})  # a bound may cross it
    for k, (name, value) in enumerate((bounds or {}).items()):
        axis.axvline(value, color=COLOURS["ink"], lw=1.4, ls=("--", ":", "-.")[k % 3], label=name)
    if bounds:
        figure.legend(loc="outside upper right", ncols=len(bounds))
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.margins(x=0.1)
    axis.set_xlabel(label)
    return figure


@house()
def draw_layer_weights(weights: Sequence[float] | Mapping[str, Sequence[float]]) -> Drawing:
    """The learned weights w_l of the layers in z (Yoshida et al. 2020, Equation 1), compared with equal weights.

    weights: (n_layer,) of one module, or several by name. Raises ReproError when one does not sum to 1.

    >>> draw_layer_weights([0.5, 0.3, 0.2]).alt
    'Weight of each layer in z: learned: 0.500, 0.300, 0.200'
    """
    modules = weights if isinstance(weights, Mapping) else {"learned": weights}
    colour = colours(modules)
    for name, values in modules.items():
        if abs(sum(values) - 1) > 1e-3:
            raise ReproError(f"the layer weights {name} sum to {sum(values):.3f}; softmax weights sum to 1.")
    n_layer = max(len(values) for values in modules.values())
    figure, axis = canvas(2.8, alt="Weight of each layer in z: " + "; ".join(
        f"{name}: {', '.join(f'{value:.3f}' for value in values)}" for name, values in modules.items()))
    figure.values = [{"module": name, "block": block, "weight in z": value}
                     for name, values in modules.items() for block, value in enumerate(values)]
    width = 0.8 / len(modules)
    for k, (name, values) in enumerate(modules.items()):
        places = np.arange(len(values)) - 0.4 + (k + 0.5) * width
        bars = axis.bar(places, values, width=0.92 * width, color=colour[name], label=name)
        if len(modules) * n_layer <= 16:
            axis.bar_label(bars, [f"{value:.3f}" for value in values], padding=2, size=9)
    axis.axhline(1 / n_layer, color=COLOURS["ink"], lw=1.2, ls="--", label="equal weights")
    axis.set_xticks(range(n_layer), [f"block {layer}" if n_layer <= 8 else layer for layer in range(n_layer)])
    axis.set(ylabel="weight in z", xlabel="" if n_layer <= 8 else "block")
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.15)
    figure.legend(loc="outside upper right", ncols=min(len(modules) + 1, 4))
    return figure


@house()
def draw_memory(peaks: Named[Points], allowed: float, settled: int = 1) -> Drawing:
    """Peak memory against the number of windows, and next to it the memory that each window after the first `settled`
    adds.

    peaks: kind of recomputation -> [windows, bytes] pairs. allowed: bytes per further window in the paper's model
    (Yoshida et al. 2020, section 3.2). Kinds without a point, such as runs that are missing, are left out.
    Raises ReproError for a kind that comes twice.

    >>> draw_memory({"none": [[1, 1e6], [2, 2e6], [4, 4e6]]}, allowed=5e5).alt
    'Left: peak memory against windows; right: what is added after 1. Lines: none.'
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    peaks = named(peaks)
    colour = colours(peaks)
    figure, (whole, added) = canvas(3.4, columns=2, alt=(
        f"Left: peak memory against windows; right: what is added after {settled}. Lines: {', '.join(peaks)}."))
    figure.values = [{"line": name, "windows": n, "peak of a training step (MiB)": peak / 2**20}
                     for name, points in peaks.items() for n, peak in points]
    for k, (name, points) in enumerate(peaks.items()):
        more = {n: peak for n, peak in points if n >= settled}
        _line(whole, *zip(*((n, peak / 2**20) for n, peak in points), strict=True), name, colour[name], k)
        _line(added, [n - settled for n in more][1:], [(peak - more[settled]) / 2**10 for peak in more.values()][1:],
              name, colour[name], k)
    if peaks:
        ends = np.array([1, max(added.get_xlim()[1], 2)])
        added.plot(ends, allowed * ends / 2**10, color=COLOURS["ink"], ls="--", lw=1.4, label="paper: 2k a window")
    for axis in (whole, added):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        axis.yaxis.set_minor_formatter(NullFormatter())
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(plain)
    whole.set(xlabel="windows", title="peak of a training step (MiB)")
    added.set(xlabel=f"windows after the first {settled}", title="what they add (KiB)")
    if peaks:
        figure.legend(*added.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    else:
        whole.text(0.5, 0.5, "not run", ha="center", transform=whole.transAxes)
    return figure


def forest(axis, rows: Iterable[Sequence], palette: Mapping[str, str], **look) -> None:
    """One row per name in `palette`: a mark at its value, and a line from the low to the high end of its interval.

    rows: (name, value) or (name, value, low, high); no line is drawn if an end is missing. look: of the marks.
    """
    import pandas
    import seaborn

    points = pandas.DataFrame([(name, value) for name, *values in rows for value in values], columns=["name", "value"])
    seaborn.pointplot(points, x="value", y="name", order=list(palette), hue="name", palette=palette, linestyle="none",
                      estimator=lambda values: values.iloc[0], errorbar=lambda values: (values.min(), values.max()),
                      err_kws={"lw": 1.3, "zorder": 1.5, "solid_capstyle": "butt"}, legend=False, ax=axis,
                      **{"ms": 5, "mew": 1} | look)
    axis.set(xlabel="", ylabel="", ylim=(len(palette) - 0.5, -0.5))
    axis.grid(axis="y")
    axis.tick_params(axis="y", length=0)


def legend_below(figure, axes, columns: int = 3) -> None:
    """One legend for all panels, with each name once, in this many columns."""
    handles = {text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


def _doublings(axis, xs: Sequence[float] = (), by_tens: bool = False) -> None:
    """Make the x axis logarithmic, with ticks at powers of 2. by_tens: ticks at powers of 10 instead, and at 2 and 5
    times these if `xs` span little."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_xscale("log", base=10 if by_tens else 2)
    if by_tens:
        axis.xaxis.set_major_locator(LogLocator(subs=(1,) if max(xs) > 30 * min(xs) else (1, 2, 5)))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(plain)


def _line(axis, xs, ys, name: str, colour: str, place: int, marked: bool = True) -> None:
    axis.plot(xs, ys, color=colour, label=name, marker=MARKERS[place % len(MARKERS)] if marked else None)


def _once(frame: "pandas.DataFrame", columns: list[str]) -> None:
    """Raise ReproError if two points of a line have the same x, because then two series share a name."""
    twice = frame[frame.duplicated(columns)]
    if len(twice):
        values = ", ".join(f"{name} {twice.iloc[0][name]}" for name in columns)
        raise ReproError(f"two points have {values}; one label names two series; give each its own.")


def _described(values: Mapping[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:,.{digits}f}" for name, value in values.items())
