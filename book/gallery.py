"""Where chapters show tables, figures and claims, so that the scoreboard, the landing page and the page of all pictures
can lead there."""

import html
import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from repro.page import ABSENT, numeric
from repro.study import artifacts, claims

LINK = re.compile(r'href="(notebooks/)?(\d\d_\w+)\.html#([\w.-]+)"')
ROW = re.compile(r'<tr((?: [^>]*)?)>(<th scope="row"[^>]*>)([^<]*)(</th>)')
TABLE = re.compile(r'<table id="([^"]+)">')
THUMB = re.compile(r'(<span class="thumb \w+" data-artifact="([^"]+)">)</span>')
FIGURE = re.compile(r'<figure class="drawing"(?: id="([^"]+)")?>(.*?)</figure>', re.DOTALL)
NUMBER = re.compile(r'<span class="of-figure">(Figure \d+\.\d+)</span>')
CAPTION = re.compile(r"\s*(?:<div>)?(.*?)</(?:div|figcaption)>", re.DOTALL)  # behind its number: the first line
PLACE = "<!-- pictures -->"
WIDE, HIGH = 8, 9  # cells of a table that its small picture shows at most


class Picture(NamedTuple):
    """A figure of a chapter: where it stands, its number, and the first sentence of what it shows (HTML)."""

    chapter: str
    id: str
    number: str
    told: str


@dataclass
class Gallery:
    """What has been met on the way through the chapters; `folder` takes the small pictures."""

    folder: Path
    places: dict[str, set[str]] = field(default_factory=dict)  # chapter -> ids of what it shows
    pictures: dict[str, str] = field(default_factory=dict)  # artifact -> HTML
    figures: list[Picture] = field(default_factory=list)  # all of them, those computed in the chapters too

    def __post_init__(self) -> None:
        self.headings = {one.heading: one.id for one in artifacts()}
        self.known = {one.id: one.chapter for one in (*artifacts(), *claims())}
        self.sentences = {one.sentence: one for one in claims()}

    def visit(self, chapter: str, text: str, plain: str) -> str:
        """An output of a chapter (HTML) in which artifacts and claims have their ids, each once in a chapter.

        plain: what the output is where there is no HTML; that of an artifact begins with its heading.
        """
        here = self.places.setdefault(chapter, set())
        text = TABLE.sub(lambda found: found[0] if self._first(here, found[1]) else "<table>", text)
        id = self.headings.get(plain.partition("\n")[0])
        if id and self.known[id] == chapter:
            if '<figure class="drawing">' in text and self._first(here, id):
                text = text.replace('<figure class="drawing">', f'<figure class="drawing" id="{id}">', 1)
            self.pictures.setdefault(id, text)
        text = FIGURE.sub(lambda found: self._numbered(chapter, found), text)

        def told(found: re.Match) -> str:
            one = self.sentences.get(html.unescape(found[3]))
            own = one and one.chapter == chapter and "id=" not in found[1] and self._first(here, one.id)
            return f'<tr{found[1]} id="{one.id}">{found[2]}{found[3]}{found[4]}' if own else found[0]

        return text if 'class="board"' in text else ROW.sub(told, text)

    def finished(self, text: str) -> str:
        """A page whose links lead to what is there, and whose cards have their small pictures."""
        def link(found: re.Match) -> str:
            there = found[3] not in self.known or found[3] in self.places.get(found[2], ())
            return found[0] if there else f'href="{found[1] or ""}{found[2]}.html"'

        text = THUMB.sub(lambda found: f"{found[1]}{self._small(found[2])}</span>", text)
        return re.sub(r'href="\.\./(src/[\w/]+\.py)#', r'href="../\1.html#', LINK.sub(link, text))

    def filled(self, text: str, titles: dict[str, str]) -> str:
        """The page of all pictures: a card for each, under the title of its chapter."""
        before, after = text.split(PLACE)
        parts = (f'<section class="gallery"><h2>{html.escape(titles[chapter])}</h2>'
                 f"<ul>{''.join(map(self._card, some))}</ul></section>"
                 for chapter, some in groupby(self.figures, lambda one: one.chapter))
        return before + "\n".join(parts) + after

    def _numbered(self, chapter: str, found: re.Match) -> str:
        """A numbered figure with an id; it is remembered, and its picture becomes a file."""
        id, inside = found.groups()
        number = NUMBER.search(inside)
        if not number:
            return found[0]
        id = id or number[1].lower().replace(" ", "-").replace(".", "-")
        caption = CAPTION.match(inside, number.end())[1]
        told = re.sub("<[^>]+>", "", caption).strip()
        self.figures.append(Picture(chapter, id, number[1], re.split(r"\. (?=\D)", told)[0].removesuffix(".")))
        if drawn := re.search(r"<svg.*?</svg>", inside, re.DOTALL):
            self._keep(id, drawn[0])
        return f'<figure class="drawing" id="{id}">{inside}</figure>'

    def _card(self, one: Picture) -> str:
        drawn = f'<img src="gallery/{one.id}.svg" alt="" loading="lazy" width="160" height="96">'
        here = drawn if (self.folder / f"{one.id}.svg").exists() else ""
        return (f'<li><a href="notebooks/{one.chapter}.html#{one.id}"><span class="thumb figure">{here}</span>'
                f"<b>{one.number}</b> {one.told}</a></li>")

    def _keep(self, id: str, drawn: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{id}.svg").write_text(drawn)

    def _first(self, here: set[str], id: str) -> bool:
        fresh = id not in here
        here.add(id)
        return fresh

    def _small(self, id: str) -> str:
        """A figure as a file of its own, loaded when it is looked at; of a table where its numbers are."""
        text = self.pictures.get(id, "")
        if "<table" in text:
            return sketch(text)
        drawn = re.search(r"<svg.*?</svg>", text, re.DOTALL)
        if not drawn:
            return ""
        self._keep(id, drawn[0])
        return f'<img src="../gallery/{id}.svg" alt="" loading="lazy" width="160" height="96">'


def sketch(text: str) -> str:
    """A table in small: a bar for each cell, full for a number, pale for words, none where it was not run."""
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
