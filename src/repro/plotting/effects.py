"""The effect of each part of a training recipe on each data set, in the paper and here."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from repro.errors import ReproError
from repro.plotting.curves import legend_below
from repro.plotting.scales import PAPER
from repro.plotting.style import COLOURS, Drawing, canvas, colours, house


@house()
def draw_effects(panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], label: str) -> Drawing:
    """Effects on one axis with a line at 0, one row per data set: the mean over seeds, and a small dot for each seed.

    panels: part of the recipe -> data set -> source -> effects, one per seed. The source "paper" is a hollow diamond on
    top. A set without effects is left empty. label: of the axis. Raises ReproError if there is nothing to draw, and if
    parts have different sets, or the same sets in another order.

    >>> draw_effects({"pre-training": {"CoLA": {"paper": [26.5], "small": [4, 6]}}}, "points").alt
    'points. pre-training: CoLA +26.5 paper, +5.0 small.'
    """
    import seaborn

    if not any(values for rows in panels.values() for row in rows.values() for values in row.values()):
        raise ReproError("there is nothing to draw: no set has an effect.")
    first, *others = ((part, list(rows)) for part, rows in panels.items())
    for part, sets in others:
        if sets != first[1]:
            raise ReproError(f"the sets of '{part}' are {', '.join(sets)}, those of '{first[0]}' "
                             f"{', '.join(first[1])}; give the same in the same order.")
    described = " ".join(f"{part}: {'; '.join(_described(name, row) for name, row in rows.items() if row)}."
                         for part, rows in panels.items())
    figure, axes = canvas(1.1 + 0.36 * max(map(len, panels.values())), columns=len(panels), squeeze=False, sharex=True,
                          sharey=True, alt=f"{label}. {described}")
    figure.values = [{"part": part, "set": name, "source": whose, "run": run, label: value}
                     for part, rows in panels.items() for name, row in rows.items() for whose, values in row.items()
                     for run, value in enumerate(values, 1)]
    chosen = colours(dict.fromkeys(whose for rows in panels.values() for row in rows.values() for whose in row))
    for axis, (part, rows) in zip(axes[0], panels.items(), strict=True):
        axis.axvline(0, color=COLOURS["ink"], lw=1)
        for whose, colour in chosen.items():
            shared = {"x": [value for row in rows.values() for value in row.get(whose, ())],
                      "y": [name for name, row in rows.items() for _ in row.get(whose, ())],
                      "order": first[1], "color": colour, "legend": False, "ax": axis}
            look = {"marker": "D", "label": whose, "mfc": "none", "zorder": 4}
            if whose != PAPER:
                look = {"marker": "o", "label": f"ours, {whose}"}
                seaborn.stripplot(**shared, jitter=False, size=3, alpha=0.5, zorder=2, label="one seed")
            seaborn.pointplot(**shared, errorbar=None, linestyle="none", ms=7, mew=1.4, **{"zorder": 3} | look)
        axis.set(title=part, xlabel=label, ylabel="")
        axis.grid(axis="y")
        axis.tick_params(axis="y", length=0)
    legend_below(figure, axes[0])
    return figure


def _described(name: str, row: Mapping[str, Sequence[float]]) -> str:
    return f"{name} {', '.join(f'{fmean(values):+.1f} {whose}' for whose, values in row.items())}"
