"""A page of text in colours: for each word which of two models predicts it better, and by how much."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from repro import page
from repro.errors import ReproError
from repro.page import signed
from repro.plotting.style import COLOURS

STEPS = 0.1, 0.3, 1.0  # nats from which on a word is coloured, and more strongly
SHADES = 0.2, 0.36, 0.55  # of the colour over the page, whatever its own is: letters stay readable on all of them
LINES = {"topic": "solid", "name": "double", "pronoun": "wavy"}  # below a word, by its kind

NAMES = {"topic": "topic words", "name": "names", "pronoun": "pronouns", "other": "others"}

CUT = '<span class="cut"></span>'  # where a window begins

# Everything that tells something is in the figure itself, so that it looks alike in a notebook and in the book.
STYLE = "".join([
    ".words{font-size:.9em;text-align:left}.words p{line-height:1.9;margin:.3em 0 .8em}",
    ".words span{border-radius:.2em;padding:.1em .15em;white-space:nowrap}",
    ".words span{text-decoration-thickness:1.5px;text-underline-offset:.2em}",
    ".words .cut{border-left:2px dashed;border-radius:0;margin:0 .2em 0 .3em;padding:.1em 0}",
    ".words summary{cursor:pointer}",
    *(f".words .{side}{k}{{background:{COLOURS[of]}{round(255 * shade):02X}}}" for side, of in (
        ("r", "recurrent"), ("b", "baseline")) for k, shade in enumerate(SHADES, 1)),
    *(f".words .{kind}{{text-decoration-line:underline;text-decoration-style:{line}}}"
      for kind, line in LINES.items())])


class Word(NamedTuple):
    """A word, the nats that the recurrent model saves on it (below 0: loses), its kind, and the window it stands in.

    >>> word = Word("Ann", saved=1.5, kind="name", window=3)
    >>> word.saved, word.begins
    (1.5, False)
    """

    text: str
    saved: float
    kind: str = "other"
    window: int = 0
    begins: bool = False  # whether a paragraph begins with it


class Page(NamedTuple):
    """Some words in their order, where they come from, and a sentence or two below.

    >>> Page("A page", [Word("Ann", 1.5, "name"), Word("ran", -0.2)], note="From a test.").note
    'From a test.'
    """

    title: str
    words: Sequence[Word]
    note: str = ""


@dataclass(frozen=True, repr=False)
class ColouredText:
    """A figure made of words (HTML), which a notebook shows where it is the value of a cell.

    >>> page = Page("A page", [Word("Ann", 1.5, "name"), Word("ran", -0.2)])
    >>> draw_words([page]).alt
    'Text whose words are coloured by the nats that recurrence saves on each (A page: 2 words, +1.3 nats).'
    """

    inside: str
    alt: str

    def html(self) -> str:
        """The figure as an element of a page."""
        return (f'<style>{STYLE}</style><div class="words" role="group" aria-label="{html.escape(self.alt)}">'
                f"{self.inside}</div>")

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/html": page.figure(self.html(), html.escape(self.alt)), "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def draw_words(pages: Iterable[Page]) -> ColouredText:
    """Pages of text, one below the other, whose words are coloured by what the recurrent model saves against the
    baseline, and underlined by their kind; a dashed line stands where a window begins.

    All but the first page are folded away. Without a page it says "not run". Raises ReproError for a page without a
    word and for a kind that has no line.

    >>> draw_words([Page("live", [Word("Ann", 1.5, "name"), Word("ran", -0.2)])]).alt
    'Text whose words are coloured by the nats that recurrence saves on each (live: 2 words, +1.3 nats).'
    """
    pages = list(pages)
    for one in pages:
        if not one.words:
            raise ReproError(f"the page '{one.title}' has no word to draw.")
        for word in one.words:
            if word.kind not in NAMES:
                raise ReproError(f"'{word.text}' is of kind '{word.kind}'; one of {', '.join(LINES)} or other can be "
                                 "drawn.")
    parts = [_page(one) for one in pages[:1]] or ['<p class="absent">not run</p>']
    parts += [f"<details><summary>{html.escape(one.title)}</summary>{_page(one)}</details>" for one in pages[1:]]
    told = "; ".join(f"{one.title}: {len(one.words)} words, {_total(one.words)} nats" for one in pages)
    alt = f"Text whose words are coloured by the nats that recurrence saves on each ({told or 'not run'})."
    return ColouredText(_legend() * bool(pages) + "".join(parts), alt)


def shade(saved: float) -> str:
    """The class of a word by the nats saved on it: "r1" to "r3" where the recurrent model is the better one, "b1" to
    "b3" where the baseline is, "" where both are about alike."""
    strength = sum(abs(saved) >= step for step in STEPS)
    return f"{'r' if saved > 0 else 'b'}{strength}" if strength else ""


def _legend() -> str:
    least, *_, most = STEPS
    ends = [*(f"{a:g} to {b:g}" for a, b in pairwise(STEPS)), f"over {most:g}"]
    sides = {name: " ".join(f'<span class="{side}{k}">{told}</span>' for k, told in enumerate(ends, 1))
             for side, name in (("r", "recurrent"), ("b", "baseline"))}
    kinds = ", ".join(f'<span class="{kind}">{NAMES[kind]}</span>' for kind in LINES)
    return (f"<p>Nats by which the recurrent model is the better one: {sides['recurrent']}, the baseline: "
            f"{sides['baseline']}, neither: less than {least:g}. Underlined: {kinds}. "
            f"{CUT}A window begins.</p>")


def _page(one: Page) -> str:
    rows, window = [], None
    for word in one.words:
        before = "<br>" * (word.begins and bool(rows)) + CUT * (word.window != window)
        window, kind = word.window, word.kind if word.kind in LINES else ""
        classes = " ".join(filter(None, (shade(word.saved), kind)))
        named = f' class="{classes}"' if classes else ""
        told = ", ".join(filter(None, (kind, f"{signed(word.saved, '.2f')} nats")))
        rows.append(f'{before}<span{named} title="{told}">{html.escape(word.text)}</span>')
    return f"<p>{' '.join(rows)}</p><p>{html.escape(f'{one.title}: {_sums(one.words)}')} {html.escape(one.note)}</p>"


def _sums(words: Sequence[Word]) -> str:
    """What is saved on all words together, and of it on each kind."""
    parts = []
    for kind in NAMES:
        some = [word for word in words if word.kind == kind]
        if some:
            parts.append(f"{_total(some)} on {len(some)} {NAMES[kind]}")
    return f"{_total(words)} nats saved on {len(words)} words, {', '.join(parts)}."


def _total(words: Sequence[Word]) -> str:
    return signed(sum(word.saved for word in words), ".1f")
