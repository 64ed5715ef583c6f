"""How the book presents a paper: its card on the landing page, its row in the README, and its part of the contents."""

from collections.abc import Callable
from dataclasses import dataclass, field
from string import Formatter
from types import SimpleNamespace

from repro.markup import written
from repro.study.claims import claim, latest
from repro.study.registry import declared
from repro.study.rule import Verdict


@dataclass(frozen=True)
class Finding:
    """A sentence with the outcome of some claims. It appears only while all of them have the verdicts in `verdicts`.

    text: refers to a claim by its position in `verdicts`, as in `{0.effect:+.1%}`. `paper` is the paper's effect,
    `control` the control's effect, `low` and `high` are the ends of the interval, and `room` is what there was to
    gain. `size`, `paper_size` and `control_size` are the same effects without a sign. A name without a position, as in
    `{f1:.1f}`, is one of `Paper.values` of the papers of these claims.
    """

    text: str
    verdicts: dict[str, str] = field(default_factory=dict)  # id of a claim -> its verdict

    def written(self) -> str:
        """The sentence with its numbers; "" if the verdicts have changed."""
        found = {id: latest(claim(id))[1] for id in self.verdicts}
        if {id: one.verdict for id, one in found.items()} != self.verdicts:
            return ""
        numbers = [_numbers(one, claim(id).expected()) for id, one in found.items()]
        return self.text.format(*numbers, **self._named())

    def _named(self) -> dict[str, "Number"]:
        """The values that the text names, if it names any."""
        fields = [field for _, field, _, _ in Formatter().parse(self.text) if field]
        if all(field[0].isdigit() for field in fields):
            return {}
        known = declared(Paper)
        return {name: Number(value) for paper in {claim(id).paper for id in self.verdicts}
                for name, value in known[paper].values().items()}


def _numbers(found: Verdict, paper: float | None) -> SimpleNamespace:
    values = {"effect": found.effect, "paper": paper, "control": found.control, "low": found.low, "high": found.high,
              "room": found.room}
    known = {name: Number(value) for name, value in values.items() if value is not None}
    sizes = {name.replace("effect", "") + "_size": Number(abs(value)) for name, value in known.items()}
    return SimpleNamespace(**known, **{name.lstrip("_"): value for name, value in sizes.items()})


class Number(float):
    """A number that has no sign if it rounds to zero."""

    def __format__(self, style: str) -> str:
        return written(float(self), style)


@dataclass(frozen=True, eq=False, kw_only=True)
class Paper:
    """The declaration of a paper in the `__init__` of its package."""

    id: str  # the name of its package
    name: str  # the method, in a word or two
    cite: str  # its key in book/references.bib
    idea: str  # what it proposes, in a clause
    part: str  # part of the book; papers may share one
    chapters: tuple[int, int]  # the first and the last, including planned ones
    weights: Callable[[], float] | None = None  # of its largest model, in millions, as printed; None: not printed
    says: str = ""  # what it claims, in a sentence
    finding: Finding = Finding("")  # our outcome; its claims are the rows of the card
    values: Callable[[], dict[str, float]] = dict  # numbers from records that a finding names and no claim has
    headline: Finding = Finding("")  # what to remember; the landing page opens with the first paper's that has one

    @property
    def planned(self) -> set[int]:
        """The numbers of its chapters."""
        first, last = self.chapters
        return set(range(first, last + 1))


def papers() -> list[Paper]:
    """All papers in the order of their chapters."""
    return sorted(declared(Paper).values(), key=lambda paper: paper.chapters)
