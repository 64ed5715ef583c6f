"""How verdicts look on pages: signs, badges, and the table of a chapter's claims."""

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from repro import markup
from repro.checked import checked
from repro.errors import check_whole, unknown
from repro.study.artifacts import beside
from repro.study.cache import caching
from repro.study.claims import UNITS, Claim, claims
from repro.study.rule import (
    INCONCLUSIVE,
    MACHINERY,
    NOT_REPRODUCED,
    NOT_RUN,
    NOT_TESTABLE,
    OPEN,
    REPRODUCED,
    SMALLER,
    Verdict,
)

if TYPE_CHECKING:
    import pandas

class Look(NamedTuple):
    """How a verdict looks; its color is never its only mark."""

    sign: str  # before the word
    color: str  # in pictures; on pages, book.css colors the class of `css_class`
    mark: str  # SVG, centered on 0, 0: the effect in a strip
    marker: str  # matplotlib: the effect in a picture


CIRCLE, SQUARE, TRIANGLE = '<circle r="5"/>', '<path d="M-4.5-4.5h9v9h-9z"/>', '<path d="M0-6 6 5H-6z"/>'
CROSS = '<path class="line" d="M-4.5-4.5l9 9m0-9l-9 9"/>'
HALF = '<circle class="line" r="4.5"/><path d="M0-4.5a4.5 4.5 0 0 1 0 9z"/>'
COLUMNS = ("the paper's", "seeds x units", "detectable", "room")  # columns of a table that explain a verdict
LOOKS = {
    REPRODUCED: Look("✓", "#2e7d32", CIRCLE, "o"),
    SMALLER: Look("½", "#7a9a2e", '<circle r="3.5"/>', "o"),
    NOT_REPRODUCED: Look("✗", "#c62828", SQUARE, "s"),
    INCONCLUSIVE: Look("≈", "#b26a00", TRIANGLE, "^"),
    NOT_TESTABLE: Look("∅", "#5e4fa2", CROSS, "x"),
    OPEN: Look("?", "#0b6fa4", HALF, "D"),
    NOT_RUN: Look("–", "#666666", "", ""),
    MACHINERY: Look("⚙", "#666666", '<circle r="2.5"/>', "o"),
}


def css_class(verdict: str) -> str:
    """The class with which book.css styles a verdict.

    >>> css_class("reproduced, smaller")
    'verdict-reproduced-smaller'
    """
    return "verdict-" + re.sub(r"\W+", "-", verdict)


@checked
def badge(verdict: str, href: str = "", about: str = "", n: int = 0) -> str:
    """A verdict as HTML: its sign and words, in the color and shape that book.css gives it.

    href: its link target. about: its tooltip. n: how many claims have it; 0 shows no number.
    Raises ReproError for a verdict that does not exist, and n below 0.

    >>> badge("open")
    '<span class="verdict verdict-open"><span aria-hidden="true">?</span> open</span>'
    """
    if verdict not in LOOKS:
        raise unknown("verdict", verdict, LOOKS)
    check_whole(n, "n", 0, of="claims")
    kind, link = ("a", f' href="{html.escape(href)}"') if href else ("span", "")
    tooltip = f' title="{html.escape(about)}"' if about else ""
    return (f'<{kind} class="verdict {css_class(verdict)}"{link}{tooltip}>'
            f'<span aria-hidden="true">{LOOKS[verdict].sign}</span> {f"{n} " * bool(n)}{verdict}</{kind}>')


def columns(one: Claim, found: Verdict) -> dict[str, str]:
    """Columns that explain a verdict in a table, where they exist: the paper's effect, seeds x units, the smallest
    detectable effect, the room."""
    numbers = {"the paper's": one.expected(), "detectable": found.detectable, "room": found.room}
    shown = {name: one.write(value).removeprefix("+" * (name != "the paper's")) for name, value in numbers.items()
             if value is not None and not (name == "detectable" and found.exact)}
    if found.n_units:
        crossed = f"{found.n_seeds} x {found.n_units} {UNITS[one.unit]}"
        crossed += f" in {found.n_blocks} blocks" * bool(found.n_blocks)
        alone = {"exact": "exact", "seed": f"{found.n_seeds} seed{'s' * (found.n_seeds != 1)}"}
        shown["seeds x units"] = alone.get(one.unit, crossed)
    return {name: shown[name] for name in COLUMNS if name in shown}


@dataclass(frozen=True, repr=False)
class VerdictTable:
    """Claims with their verdicts, one row for each claim and scale; notebooks show it with its caption.

    >>> verdict_table("smoke", "06_wikitext103").frame.columns[0]
    'claim'
    """

    frame: "pandas.DataFrame"
    ids: tuple[str, ...]  # of the claims, row by row
    caption: str = ""

    def _repr_html_(self) -> str:
        first = [id if id not in self.ids[:k] else "" for k, id in enumerate(self.ids)]
        return markup.table(self.frame, html.escape(self.caption, quote=False), rows=first)

    def __repr__(self) -> str:
        return self.caption or "Claims and their verdicts"


@caching()
def verdict_table(scale: str = "smoke", chapter: str | None = None, caption: str = "") -> VerdictTable:
    """The claims of a chapter (default: all) with their verdicts at `scale` and, before it, at the scales that `beside`
    returns. Raises ReproError for an unknown chapter.

    >>> len(verdict_table("smoke", "06_wikitext103").ids) > 1
    True
    """
    import pandas

    known = dict.fromkeys(one.chapter for one in claims())
    if chapter is not None and chapter not in known:
        raise unknown("chapter with claims", chapter, known)
    found = [(one, name, one.verdict(name)) for name in (*beside(scale), scale) for one in claims()
             if chapter in (None, one.chapter) and name in one.scales]
    rows = [{"claim": one.sentence, "scale": name, "verdict": verdict.verdict,
             "effect": "; ".join(filter(None, (verdict.text, one.late)))}
            | dict.fromkeys(COLUMNS, "–") | columns(one, verdict) for one, name, verdict in found]
    frame = pandas.DataFrame(rows, columns=["claim", "scale", "verdict", "effect", *COLUMNS])
    return VerdictTable(frame, tuple(one.id for one, *_ in found), caption)
