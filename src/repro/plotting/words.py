"""A page of text in colors, which show for each word which of two models predicts it better, and by how much, or how
far another word changes its loss."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from repro import markup
from repro.errors import ReproError
from repro.markup import signed
from repro.plotting.style import COLOURS, begun

STEPS = 0.1, 0.3, 1.0  # nats at which a word is colored, and colored more strongly
MOVES = 0.001, 0.01, 0.1  # nats by which replacing a word has to change the loss of a later word
SHADES = 0.2, 0.36, 0.55  # opacity of the color over the page, light or dark: letters stay readable on all of them
LINES = {"topic": "solid", "name": "double", "pronoun": "wavy"}  # underline of a word, by its kind

NAMES = {"topic": "topic words", "name": "names", "pronoun": "pronouns", "other": "others"}

REPLACED = "replaced"  # a kind that only `draw_changes` uses
CUT = '<span class="cut"></span>'  # where a window begins

# All styles are in the figure itself, so that it looks the same in a notebook and in the book.
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
    """A word, the nats that the recurrent model saves on it (negative: loses), its kind, and its window.

    >>> word = Word("Ann", saved=1.5, kind="name", window=3)
    >>> word.saved, word.begins
    (1.5, False)
    """

    text: str
    saved: float
    kind: str = "other"
    window: int = 0
    begins: bool = False  # whether a paragraph begins with this word


class Page(NamedTuple):
    """Some words in order, their title, and a note of a sentence or two.

    >>> Page("A page", [Word("Ann", 1.5, "name"), Word("ran", -0.2)], note="From a test.").note
    'From a test.'
    """

    title: str
    words: Sequence[Word]
    note: str = ""


@dataclass(frozen=True, repr=False)
class ColouredText:
    """A figure made of words (HTML), which a notebook shows as the value of a cell.

    >>> page = Page("A page", [Word("Ann", 1.5, "name"), Word("ran", -0.2)])
    >>> draw_words([page]).alt
    'Text whose words are colored by the nats that recurrence saves on each (A page: 2 words, +1.3 nats).'
    """

    inside: str
    alt: str
    values: Sequence[Mapping[str, object]] = ()  # the shown values as rows, which the book offers as CSV

    def look_for(self, words: str) -> "ColouredText":
        """The same figure, its caption beginning with what a reader should see. Raises ReproError for empty words."""
        return replace(self, alt=begun(words, self.alt))

    def html(self) -> str:
        """The figure as an element of a page."""
        return (f'<style>{STYLE}</style><div class="words" role="group" aria-label="{html.escape(self.alt)}">'
                f"{self.inside}</div>")

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/html": markup.figure(self.html(), html.escape(self.alt), values=self.values),
                "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def draw_words(pages: Iterable[Page]) -> ColouredText:
    """Pages of text, one below the other. Words are colored by the nats that the recurrent model saves compared with
    the baseline, and underlined by kind; a dashed line marks the start of a window.

    All but the first page are folded. Without a page the figure says "not run". Raises ReproError for a page without
    words and for an unknown kind.

    >>> draw_words([Page("live", [Word("Ann", 1.5, "name"), Word("ran", -0.2)])]).alt
    'Text whose words are colored by the nats that recurrence saves on each (live: 2 words, +1.3 nats).'
    """
    pages = list(pages)
    for one in pages:
        if not one.words:
            raise ReproError(f"the page '{one.title}' has no word to draw.")
        for word in one.words:
            if word.kind not in NAMES:
                raise ReproError(f"'{word.text}' is of kind '{word.kind}'; one of {', '.join(LINES)} or other can be "
                                 "drawn.")
    parts = [_page(one, STEPS, _sums(one.words)) for one in pages]
    described = "; ".join(f"{one.title}: {len(one.words)} words, {_total(one.words)} nats" for one in pages)
    alt = f"Text whose words are colored by the nats that recurrence saves on each ({described or 'not run'})."
    kinds = ", ".join(f'<span class="{kind}">{NAMES[kind]}</span>' for kind in LINES)
    better, worse, least = _shades(STEPS)
    legend = (f"<p>Nats by which the recurrent model is the better one: {better}, the baseline: {worse}, neither: "
              f"{least}. Underlined: {kinds}. {CUT}A window begins.</p>")
    return ColouredText(legend * bool(pages) + _first_open(pages, parts), alt, _rows(pages, "saved (nats)"))


def draw_changes(pages: Sequence[Page]) -> ColouredText:
    """Pages of one text in which one word was replaced, one page per model: the effect on each later word.

    Here, `saved` is the loss of a word after the replaced word minus its loss after the original one, in nats; above 0,
    the original word helped. The replaced word has the kind "replaced", and its text shows both words. Colors begin at
    a thousandth of a nat. Raises ReproError for a page without exactly one word of this kind.

    >>> words = [Word("Ann → Bob", 0, "replaced"), Word("ran", 0.2), Word("home", 0.0, window=1)]
    >>> draw_changes([Page("baseline", words)]).alt
    'Text of which one word was replaced (Ann → Bob). baseline: 1 of 2 later words move, the last one 1 word on.'
    """
    if not pages:
        raise ReproError("there is nothing to draw: no page was given.")
    parts, described = [], []
    for one in pages:
        if [word.kind for word in one.words].count(REPLACED) != 1:
            raise ReproError(f"the page '{one.title}' has not exactly one word of kind '{REPLACED}'.")
        first = next(k for k, word in enumerate(one.words) if word.kind == REPLACED)
        later = one.words[first + 1:]
        moved = [k for k, word in enumerate(later, 1) if abs(word.saved) >= MOVES[0]]
        last = f", the last one {moved[-1]} word{'s' * (moved[-1] > 1)} on" if moved else ""
        described.append(f"{len(moved)} of {len(later)} later words move{last}.")
        parts.append(_page(one, MOVES, described[-1]))
    replaced = next(word.text for word in pages[0].words if word.kind == REPLACED)
    alt = f"Text of which one word was replaced ({replaced}). " + " ".join(
        f"{one.title}: {line}" for one, line in zip(pages, described, strict=True))
    worse, better, least = _shades(MOVES)
    legend = (f'<p>Nats by which the loss of a word rises when <span class="{REPLACED}">this one</span> is replaced: '
              f"{worse}; by which it falls: {better}; uncolored: {least}. {CUT}A window begins.</p>")
    return ColouredText(f"<style>.words .{REPLACED}{{outline:2px solid;font-weight:700}}</style>{legend}"
                        f"{_first_open(pages, parts)}", alt, _rows(pages, "rise of the loss (nats)"))


def shade(saved: float, steps: Sequence[float] = STEPS) -> str:
    """The class of a word by the nats saved on it: "r1" to "r3" if the recurrent model is better, "b1" to "b3" if the
    baseline is, "" if both are about equal."""
    strength = sum(abs(saved) >= step for step in steps)
    return f"{'r' if saved > 0 else 'b'}{strength}" if strength else ""


def _shades(steps: Sequence[float]) -> tuple[str, str, str]:
    """The legend's colors as HTML: one side, the other side, neither."""
    least, *_, most = steps
    ends = [*(f"{a:g} to {b:g}" for a, b in pairwise(steps)), f"over {most:g}"]
    one, other = (" ".join(f'<span class="{side}{k}">{end}</span>' for k, end in enumerate(ends, 1)) for side in "rb")
    return one, other, f"less than {least:g}"


def _first_open(pages: Sequence[Page], parts: Sequence[str]) -> str:
    """The pages one below the other, all but the first folded."""
    folded = (f"<details><summary>{html.escape(one.title)}</summary>{part}</details>"
              for one, part in zip(pages[1:], parts[1:], strict=True))
    return (parts[0] if parts else '<p class="absent">not run</p>') + "".join(folded)


def _page(one: Page, steps: Sequence[float], sums: str) -> str:
    rows, window = [], None
    for word in one.words:
        before = "<br>" * (word.begins and bool(rows)) + CUT * (word.window != window)
        window, kind = word.window, word.kind if word.kind in (*LINES, REPLACED) else ""
        classes = " ".join(filter(None, (shade(word.saved, steps), kind)))
        named = f' class="{classes}"' if classes else ""
        tooltip = ", ".join(filter(None, (kind, f"{signed(word.saved, '.2f' if steps is STEPS else '.1g')} nats")))
        rows.append(f'{before}<span{named} title="{tooltip}">{html.escape(word.text)}</span>')
    return f"<p>{' '.join(rows)}</p><p>{html.escape(f'{one.title}: {sums}')} {html.escape(one.note)}</p>"


def _rows(pages: Sequence[Page], measure: str) -> list[dict]:
    return [{"page": one.title, "word": word.text, "kind": word.kind, "window": word.window, measure: word.saved}
            for one in pages for word in one.words]


def _sums(words: Sequence[Word]) -> str:
    """The nats saved on all words together, and on each kind."""
    parts = []
    for kind in NAMES:
        some = [word for word in words if word.kind == kind]
        if some:
            parts.append(f"{_total(some)} on {len(some)} {NAMES[kind]}")
    return f"{_total(words)} nats saved on {len(words)} words, {', '.join(parts)}."


def _total(words: Sequence[Word]) -> str:
    return signed(sum(word.saved for word in words), ".1f")
