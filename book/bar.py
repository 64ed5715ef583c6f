"""Measure the chapters: python book/bar.py writes the table into CONTRIBUTING.md, as `make notebooks` does."""

import json
import re
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- bar: book/bar.py -->\n", "<!-- end of bar -->\n"
BAR = 300  # most words before the first picture of a lesson
PICTURE = re.compile(r'<figure class="drawing"|<figure class="claims"|<svg|<img')
WORD = re.compile(r"[^\W_]\S*")


def measured(file: Path) -> dict[str, int | float]:
    """Measurements of a chapter, from its stored outputs: words before the first picture, characters in a line of code
    (the mean of all lines, and the longest), and cells that show a repr."""
    return measures(json.loads(file.read_text())["cells"])


def measures(cells: list[dict]) -> dict[str, int | float]:
    """The same measurements of a chapter's cells."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    lines = [line for cell in code for line in "".join(cell["source"]).splitlines() if line.strip()]
    return {"words before the first picture": words_before(cells),
            "characters per line of code": round(fmean(map(len, lines))), "longest line": max(map(len, lines)),
            "cells that show a repr": sum(any(map(is_repr, cell["outputs"])) for cell in code)}


def words_before(cells: list[dict]) -> int:
    """Words of prose and of outputs down to the first picture, or to the end where there is none; code is not read."""
    n = 0
    for cell in cells:
        if cell["cell_type"] == "markdown":
            n += count("".join(cell["source"]))
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            kind = next(kind for kind in ("text/html", "text/markdown", "text/plain") if kind in data)
            text = "".join(data[kind])
            picture = PICTURE.search(text)
            n += count(text[:picture.start()] if picture else text)
            if picture:
                return n
    return n


def count(text: str) -> int:
    """The words of a text, without tags, styles, folded parts and Markdown marks."""
    return len(WORD.findall(re.sub(r"<(style|details).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)))


def is_repr(output: dict) -> bool:
    """Whether a reader sees only a Python repr or the address of an object."""
    bare = set(output.get("data", ["none"])) == {"text/plain"}
    text = json.dumps(output)
    return bare or "at 0x" in text and bool(re.search(r"<[\w.]+ .*at 0x", text))  # the search is slow in long outputs


def table() -> str:
    """The table of all chapters, in Markdown."""
    files = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    rows = {file.stem: measured(file) for file in files}
    names = list(next(iter(rows.values())))
    lines = [["chapter", *names], ["---", *["---:"] * len(names)]]
    lines += [[name, *map(str, row.values())] for name, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(page: str) -> str:
    """The page with the current table."""
    before, _, after = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{after.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
