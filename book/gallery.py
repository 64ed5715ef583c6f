"""Find where chapters show tables, figures and claims, so that the scoreboard, the landing page and the page of all
pictures can link there."""

import html
import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup, Tag

from repro.markup import ABSENT, numeric
from repro.plotting.style import COLOURS
from repro.study import artifacts, claims

LINK = re.compile(r'href="(notebooks/)?(\d\d_\w+)\.html#([\w.-]+)"')
NAMED = re.compile(r'(<(?:figure|table|tr)\b[^>]*?) id="([^"]+)"')
THUMB = re.compile(r'(<span class="thumb \w+" data-artifact="([^"]+)">)</span>')
SHOWN = re.compile(r'<figure class="(?:drawing|tabular)".*?</figure>', re.DOTALL)
FIGURE = re.compile(r'<figure class="drawing"(?: id="([^"]+)")?>(.*?)</figure>', re.DOTALL)
NUMBER = re.compile(r'<span class="of-figure">(Figure \d+\.\d+)</span>')
TEXTS = re.compile(r'<table class="texts" id="([^"]+)">')
PART = re.compile(r'<section class="(explorer|planner|playground)" aria-label="([^"]*)"')
CAPTION = re.compile(r'\s*(?:<div>)?(.*?)(?:<div class="data">.*?)?</(?:div|figcaption)>', re.DOTALL)  # its first line
PLACE = "<!-- pictures -->"
BOARD = "22_scoreboard"  # it has a row for every claim
WIDE, HIGH = 8, 9  # the most cells of a table that its thumbnail shows
SIDES = {"r": COLOURS["recurrent"], "b": COLOURS["baseline"]}  # the colors of words (repro.plotting.words)


class Picture(NamedTuple):
    """A figure of a chapter: its chapter and anchor, its number ("" if none), the first sentence of its caption (HTML),
    and its thumbnail (HTML)."""

    chapter: str
    id: str
    number: str
    caption: str
    small: str


@dataclass
class Gallery:
    """The artifacts, claims and figures found while rendering the chapters; thumbnails are saved in `folder`."""

    folder: Path
    places: dict[str, set[str]] = field(default_factory=dict)  # chapter -> ids that it shows
    pictures: dict[str, str] = field(default_factory=dict)  # artifact -> HTML
    figures: list[Picture] = field(default_factory=list)  # all figures, including those computed in chapters

    def __post_init__(self) -> None:
        self.known = {one.id: one.chapter for one in (*artifacts(), *claims())}
        self.titles = {one.id: one.title for one in artifacts()}

    def visit(self, chapter: str, text: str) -> str:
        """An output of a chapter (HTML) in which the ids of artifacts and claims stay where links lead: in their own
        chapter, the first time they are there."""
        for shown in SHOWN.findall(text):
            for _, id in NAMED.findall(shown):
                if id in self.titles and self.known[id] == chapter:
                    self.pictures.setdefault(id, shown)
        text = NAMED.sub(lambda found: found[0] if self._here(chapter, found[2]) else found[1], text)
        text = TEXTS.sub(lambda found: self._texts(chapter, found, text), text)
        text = FIGURE.sub(lambda found: self._numbered(chapter, found), text)
        return PART.sub(lambda found: self._part(chapter, found, text), text)

    def finished(self, text: str) -> str:
        """A page without links to missing anchors, and with thumbnails on its cards."""
        def link(found: re.Match) -> str:
            there = found[3] not in self.known or found[3] in self.places.get(found[2], ()) or found[2] == BOARD
            return found[0] if there else f'href="{found[1] or ""}{found[2]}.html"'

        text = THUMB.sub(lambda found: f"{found[1]}{self._small(found[2])}</span>", text)
        return re.sub(r'href="\.\./(src/[\w/]+\.py)#', r'href="../\1.html#', LINK.sub(link, text))

    def filled(self, text: str, titles: dict[str, str]) -> str:
        """The page of all pictures: one card per figure, under the title of its chapter."""
        before, after = text.split(PLACE)
        parts = (f'<section class="gallery"><h2>{html.escape(titles[chapter])}</h2>'
                 f"<ul>{''.join(map(self._card, some))}</ul></section>"
                 for chapter, some in groupby(self.figures, lambda one: one.chapter))
        return before + "\n".join(parts) + after

    def _numbered(self, chapter: str, found: re.Match) -> str:
        """A numbered figure with an anchor; remembers it and saves its thumbnail."""
        id, inside = found.groups()
        number = NUMBER.search(inside)
        if not number:
            return found[0]
        id = id or number[1].lower().replace(" ", "-").replace(".", "-")
        caption = CAPTION.match(inside, number.end())[1]
        plain = re.sub("<[^>]+>", "", caption).strip()
        self._remember(chapter, id, number[1], re.split(r"\. (?=\D)", plain)[0].removesuffix("."), inside)
        return f'<figure class="drawing" id="{id}">{inside}</figure>'

    def _texts(self, chapter: str, found: re.Match, text: str) -> str:
        """Side-by-side texts of an artifact."""
        self._remember(chapter, found[1], "", html.escape(self.titles[found[1]], quote=False), text)
        return found[0]

    def _part(self, chapter: str, found: re.Match, text: str) -> str:
        """An interactive part of a page, with an anchor."""
        kind, title = found.groups()
        self._remember(chapter, kind, "", title, text)
        return f'<section class="{kind}" id="{kind}" aria-label="{title}"'

    def _remember(self, chapter: str, id: str, number: str, title: str, drawn: str) -> None:
        """Add a figure to the page of all pictures."""
        self.figures.append(Picture(chapter, id, number, title, self._drawn(id, drawn, "gallery")))

    def _card(self, one: Picture) -> str:
        number = f"<b>{one.number}</b> " * bool(one.number)
        return (f'<li><a href="notebooks/{one.chapter}.html#{one.id}"><span class="thumb figure">{one.small}</span>'
                f"{number}{one.caption}</a></li>")

    def _drawn(self, id: str, text: str, folder: str) -> str:
        """The thumbnail of an output: its drawing as a separate, lazily loaded file, or a sketch of its words or table;
        "" if it has none of these."""
        if 'class="words"' in text:
            return sketch_words(text)
        drawn = max(re.findall(r"<svg.*?</svg>", text, re.DOTALL), key=len, default="")
        if drawn and "<table id" not in text:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{id}.svg").write_text(drawn)
            kind = ' class="photograph"' * ('<svg class="photograph"' in drawn)
            return f'<img{kind} src="{folder}/{id}.svg" alt="" loading="lazy" width="160" height="96">'
        return sketch(text) if "<table" in text else ""

    def _here(self, chapter: str, id: str) -> bool:
        """Whether an id is kept: ids of artifacts and claims are kept only in their own chapter, and only once."""
        here = self.places.setdefault(chapter, set())
        stays = self.known.get(id, chapter) == chapter and id not in here
        here |= {id} if stays else set()
        return stays

    def _small(self, id: str) -> str:
        """The thumbnail of an artifact on a card of the scoreboard."""
        return self._drawn(id, self.pictures.get(id, ""), "../gallery")


def sketch(text: str) -> str:
    """A thumbnail of a table: one bar per cell, solid for numbers, pale for words, none for a missing run."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    cells = [[html.unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in re.findall(
        r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)][:WIDE] for row in rows[:HIGH]]
    kinds: dict[str, str] = {"head": "", "number": "", "word": "", "absent": ""}
    wide = 160 / max(map(len, cells), default=1)
    for i, row in enumerate(cells):
        for k, cell in enumerate(row):
            kind = ("absent" if cell in ABSENT else "head" if not i else "number" if numeric([cell]) else "word")
            kinds[kind] += f"M{k * wide + 2:.0f} {i * 10 + 5}h{wide - 4:.0f}v5h{4 - wide:.0f}z"
    drawn = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in kinds.items() if path)
    return f'<svg viewBox="0 0 160 96" aria-hidden="true">{drawn}</svg>'


def sketch_words(text: str) -> str:
    """A thumbnail of colored words: one stroke per word in its color; the longest of several pages."""
    page = max(BeautifulSoup(text, "html.parser").select(".words p"), key=lambda one: len(one.get_text()))
    strokes: dict[str, str] = {}  # side and strength, "" for none -> a path
    across, down = 0.0, 5
    for part in page.children:
        kinds = part.get("class", []) if isinstance(part, Tag) else []
        kind = next((kind for kind in kinds if re.fullmatch("[rb][1-3]", kind)), "")
        for word in part.get_text().split():
            wide = min(160.0, 2.4 * len(word))
            if across + wide > 160:
                across, down = 0.0, down + 10
            strokes[kind] = strokes.get(kind, "") + f"M{across:.0f} {down}h{wide:.0f}v6h-{wide:.0f}z"
            across += wide + 3
    drawn = "".join(f'<path fill="{SIDES[kind[0]]}" fill-opacity="{int(kind[1]) / 3:.2f}" d="{path}"/>' if kind else
                    f'<path class="word" d="{path}"/>' for kind, path in sorted(strokes.items()))
    return f'<svg viewBox="0 0 160 96" aria-hidden="true">{drawn}</svg>'
