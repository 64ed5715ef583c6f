"""Fill the page of a paper from the records: its findings, all its claims by verdict, its tables and figures."""

import html

import learned

from repro.pages import badge
from repro.pages.board import place_of
from repro.study import Artifact, artifacts, claims
from repro.study.artifacts import ADDED
from repro.study.cache import caching
from repro.study.claims import WORST_FIRST, latest
from repro.study.rule import NOT_RUN


@caching()
def filled(text: str, paper: str) -> str:
    """The page of the paper with this id. Its marks are `<!-- claims -->` and `<!-- tables -->`."""
    return (learned.filled(text).replace("<!-- claims -->", all_claims(paper))
            .replace("<!-- tables -->", all_tables(paper)))


def all_claims(paper: str) -> str:
    """The claims of a paper, folded by verdict, the best verdict first."""
    found: dict[str, list[str]] = {}
    for one in claims():
        if one.paper == paper:
            found.setdefault(latest(one)[1].verdict, []).append(one.id)
    order = sorted(found, key=lambda verdict: (verdict == NOT_RUN, -WORST_FIRST.index(verdict)))
    return "\n\n".join(
        f'<details><summary>{badge(verdict)} {len(found[verdict])}</summary>'
        f'<ul class="verdicts">{"".join(map(learned.evidence, found[verdict]))}</ul></details>' for verdict in order)


def all_tables(paper: str) -> str:
    """The paper's tables and figures by chapter: source, title, chapter; then, folded, those that are only ours."""
    shown = sorted((one for one in artifacts() if one.paper == paper and place_of(one)),
                   key=lambda one: int(_chapter(one)))
    rows = [f"| {one.source[0].upper()}{one.source[1:]} | {_link(one)} | {_chapter(one)} |" for one in shown
            if not one.source.startswith(ADDED)]
    table = "\n".join(["| in the paper | what it shows | chapter |", "| --- | --- | ---: |", *rows])
    added = [f"<li>Chapter {_chapter(one)}: {_link(one)}</li>" for one in shown if one.source.startswith(ADDED)]
    several = "A table or figure" if len(added) == 1 else f"{len(added)} tables and figures"
    return table + (f"\n\n<details><summary>{several} that the paper does not have</summary>"
                    f"<ul>{''.join(added)}</ul></details>") * bool(added)


def _chapter(one: Artifact) -> str:
    return one.chapter.partition("_")[0].lstrip("0")


def _link(one: Artifact) -> str:
    return f'<a href="notebooks/{place_of(one)}">{_text(one.title)}</a>'


def _text(title: str) -> str:
    """A title as a cell of a Markdown table can hold it."""
    return html.escape(title, quote=False).replace("|", r"\|").replace("$", r"\$").replace("*", r"\*")
