"""How the book presents a paper: its row on the landing page and in the README, its part of the table of contents."""

from collections.abc import Callable
from dataclasses import dataclass

from repro.study.registry import declared


@dataclass(frozen=True, eq=False, kw_only=True)
class Paper:
    """The declaration of a paper in the `__init__` of its package."""

    id: str  # the name of its package
    name: str  # the method, in a word or two
    cite: str  # its key in book/references.bib
    idea: str  # what it proposes, in a clause
    part: str  # the part of the book, which papers may share
    chapters: tuple[int, int]  # the first and the last, planned ones included
    weights: Callable[[], float] | None = None  # of its largest model, in millions, as printed; None: not printed
    findings: tuple[str, ...] = ()  # ids of claims that open the front page

    @property
    def planned(self) -> set[int]:
        """The numbers of its chapters."""
        first, last = self.chapters
        return set(range(first, last + 1))


def papers() -> list[Paper]:
    """All papers in the order of their chapters."""
    return sorted(declared(Paper).values(), key=lambda paper: paper.chapters)
