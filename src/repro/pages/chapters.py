"""Which papers a chapter of the book depends on."""

from typing import Any

from repro.study.artifacts import artifacts
from repro.study.claims import claims
from repro.study.experiment import experiments
from repro.study.registry import package, packages


def papers_of(chapter: str, code: str) -> set[str]:
    """The packages of the papers that a chapter covers, from its name and the text of its code cells.

    These are the packages that it names, directly or through the id of an experiment, artifact or claim, and those
    with an artifact in it; all packages if it shows the scoreboard or names none.
    """
    if "Scoreboard" in code:
        return set(packages())
    entries: list[Any] = [*experiments(), *artifacts(), *claims()]
    named = {package(one) for one in entries if f'"{one.id}"' in code or getattr(one, "chapter", None) == chapter}
    return named | {name for name in packages() if f"repro.papers.{name}" in code} or set(packages())
