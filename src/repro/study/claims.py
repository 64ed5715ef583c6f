"""The papers' claims, judged by records."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import expm1
from pathlib import Path
from typing import Any, Literal, NamedTuple

from repro.checked import checked
from repro.errors import ReproError
from repro.study.artifacts import Artifact, Based, artifact, paired
from repro.study.cache import cached, caching
from repro.study.record import Record
from repro.study.registry import declared, lookup
from repro.study.rule import (
    INCONCLUSIVE,
    MACHINERY,
    NO_ROOM,
    NOT_REPRODUCED,
    NOT_RUN,
    NOT_TESTABLE,
    OPEN,
    REPRODUCED,
    SEEDS,
    SMALLER,
    Verdict,
    holm,
    in_style,
    judge,
)
from repro.study.runs import Run
from repro.study.settings import COMMITTED, SCALES, RunConfig
from repro.study.store import Store

DECIDED = REPRODUCED, SMALLER, NOT_REPRODUCED, INCONCLUSIVE
WORST_FIRST = NOT_REPRODUCED, NOT_RUN, OPEN, NOT_TESTABLE, INCONCLUSIVE, SMALLER, REPRODUCED, MACHINERY
UNITS = {"document": "documents", "book": "books", "stretch": "stretches", "question": "questions", "seed": "seeds",
         "exact": "exact"}
SHORT = 60  # longest sentence that fits in one line with its effect, in characters


class Measured(NamedTuple):
    """The effects that a claim measures in its records.

    >>> Measured(effects=[[-0.03, -0.02]], control=[[0.0, 0.01]]).note
    ''
    """

    effects: Any  # (seeds, units)
    control: Any = None  # the same without the mechanism, (seeds, units) or (seeds, 1)
    note: str = ""  # a remark that readers need with these numbers


class Assay(NamedTuple):
    """A positive control: it must move the score by at least the paper's effect, or the claim is not testable here.

    >>> Assay("the overlap", where=lambda config: config.overlap == 50, room=lambda records: 0.1).room([])
    0.1
    """

    what: str  # in words
    where: Callable[[Any], bool]  # which configs of the plan it reads
    room: Callable[[list[Record]], float | None]  # how far it moved the score, at common seeds; None: not measured
    paper: Callable[[], float] | None = None  # how far it moves the score in the paper; None: not printed


@dataclass(frozen=True, eq=False, kw_only=True)
class Claim(Based):
    """One sentence of a paper that records can confirm or refute, declared before it is judged.

    `measure(records)` gets the records of the planned configs that `where` selects, ordered by seed, at the seeds that
    all of these configs share; it is called only if there is such a seed. `repro.study.judge`, one rule for all claims,
    turns its result into a verdict.

    Raises ReproError if something is neither declared nor explained: the paper's effect and, unless the claim is about
    an exact number ("exact"), the control and the assay.

    >>> Claim(id="toy", paper="this book", sentence="It helps.", source="Table 1", experiment="recurrence-pg19",
    ...     measure=lambda records: Measured([[-0.1]]), direction="lower", unit="book")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: claim 'toy' declares neither paper_effect nor why_no_paper_effect; give one of them.
    """

    id: str
    paper: str
    sentence: str  # in our words
    short: str = ""  # the same in at most SHORT characters, if the sentence is longer
    source: str  # where in the paper, e.g. "Table 1"
    experiment: str | tuple[str, ...]  # whose runs judge it, one or several
    about: tuple[str, ...] = ()  # ids of artifacts, the best evidence first
    where: Callable[[Any], bool] = lambda config: True
    measure: Callable[[list[Record]], Measured]
    direction: Literal["lower", "higher"]  # the claimed side of `null`
    null: float = 0.0
    margin: bool = False  # `null` is a size named by the sentence, such as "at most 1% worse": only the side counts
    unit: Literal["document", "book", "stretch", "question", "seed", "exact"]  # what each effect of a seed measures
    seeds: int = SEEDS  # the number of seeds needed
    same_weights: bool = False  # the same weights are compared, so one seed is enough
    paper_effect: Callable[[], float] | None = None  # from the published values
    why_no_paper_effect: str = ""
    control: str = ""  # in words; `measure` returns its effects
    why_no_control: str = ""
    assay: Assay | None = None
    why_no_assay: str = ""
    family: str = ""  # claims of one family share one error (Holm)
    criterion_before: str = ""  # the earlier criterion, if it changed after the runs
    means_at: tuple[str, ...] = SCALES[1:]  # at other scales a run only shows that the code works
    relative: bool = False  # effects are logs of a ratio, shown as a change in %
    unit_shown: str = ""  # unit of the effects; for relative effects the quantity that changes, such as "in perplexity"
    declared_at: tuple[Path, int] = field(init=False, default=(Path(), 0))  # file and line

    def __post_init__(self):
        for name, given, known in (("direction", self.direction, ("lower", "higher")), ("unit", self.unit, UNITS)):
            if given not in known:
                raise ReproError(f"claim '{self.id}' has the {name} '{given}'; give one of {', '.join(known)}.")
        exact = self.unit == "exact"
        for name, given, needed in (("paper_effect", self.paper_effect, True), ("control", self.control, not exact),
                                    ("assay", self.assay, not exact)):
            why = getattr(self, f"why_no_{name}")
            if given and why or needed and not given and not why:
                raise ReproError(f"claim '{self.id}' declares {'both' if given else 'neither'} {name} "
                                 f"{'and' if given else 'nor'} why_no_{name}; give one of them.")
        if len(self.short) > SHORT:
            raise ReproError(f"claim '{self.id}' has a short form of {len(self.short)} characters; shorten it to "
                             f"{SHORT} or fewer.")
        if self.seeds < SEEDS:
            raise ReproError(f"claim '{self.id}' asks for {self.seeds} seed{'s' * (self.seeds > 1)}; ask for {SEEDS} "
                             "or more, or set same_weights=True if the same weights are compared.")
        caller = sys._getframe(2)  # of __init__, which calls this
        object.__setattr__(self, "declared_at", (Path(caller.f_code.co_filename), caller.f_lineno))

    def check_beside(self, others: list["Claim"]) -> None:
        """Raise ReproError for a claim of the same family that points the other way."""
        for other in others:
            if self.family and other.family == self.family and other.direction != self.direction:
                raise ReproError(f"family '{self.family}' has two directions: claim '{other.id}' says "
                                 f"'{other.direction}', claim '{self.id}' '{self.direction}'; give one of them another "
                                 "family.")

    @property
    def brief(self) -> str:
        """Its one-line form for lists: `short`, or the sentence if `short` is empty."""
        return self.short or self.sentence

    @property
    def late(self) -> str:
        """The note in its row if its criterion changed after the runs; "" if it did not."""
        return f"criterion changed after the runs (before: {self.criterion_before})" if self.criterion_before else ""

    @property
    def chapter(self) -> str:
        """The chapter of the first artifact in `about`."""
        return artifact(self.about[0]).chapter if self.about else ""

    @caching()
    @cached
    def verdict(self, scale: str = "smoke", results: Path | str | None = None) -> Verdict:
        """The verdict of the records of `scale`; "not run", with the command, if one is missing.

        Raises ReproError for an unknown scale and for records that cannot be trusted.
        """
        found = self._of_scale(scale, results, self.sharing(scale, results))
        if found.effect is None or scale in self.means_at:
            return found
        return replace(found, verdict=MACHINERY, note="", because=(), commands=())

    def sharing(self, scale: str, results: Path | str | None = None) -> int:
        """The number of claims in its family with which it shares the error of 5% (Holm), of those with enough runs and
        seeds. 1 without a family, and while the claim lacks runs or seeds."""
        found = self._of_scale(scale, results)
        if not self.family or found.verdict not in (*DECIDED, NOT_TESTABLE):
            return 1
        members = [one for one in claims() if one.family == self.family and scale in one.scales and one.id != self.id]
        every = [found, *(one._of_scale(scale, results) for one in members)]
        return holm([one.p for one in every if one.verdict in (*DECIDED, NOT_TESTABLE)])[0]

    @cached
    def _of_scale(self, scale: str, results: Path | str | None, family: int = 1) -> Verdict:
        """The verdict at one scale, with the error shared by `family` claims."""
        found = self.records(scale, results)
        missing = [config for config, records in found if not records]
        if missing:
            names = dict.fromkeys(config.experiment for config in missing)
            lines = [f"repro run {name} --scale {scale}" for name in names]
            return Verdict(NOT_RUN, because=(f"{len(missing)} of {len(found)} runs missing",),
                           commands=(Run(missing[0]).command,) if len(missing) == 1 else tuple(lines))
        judged = [records for config, records in found if self.where(config)]
        chosen = list(chain(*paired(*judged)))
        if not chosen:
            return Verdict(NOT_RUN, because=("its runs have no seed in common; run them with the same --seed",))
        assayed = [records for config, records in found if self.assay and self.assay.where(config)]
        positive = list(chain(*paired(*assayed))) if assayed else []
        key = (self, family, *(record.digest for record in (*chosen, *positive)))
        if key not in _verdicts:
            name = next(config.experiment for config, _ in found if self.where(config))
            found = self.judge(chosen, positive, family)
            common = {record.seed for record in chosen}
            more = next(seed for seed in range(len(common) + 1) if seed not in common)
            reasons = filter(None, (mixed(chosen), found.verdict == OPEN and "for one more seed"))
            again = (f"repro run {name} --scale {scale} --seed {more}",) if found.verdict == OPEN else ()
            _verdicts[key] = replace(found, because=(*found.because, *reasons), commands=again)
        return _verdicts[key]

    def judge(self, records: list[Record], positive: Sequence[Record] | None = None, family: int = 1) -> Verdict:
        """The verdict of these records. `positive`: the records of the assay; None judges without it. If the assay
        measures nothing, an effect of the paper's size could not have been detected."""
        effects, control, note = self.measure(sorted(records, key=lambda record: record.seed))
        if self.control and control is None:
            raise ReproError(f"claim '{self.id}' declares a control ({self.control}), but its records hold none.")
        room = self.assay.room(sorted(positive, key=lambda record: record.seed)) if self.assay and positive else None
        found = judge(effects, self.direction, self.paper_effect() if self.paper_effect else None, control, room,
                      1 if self.same_weights or self.unit == "exact" else self.seeds, self.null, family,
                      self.assay.paper() if self.assay and self.assay.paper else None, self.unit == "stretch")
        if self.margin and found.verdict == SMALLER:
            found = replace(found, verdict=REPRODUCED, because=())
        unseen = ""
        if found.exact and self.unit != "exact" and found.effect == self.null:
            found = replace(found, exact=False, low=None, high=None, detectable=None)
            unseen = f"no {self.unit} shows any difference"
        elif self.assay and self.paper_effect and positive is not None and room is None:
            unseen = f"its positive control, {self.assay.what}, measured nothing here" * (found.verdict == INCONCLUSIVE)
        if unseen and found.verdict in DECIDED:
            found = replace(found, verdict=NOT_TESTABLE, reason=NO_ROOM, testable=False, because=(unseen,))
        found = replace(found, note=note, unit=self.unit_shown, style=self.style)
        return _as_shares(found, 1 if self.direction == "higher" else -1) if self.relative else found

    @cached
    def records(self, scale: str, results: Path | str | None = None) -> list[tuple[RunConfig, list[Record]]]:
        """The configs that judge it, including those of its assay, each with its records at every seed; [] for a
        missing run."""
        store = Store.for_scale(scale, results)
        return [(config, store.seeds(config)) for config in self.needed(scale)]

    @cached
    def needed(self, scale: str) -> list[RunConfig]:
        """The planned configs that judge it, including those of its assay."""
        return [config for config in self.plan(scale)
                if self.where(config) or self.assay and self.assay.where(config)]

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """The scales whose plans include the runs that it compares."""
        return tuple(scale for scale in super().scales
                     if any(self.where(config) for one in self.experiments for config in one.plan(scale)))

    def declared(self) -> dict[str, Any]:
        """Its declaration, as `repro list --json` prints it."""
        assay = self.assay.what if self.assay else ""
        return {"direction": self.direction, "unit": self.unit, "family": self.family} | (
            {"control": self.control} if self.control else {"why_no_control": self.why_no_control}) | (
            {"assay": assay} if assay else {"why_no_assay": self.why_no_assay}) | (
            {"criterion_before": self.criterion_before} if self.criterion_before else {})

    @property
    def style(self) -> Literal["difference", "ratio", "value"]:
        """How its numbers are written (`repro.study.rule.in_style`)."""
        return "ratio" if self.relative else "value" if self.null or self.unit == "exact" else "difference"

    def expected(self) -> float | None:
        """The paper's effect in the unit of the verdict; None if there is none (`why_no_paper_effect`)."""
        effect = self.paper_effect() if self.paper_effect else None
        return expm1(effect) if self.relative and effect is not None else effect

    def write(self, number: float) -> str:
        """A number of a verdict in the claim's format."""
        return in_style(number, self.style)


def mixed(records: Sequence[Record]) -> str:
    """The seeds whose runs come from several kinds of machine, which round differently, with these kinds; "" if there
    are none. It is a caution if no two runs of a seed share a kind: then machines differ wherever runs are compared."""
    kinds: dict[int, list[str]] = {}
    for record in records:
        made = record.environment
        kinds.setdefault(record.seed, []).append(made["cpu"] if made["device"] == "cpu" else made["device"])
    seeds: dict[str, list[str]] = {}  # names of machines -> seeds, the lowest seed first
    for seed, found in sorted(kinds.items()):
        if len(set(found)) > 1:
            seeds.setdefault(" and ".join(sorted(set(found))), []).append(str(seed))
    told = "; ".join(f"seed {', '.join(of)} on {names}" for names, of in seeds.items())
    apart = all(len(set(found)) == len(found) > 1 for found in kinds.values())
    return f"{'caution: compared across hardware' if apart else 'mixed hardware'} ({told})" if told else ""


_verdicts: dict[tuple, Verdict] = {}  # (claim, family, digests of its records) -> verdict


def _as_shares(verdict: Verdict, sign: int) -> Verdict:
    """Turn a verdict on logs of a ratio into one on the relative change; `sign` is that of the claimed side."""
    ends = {name: getattr(verdict, name) for name in (
        "effect", "low", "high", "paper_effect", "control", "beyond", "beyond_low", "beyond_high", "null")}
    sizes = {name: getattr(verdict, name) for name in ("detectable", "room", "paper_room", "expected", "bar")}
    return replace(verdict, **{name: value if value is None else expm1(value) for name, value in ends.items()},
                   **{name: value if value is None else sign * expm1(sign * value) for name, value in sizes.items()})


@checked
def claim(id: str) -> Claim:
    """The claim with this id. Raises ReproError, with the nearest id, when there is none.

    >>> claim("yoshida2020-table1-gain-disjoint").sentence
    'Without overlap, the recurrent model has a lower test perplexity than the fine-tuned baseline.'
    """
    return lookup(Claim, id)


def claims() -> list[Claim]:
    """All claims of the papers.

    >>> all(one.sentence.endswith(".") for one in claims())
    True
    """
    return list(declared(Claim).values())


@caching()
def tally(chosen: Sequence[Claim], results: Path | str | None = None) -> dict[str, int]:
    """How many of these claims got each verdict, each claim at its largest judged scale; `smoke` does not count.

    Verdicts are always in the same order, independent of that of the claims.

    >>> tally(claims(), results=folder).keys() == {"not run"}
    True
    """
    found: dict[str, int] = dict.fromkeys((*DECIDED, NOT_TESTABLE, OPEN, NOT_RUN), 0)
    for one in chosen:
        found[latest(one, results)[1].verdict] += 1
    return {verdict: n for verdict, n in found.items() if n}


def latest(one: Claim, results: Path | str | None = None) -> tuple[str, Verdict]:
    """The largest scale at which a claim has all its records, and the verdict there; `small` if no scale has them."""
    known = [scale for scale in COMMITTED if scale in one.scales]
    for scale in known:
        found = one.verdict(scale, results)
        if found.verdict != NOT_RUN:
            return scale, found
    if not known:
        return "", Verdict(NOT_RUN, because=("planned at no such scale",))
    return known[-1], one.verdict(known[-1], results)


def overall(artifact: Artifact, scale: str, results: Path | str | None = None) -> Verdict | None:
    """The verdict of an artifact: the worst one of the claims about it; None without claims at this scale."""
    about = [claim.verdict(scale, results) for claim in claims()
             if artifact.id in claim.about and scale in claim.scales]
    return min(about, key=lambda verdict: WORST_FIRST.index(verdict.verdict), default=None)
