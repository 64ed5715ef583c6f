"""Downloads that accompany the pages: all verdicts as data, records, the code."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from repro.pages.listing import as_rows, listing
from repro.study import claims

ROOT = Path(__file__).parents[1]
DATA = "data"  # the folder of the data behind figures and tables
TABLE = re.compile(r'(?P<table><table id="(?P<id>[\w.-]+)">.*?</table>)(?P<between></div><figcaption>)'
                   "(?P<caption>.*?)</figcaption>", re.DOTALL)


def write(folder: Path, values: dict[str, str]) -> None:
    """Fill `folder`, which becomes the root of the book: scoreboard.json and .csv, results/, src/ as pages, and
    data/ with the `values` of each figure, by file name as CSV."""
    listed = listing()
    (folder / "scoreboard.json").write_text(json.dumps(listed, indent=1))
    rows, text = as_rows(listed), io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    (folder / "scoreboard.csv").write_text(text.getvalue())
    (folder / DATA).mkdir(parents=True)
    for name, content in values.items():
        (folder / DATA / name).write_text(content)
    for file in (ROOT / "results").glob("*/*/*.json"):
        (folder / file.parent.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(ROOT))
    for file in {one.declared_at[0] for one in claims()}:
        page = folder / f"{file.relative_to(ROOT)}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(code(file))


def kept(text: str, chapter: str, files: dict[str, str]) -> str:
    """HTML in which the caption of each table of an artifact links its cells as CSV, which `files` gets."""
    def one(found: re.Match) -> str:
        name = f"table-{chapter}-{found['id']}.csv"
        table = BeautifulSoup(found["table"], "html.parser").table
        rows = [heads(table), *([one.get_text() for one in row.find_all(["th", "td"])] for row in table.tbody("tr"))]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        files[name] = text.getvalue()
        return f"{found['table']}{found['between']}{found['caption']}{link(name)}</figcaption>"

    return TABLE.sub(one, text)


def heads(table: Tag) -> list[str]:
    """The heading of each column of a table, "group: name" in a group."""
    found: dict[tuple[int, int], str] = {}
    for i, row in enumerate(table.thead("tr")):
        k = 0
        for cell in row("th"):
            while (i, k) in found:
                k += 1
            wide, deep = int(cell.get("colspan", 1)), int(cell.get("rowspan", 1))
            found |= {(i + down, k + right): "" if down else cell.get_text()
                      for down in range(deep) for right in range(wide)}
    depth, width = (max(place) + 1 for place in zip(*found, strict=True))
    return [": ".join(filter(None, (found.get((i, k)) for i in range(depth)))) for k in range(width)]


def link(name: str) -> str:
    """The link of a caption to a file in the folder of data (HTML)."""
    return f'<div class="data"><a href="../{DATA}/{name}" download>data (CSV)</a></div>'


def code(file: Path) -> str:
    """A module as a page with a place for every line: #L12."""
    light, dark = (HtmlFormatter(style=style, linenos="inline", lineanchors="L", anchorlinenos=True)
                   for style in ("default", "github-dark"))
    listed = highlight(file.read_text(), PythonLexer(), light)
    listed = re.sub(r'(id|name)="L-(\d+)"', r'\1="L\2"', listed).replace('href="#L-', 'href="#L')
    return ('<!doctype html><html lang="en"><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width"><title>{file.name}</title>'
            f"<style>body {{ margin: 1rem; }} pre {{ overflow-x: auto; }} .linenos {{ opacity: "
            f"0.6; padding-right: 1em; }} a:target {{ outline: 2px solid; }} {light.get_style_defs()} "
            f"@media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; color: #e6edf3; }} "
            f"{dark.get_style_defs()} }}</style><h1>{file.relative_to(ROOT)}</h1>{listed}</html>")
