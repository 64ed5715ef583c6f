"""The table of contents: `_toc.yml`, with a part for each group of papers, made from what their packages declare."""

from itertools import groupby
from pathlib import Path

import yaml

from repro.study.paper import papers

ROOT = Path(__file__).parents[1]
PLACE = "papers"  # the entry of `_toc.yml` that these parts replace


def contents() -> dict:
    """The table of contents, in the form that Jupyter Book reads."""
    found = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    at = found["parts"].index(PLACE)
    found["parts"][at:at + 1] = parts()
    return found


def parts() -> list[dict]:
    """A part for each group of papers: a page for each, then the chapters that are written; planned chapters count in
    its caption."""
    found = []
    for name, group in groupby(papers(), lambda paper: paper.part):
        members = list(group)
        planned = set().union(*(paper.planned for paper in members))
        pages = [paper.id for paper in members if (ROOT / f"book/{paper.id}.md").exists()]
        chapters = [f"notebooks/{path.stem}" for n in sorted(planned)
                    for path in sorted((ROOT / "notebooks").glob(f"{n:02d}_*.ipynb"))]
        first, last = min(planned), max(planned)
        span = f"chapter {first}" if first == last else f"chapters {first} to {last}"
        if chapters:
            found.append({"caption": f"{name} ({span})", "chapters": [{"file": file} for file in pages + chapters]})
    return found
