"""What a chapter of the book rests on."""

from typing import Any

from repro.study.artifacts import artifacts
from repro.study.claims import claims
from repro.study.experiment import experiments
from repro.study.registry import package, packages


def papers_of(chapter: str, code: str) -> set[str]:
    """The packages of the papers that a chapter tells about, from its name and the text of its code cells.

    Those that it names, by themselves or by the id of an experiment, artifact or claim, and those that have an
    artifact in it. All of them for one that shows the scoreboard, or that names none.
    """
    if "Scoreboard" in code:
        return set(packages())
    entries: list[Any] = [*experiments(), *artifacts(), *claims()]
    named = {package(one) for one in entries if f'"{one.id}"' in code or getattr(one, "chapter", None) == chapter}
    return named | {name for name in packages() if f"repro.papers.{name}" in code} or set(packages())
