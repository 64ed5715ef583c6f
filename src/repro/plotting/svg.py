"""A figure as SVG inside a page: sharp at every size, the same bytes for the same figure, with a text alternative."""

import html
import io
import re

import matplotlib
from matplotlib.figure import Figure

LARGEST = 300_000  # characters; the points and meshes of a longer SVG are drawn as pixels
LETTERS = "'DejaVu Sans', Verdana, sans-serif"  # text stays text, in the first of these fonts that a reader has


def as_svg(figure: Figure, alt: str) -> str:
    """The figure as an `<svg>` element. alt: what it shows, in one sentence, for readers who cannot see it.

    >>> figure, axes = canvas(alt="A line that rises.")
    >>> _ = axes.plot([1, 2, 3])
    >>> as_svg(figure, figure.alt)[:4]
    '<svg'
    """
    drawn = _drawn(figure)
    if len(drawn) > LARGEST:
        for axis in figure.axes:
            for artist in (*axis.lines, *axis.collections, *axis.patches):
                artist.set_rasterized(True)
        drawn = _drawn(figure)
    size = re.search(r'viewBox="0 0 (\S+) (\S+)"', drawn)
    inside = drawn[drawn.index("</defs>") + len("</defs>"):]  # after a style that would apply to the whole page
    return (f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
            f'aria-label="{html.escape(alt)}" {size[0]} width="{size[1]}pt" height="{size[2]}pt" '
            f'style="stroke-linejoin: round; stroke-linecap: butt">{inside}')


def _drawn(figure: Figure) -> str:
    """The SVG that matplotlib writes, without dates, versions and names, which differ between drawings of one
    figure."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "repro"}):
        figure.savefig(buffer, format="svg", dpi=300, metadata={"Date": None, "Creator": None})
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", buffer.getvalue(), flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # nothing refers to these ids, which repeat between figures
    drawn = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), drawn)  # 0.01 pt is enough
    return re.sub(r"<!--.*?-->|\s+", " ", drawn.replace("'DejaVu Sans'", LETTERS), flags=re.DOTALL).strip()
