"""What lies beside the pages, for those who want more than they show: all verdicts as data, records, the code."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from repro.pages.listing import as_rows, listing
from repro.study import claims

ROOT = Path(__file__).parents[1]


def write(folder: Path) -> None:
    """Fill `folder`, which becomes the root of the book: scoreboard.json and .csv, results/, and src/ as pages."""
    listed = listing()
    (folder / "scoreboard.json").write_text(json.dumps(listed, indent=1))
    rows, text = as_rows(listed), io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    (folder / "scoreboard.csv").write_text(text.getvalue())
    for file in (ROOT / "results").glob("*/*/*.json"):
        (folder / file.parent.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(ROOT))
    for file in {one.declared_at[0] for one in claims()}:
        page = folder / f"{file.relative_to(ROOT)}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(code(file))


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
