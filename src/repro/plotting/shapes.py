"""The shapes that make up diagrams: cells, boxes, letters and arrows in plain units."""

from matplotlib.patches import FancyBboxPatch, Rectangle

from repro.errors import ReproError
from repro.plotting.style import COLOURS, WIDTH, Drawing

SMALL = 9  # points
WORDS = {"h_prev": "#A84A00", "pool": "#00724F"}  # darker than the shapes they name, because letters need contrast


def add_cell(axis, x: float, y: float, colour: str, kind: str, size: float = 0.92, unit: float = 1) -> None:
    """Draw a square centered in the cell of side `unit` with its corner at (x, y); `kind` is its gid, for tests."""
    edge, side = unit * (1 - size) / 2, unit * size
    axis.add_patch(Rectangle((x + edge, y + edge), side, side, facecolor=colour, edgecolor="none", gid=kind))


def box(x: float, y: float, width: float, height: float, face: str, edge: str) -> FancyBboxPatch:
    return FancyBboxPatch((x + 0.15, y + 0.15), width - 0.3, height - 0.3, boxstyle="round,pad=0.15", facecolor=face,
                          edgecolor=edge, linewidth=1)


def add_text(axis, x: float, y: float, text: object, **style) -> None:
    axis.text(x, y, str(text), **{"ha": "center", "va": "center", "size": SMALL, **style})


def add_arrow(axis, start: tuple[float, float], stop: tuple[float, float]) -> None:
    axis.annotate("", stop, start, arrowprops={"arrowstyle": "-|>", "color": COLOURS["ink"], "lw": 1,
                                               "shrinkA": 0, "shrinkB": 1})


def fit_page(figure: Drawing, axis, xlim: tuple[float, float], ylim: tuple[float, float]) -> Drawing:
    """Show this part of the plane, one column wide, without axes; horizontal and vertical units have equal length."""
    axis.set(xlim=xlim, ylim=ylim, aspect="equal")
    axis.set_axis_off()
    figure.set_size_inches(WIDTH, (ylim[1] - ylim[0]) * WIDTH / (xlim[1] - xlim[0]))
    return figure


def check_drawable(n_tokens: int, most: int) -> None:
    if not 2 <= n_tokens <= most:
        raise ReproError(f"{n_tokens} tokens cannot be drawn one by one; choose 2 to {most}.")
