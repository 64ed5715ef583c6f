"""How pages show verdicts: their signs and badges, and the table of a chapter's claims."""

import html
import re
from typing import TYPE_CHECKING

from repro.checked import checked
from repro.errors import unknown
from repro.study.artifacts import beside
from repro.study.cache import caching
from repro.study.claims import claims
from repro.study.rule import NOT_RUN

if TYPE_CHECKING:
    import pandas

# In addition to its color (book.css), each verdict has its own sign.
SIGNS = {"reproduced": "✓", "reproduced, smaller": "½", "not reproduced": "✗", "inconclusive": "≈",
         "not testable here": "∅", "open": "?", NOT_RUN: "–", "machinery works": "⚙"}


def css_class(verdict: str) -> str:
    """The class with which book.css styles a verdict.

    >>> css_class("reproduced, smaller")
    'verdict-reproduced-smaller'
    """
    return "verdict-" + re.sub(r"\W+", "-", verdict)


@checked
def badge(verdict: str, href: str = "", about: str = "") -> str:
    """A verdict as HTML: its sign and words, in the color and shape that book.css gives it.

    href: its link target. about: its tooltip.
    Raises ReproError for a verdict that does not exist.

    >>> badge("open")
    '<span class="verdict verdict-open"><span aria-hidden="true">?</span> open</span>'
    """
    if verdict not in SIGNS:
        raise unknown("verdict", verdict, SIGNS)
    kind, link = ("a", f' href="{html.escape(href)}"') if href else ("span", "")
    tooltip = f' title="{html.escape(about)}"' if about else ""
    return (f'<{kind} class="verdict {css_class(verdict)}"{link}{tooltip}>'
            f'<span aria-hidden="true">{SIGNS[verdict]}</span> {verdict}</{kind}>')


@caching()
def verdict_table(scale: str = "smoke", chapter: str | None = None) -> "pandas.DataFrame":
    """The claims of a chapter (default: all) with their verdicts, one row for each claim and scale.

    It shows `scale` and, before it, the scales that `beside` returns. Raises ReproError for an unknown chapter.

    >>> table = verdict_table("smoke", "06_wikitext103")
    >>> type(table).__name__
    'DataFrame'
    """
    import pandas

    known = dict.fromkeys(one.chapter for one in claims())
    if chapter is not None and chapter not in known:
        raise unknown("chapter with claims", chapter, known)
    chosen = [one for one in claims() if chapter in (None, one.chapter)]
    rows = [{"claim": one.sentence, "scale": name, "verdict": found.verdict,
             "effect": "; ".join(filter(None, (found.text, one.late)))}
            | {column: cells.get(column, "–") for column in ("the paper's", "seeds x units", "detectable", "room")}
            for name in (*beside(scale), scale) for one in chosen if name in one.scales
            for found in [one.verdict(name)] for cells in [one.words(found)]]
    return pandas.DataFrame(rows, columns=["claim", "scale", "verdict", "effect", "the paper's", "seeds x units",
                                           "detectable", "room"])
