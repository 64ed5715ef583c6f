"""The size of our study compared with the paper's, scale by scale."""

from collections.abc import Mapping

from matplotlib.ticker import LogLocator, NullFormatter

from repro.errors import ReproError
from repro.plotting.curves import legend_below
from repro.plotting.style import COLOURS, Drawing, canvas, colours, house

PAPER = "paper"  # the paper's own size: a hollow diamond; the others are filled


@house()
def draw_scales(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Drawing:
    """Sizes on a logarithmic axis, one line per row: from the smallest scale to the paper's own size.

    panels: quantity, such as "weights" -> row -> scale -> size. Sizes of 0 and rows without a size are left out. Raises
    ReproError if nothing is left.

    >>> draw_scales({"weights": {"GPT-2": {"smoke": 2e5, "small": 7e6, "paper": 1.24e8}}}).alt
    'weights from scale to scale. GPT-2: 200,000 at smoke, 7,000,000 at small, 124,000,000 at paper.'
    """
    kept = {}
    for label, rows in panels.items():
        sizes = {name: {scale: size for scale, size in row.items() if size > 0} for name, row in rows.items()}
        kept[label] = {name: row for name, row in sizes.items() if row}
    if not any(kept.values()):
        raise ReproError("there is nothing to draw: no row has a size above 0.")
    described = " ".join(f"{label} from scale to scale. {'; '.join(map(_described, rows, rows.values()))}."
                         for label, rows in kept.items())
    scales = {scale: None for rows in kept.values() for row in rows.values() for scale in row}
    palette = colours(sorted(scales, key=lambda scale: (scale == PAPER, [*scales].index(scale))))
    figure, axes = canvas(1.2 + 0.42 * max(map(len, kept.values())), columns=len(kept), alt=described, squeeze=False)
    figure.values = [{"measure": label, "row": name, "scale": scale, "size": size}
                     for label, rows in kept.items() for name, row in rows.items() for scale, size in row.items()]
    for axis, (label, rows) in zip(axes[0], kept.items(), strict=True):
        for y, row in enumerate(rows.values()):
            axis.plot([min(row.values()), max(row.values())], [y, y], color=COLOURS["grid"], lw=4, zorder=1)
            for scale, size in row.items():
                own = scale != PAPER
                axis.plot(size, y, "o" if own else "D", ms=7, mfc=palette[scale] if own else "white",
                          mec=palette[scale] if own else COLOURS["ink"], mew=1.4, ls="", label=scale)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(numticks=6))  # the number that fits
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter(rounded)
        axis.margins(x=0.12)
        axis.set_yticks(range(len(rows)), list(rows))
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
        axis.set_ylim(len(rows) - 0.5, -0.8)
        axis.set_xlabel(label)
    legend_below(figure, figure.axes, columns=len(palette))
    return figure


def rounded(size: float, _: int | None = None) -> str:
    """A size in thousands, millions or billions, for ticks.

    >>> rounded(20), rounded(1e5), rounded(1e7), rounded(1.5e9)
    ('20', '100K', '10M', '1.5B')
    """
    power, letter = next((one for one in ((1e9, "B"), (1e6, "M"), (1e3, "K")) if size >= one[0]), (1, ""))
    return f"{size / power:g}{letter}"


def _described(name: str, row: Mapping[str, float]) -> str:
    return f"{name}: {', '.join(f'{size:,.0f} at {scale}' for scale, size in row.items())}"
