"""Fill the page on the papers' own runs: their needs, and the published times."""

import re

import pandas

from repro.pages.paper_runs import needs, times

TABLES = {"needs": needs, "times": times}
PLACE = re.compile(r"<!-- scale: (\w+) -->")
KEY = re.compile(r"\b([a-z]+\d{4}[a-z]+)\b")  # of a reference


def filled(text: str) -> str:
    """The page with its tables in place of their marks."""
    return PLACE.sub(lambda found: table(TABLES[found[1]]()), text)


def table(rows: pandas.DataFrame) -> str:
    """A Markdown table: numbers to the right, keys of references as citations."""
    words = {"run", "of", "time as printed", "peak", "source", "remark"}
    lines = [list(rows.columns), ["---" if name in words else "---:" for name in rows.columns],
             *([KEY.sub(r"{cite:t}`\1`", cell).replace("$", r"\$") for cell in row] for row in rows.values.tolist())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
