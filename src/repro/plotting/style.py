"""The house style: one column wide, letters readable at 700 pixels, colors that are safe for color-blind readers."""

import html
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import log
from typing import TypeVar
from zlib import crc32

import matplotlib
from matplotlib.figure import Figure

from repro import markup
from repro.errors import ReproError
from repro.plotting.svg import as_svg

WIDTH = 7.0  # inches; at 700 pixels 10 points are 14 pixels high
DPI = 150

# Roles, not hues; hues from Okabe and Ito (2008), distinct with any kind of color blindness and in gray.
COLOURS = {
    "baseline": "#0072B2", "recurrent": "#D55E00", "paper": "#4D4D4D", "bound": "#009E73",
    "read": "#CFE2F0", "scored": "#0072B2", "h_prev": "#D55E00", "pale": "#F7D9C6", "pool": "#009E73",
    "ink": "#222222", "faint": "#6E6E6E", "grid": "#E3E3E3", "empty": "#F6F6F6",
}
BLUE, RED, GREEN, PINK, SKY, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D"
PURPLE, BROWN, OLIVE = "#7A5BB5", "#9A6324", "#808000"
CYCLE = (BLUE, RED, GREEN, PINK, SKY, ORANGE, GREY, PURPLE, BROWN, OLIVE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
SHADES = 2.1, 3.1, 4.6, 6.8, 10.0  # contrast of shades with white; with black it is 21 / this, so also at least 2.1

# The name of a line decides its color in every figure: "recurrent, overlap 5" belongs to the series "recurrent".
SERIES = {
    "baseline": BLUE, "recurrent": RED, "baseline trained with overlap": SKY, "baseline with overlap": SKY,
    "live model": BLUE, "transformer": PINK, "lstm": BROWN,
    "paper": GREY, "smoke": ORANGE, "small": GREEN, "pretrained": RED, "medium": PURPLE,
    "train": BLUE, "validation": ORANGE, "test": PINK,
    "none": BLUE, "layer": SKY, "window": RED, "window+layer": GREEN,  # kinds of recomputation
    "dense": GREY, "dense, mask": GREY, "full, every score kept": GREY,
    "sdpa": PURPLE, "dense, causal": PURPLE, "full, a kernel that keeps none": PURPLE,
    "loop": GREEN, "window: loop": GREEN, "blocked": RED, "window: blocked": RED, "blocked, dilation 4": ORANGE,
    "strided": OLIVE, "fixed": ORANGE, "flex": SKY, "local-attention": PINK, "Longformer layer, ours": BLUE,
    "Longformer layer, transformers": BROWN, "chunks": OLIVE, "window: chunks": BROWN, "window: chunks (ours)": OLIVE,
    "no dilation": RED, "dilation": ORANGE,
}

T = TypeVar("T")


def named(lines: Mapping[str, T] | Iterable[tuple[str, T]]) -> dict[str, T]:
    """The lines of a figure, by label. Raises ReproError for a duplicate label: one line would hide the other."""
    found = {}
    for label, line in lines.items() if isinstance(lines, Mapping) else lines:
        if label in found:
            raise ReproError(f"the label '{label}' comes twice in one figure; each line needs a label of its own.")
        found[label] = line
    return found


def series(name: str) -> str | None:
    """The longest name in SERIES that begins a line's name; None if there is none."""
    fits = (known for known in SERIES if name.startswith(known) and not name[len(known):][:1].isalnum()
            and name[len(known):][:1] not in ("-", "+", "_"))
    return max(fits, key=len, default=None)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A color for every line of a figure, no two the same.

    A series in SERIES has its own color, and several lines of one series get shades of it. Any other name always gets
    the same color of the cycle, or the next one if another line of the figure has it.
    Raises ReproError for a duplicate name.
    """
    names, found = list(named((name, None) for name in names)), {}
    for name in sorted(names, key=lambda name: series(name) is None):  # known series choose first
        start = crc32(name.encode()) % len(CYCLE)
        turned = [*CYCLE[start:], *CYCLE[:start]]
        wanted = [SERIES[series(name)], *turned] if series(name) else turned
        shades = [shade for colour in wanted for shade in _shades(colour)]
        choice = shades if series(name) else [*wanted, *shades]
        found[name] = next((colour for colour in choice if colour not in found.values()), wanted[0])
    return {name: found[name] for name in names}


@cache
def _shades(colour: str) -> list[str]:
    """A color and its shades without the most similar one, the most different shade first."""
    from seaborn import blend_palette
    from seaborn.utils import relative_luminance

    mixed = [shade.upper() for shade in blend_palette(("white", colour, "black"), 201).as_hex()]
    contrast = {shade: 1.05 / (relative_luminance(shade) + 0.05) for shade in (colour, *mixed)}  # with white, 1 to 21
    found = [min(mixed, key=lambda one: abs(contrast[one] - wanted)) for wanted in SHADES]
    apart = {shade: abs(log(contrast[shade] / contrast[colour])) for shade in found}
    return [colour, *sorted(found, key=apart.get, reverse=True)[:-1]]


STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so letters look the same on every machine
    "font.size": 10, "axes.titlesize": 10.5, "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9,
    "legend.fontsize": 9, "axes.titlelocation": "left", "axes.titleweight": "bold", "axes.titlepad": 8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": COLOURS["faint"],
    "axes.labelcolor": COLOURS["ink"], "text.color": COLOURS["ink"], "xtick.color": COLOURS["ink"],
    "ytick.color": COLOURS["ink"], "axes.grid": True, "axes.axisbelow": True, "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 5, "legend.frameon": False,
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE), "figure.dpi": DPI, "savefig.dpi": DPI,
    "figure.facecolor": "white", "mathtext.fontset": "dejavusans", "figure.constrained_layout.use": True,
}


@contextmanager
def house() -> Iterator[None]:
    """Use the house style in a `with` statement, or as a decorator of a drawing function.

    Matplotlib and seaborn both use it: seaborn's default palette becomes CYCLE, and its text has these sizes.

    >>> import matplotlib
    >>> with house():
    ...     matplotlib.rcParams["axes.spines.top"]
    False
    """
    with matplotlib.rc_context(STYLE):
        yield


def begun(words: str, alt: str) -> str:
    """A caption that begins with what to see. Raises ReproError for empty words."""
    if not words.strip():
        raise ReproError("look_for has no words; give a sentence that says what to see in the figure.")
    return f"{' '.join(words.split())} {alt[:1].upper()}{alt[1:]}"


class Drawing(Figure):
    """A figure that a notebook shows once, as the value of a cell; `alt` is its text alternative and its caption.

    It is not registered with pyplot, so nothing has to be closed, and no backend shows it a second time.

    >>> figure = draw_windows(6, window=4, overlap=1)
    >>> isinstance(figure, Drawing), figure.alt
    (True, 'Windows of 4 tokens over a text of 6, at overlap 1: what each window reads and what it scores.')
    """

    alt: str
    values: Sequence[Mapping[str, object]] = ()  # the shown values, which the book offers as CSV; () for a diagram
    is_photograph = False  # whether a page keeps its colors in dark mode
    frames: "Sequence[Drawing]" = ()  # steps that a page can play in place of the figure
    name = ""  # of a frame

    def look_for(self, words: str) -> "Drawing":
        """The same figure, its caption beginning with what a reader should see. Raises ReproError for empty words.

        >>> draw_curves({"train": [[0, 5.0], [9, 3.0]]}).look_for("A falling curve means progress.").alt
        'A falling curve means progress. Nats per token against tokens: train.'
        """
        self.alt = begun(words, self.alt)
        return self

    def png(self) -> bytes:
        """The figure as PNG, the same bytes for the same figure."""
        buffer = io.BytesIO()
        with house():
            self.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    def svg(self) -> str:
        """The figure as an SVG element of a page, the same bytes for the same figure."""
        with house():
            svg = as_svg(self, self.alt)
        return svg.replace("<svg ", '<svg class="photograph" ', 1) if self.is_photograph else svg

    def steps(self) -> dict[str, str]:
        """The frames as SVG, by name: their own, or "step 1" and so on."""
        return {frame.name or f"step {k}": frame.svg() for k, frame in enumerate(self.frames, 1)}

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        caption = html.escape(self.alt[:1].upper() + self.alt[1:])
        return {"text/html": markup.figure(self.svg(), caption, self.steps(), values=self.values),
                "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def plain(value: float, _: int | None = None) -> str:
    """A number on a logarithmic axis, without powers of ten.

    >>> plain(1_048_576), plain(0.0625), plain(2)
    ('1,048,576', '0.0625', '2')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


@house()
def canvas(height: float = 3.0, columns: int = 1, rows: int = 1, *, alt: str, **subplots):
    """A new figure in house style and its axes: one Axes or an array of them, as from `Figure.subplots`.

    height: in inches; the width is 7. alt: what the figure shows, in one sentence, for readers who cannot see it.
    subplots: further arguments of `Figure.subplots`, such as sharey=True. Raises ReproError for an empty alt.

    >>> figure, (left, right) = canvas(columns=2, alt="Two empty panels.")
    >>> figure.alt
    'Two empty panels.'
    """
    if not alt.strip():
        raise ReproError("a figure without words; alt has to say what it shows to those who cannot see it.")
    figure = Drawing(figsize=(WIDTH, height), layout="constrained")
    figure.alt = alt
    return figure, figure.subplots(rows, columns, **subplots)
