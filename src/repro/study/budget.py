"""A time budget: which missing runs to make first, and how to stop with complete records when the time is up.

Runs that decide the most claims come first. A run whose estimate exceeds the time left is skipped. A run that is
training when the time is up writes a checkpoint, and the next budget continues it. A run that is stopped without a
checkpoint, such as an evaluation, starts over, but only in a budget that is longer than the time it was given before.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro import paths
from repro.errors import ReproError
from repro.study.cache import caching
from repro.study.claims import Claim, claims
from repro.study.plan import every_run, models_to_make, needed, state
from repro.study.progress import TimeIsUp
from repro.study.runner import model_folder, run
from repro.study.runs import Run
from repro.study.settings import RunConfig
from repro.study.store import where

TRUST = 60.0  # seconds of finished runs that count as much as the estimates
LONGER = 1.1  # a run that did not finish in some time is expected to take at least this many times as long


@dataclass(frozen=True)
class Job:
    """A run to make. `seconds` is its estimate, `needs` are the keys of the jobs that must finish first.

    >>> Job("recurrence-pg19", seconds=90.0, spent=30.0).needs
    ()
    """

    experiment: str
    seconds: float
    needs: tuple[str, ...] = ()
    spent: float = 0.0  # seconds of earlier budgets, saved in its checkpoint
    lost: float = 0.0  # seconds of an earlier budget, saved in no checkpoint
    lacking: str = ""  # why it cannot run on this machine

    def left(self, pace: float = 1.0) -> float:
        """The seconds that it still needs if runs take `pace` times as long as estimated.

        >>> Job("recurrence-pg19", seconds=90.0, spent=30.0).left()
        60.0
        """
        return max(0.0, self.seconds * pace - self.spent, self.lost * LONGER)


@dataclass
class Spent:
    """The outcome of a budget: the keys of finished runs with their seconds, in order; the run that was stopped; and
    why others were skipped or failed.

    >>> Spent().stopped is None
    True
    """

    finished: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def state(self, key: str) -> tuple[str, str]:
        """The outcome of a run, "made", "stopped", "failed" or "skipped", with its time or the reason."""
        if key in self.finished:
            return "made", f"in {duration(self.finished[key])}"
        if key == self.stopped:
            return "stopped", "the next budget continues from its checkpoint, if it wrote one"
        return ("failed", self.failed[key]) if key in self.failed else ("skipped", self.skipped[key])


def seconds_of(text: str) -> float:
    """The seconds of a duration such as "90s", "12m" or "1h30m". Raises ReproError for any other text.

    >>> seconds_of("90s"), seconds_of("12m"), seconds_of("1h30m")
    (90.0, 720.0, 5400.0)
    """
    found = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text.strip(), re.ASCII)
    total = sum(int(n or 0) * unit for n, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    if not total:
        raise ReproError(f"the budget {text!r} is not a duration above 0; write hours, minutes and seconds, such as "
                         "90s, 12m or 1h30m.")
    return float(total)


def ordered(jobs: Mapping[str, Job], decides: Mapping[str, Collection[str]], seconds: float) -> list[str]:
    """The keys of all `jobs`, the most valuable first, each after its needs.

    decides: claim -> the keys of the runs that it lacks. seconds: the budget. Runs with a checkpoint from an earlier
    budget come first if they can be finished now. Next come the runs that claims lack, one claim's set after the other.
    Among these sets, those that fit into the time left come first, then those that decide more claims, then those that
    take less time, then those declared first. Last come the runs that decide no claim, the shortest first.

    >>> jobs = {"base": Job("a", 5.0), "long": Job("b", 9.0, ("base",)), "one": Job("c", 1.0), "none": Job("c", 1.0)}
    >>> ordered(jobs, {"first": ["one"], "second": ["long"], "third": ["long"]}, seconds=20)
    ['base', 'long', 'one', 'none']
    >>> ordered(jobs, {"first": ["one"], "second": ["long"], "third": ["long"]}, seconds=10)
    ['one', 'base', 'long', 'none']
    """
    chosen: dict[str, None] = {}
    for begun in (name for name, job in jobs.items() if job.spent):
        runs = with_needs(jobs, [*chosen, begun])
        if _total(jobs, runs) <= seconds and not any(jobs[name].lacking for name in runs):
            chosen = dict.fromkeys(runs)
    lacks = [with_needs(jobs, runs) for runs in decides.values() if not any(jobs[name].lacking for name in runs)]
    while lacks := [left for runs in lacks if (left := [name for name in runs if name not in chosen])]:
        left = seconds - _total(jobs, chosen)
        best = min(lacks, key=lambda runs: (_total(jobs, runs) > left, -sum(map(set(runs).issuperset, lacks)),
                                            _total(jobs, runs)))
        chosen |= dict.fromkeys(best)
    rest = sorted((name for name in jobs if name not in chosen), key=lambda name: _total(jobs, [name]))
    return list(dict.fromkeys([*chosen, *with_needs(jobs, rest)]))


def with_needs(jobs: Mapping[str, Job], names: Iterable[str]) -> list[str]:
    """These jobs, each after the jobs that it needs.

    >>> with_needs({"base": Job("a", 5.0), "tuned": Job("b", 9.0, ("base",))}, ["tuned"])
    ['base', 'tuned']
    """
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in found:
            for need in jobs[name].needs:
                add(need)
            found[name] = None

    for name in names:
        add(name)
    return list(found)


def spend(jobs: Mapping[str, Job], order: Iterable[str], seconds: float, make: Callable[[str, float], None],
          clock: Callable[[], float] = time.monotonic, report: Callable[[str], None] = lambda line: None) -> Spent:
    """Make `jobs` in order until `seconds` have passed on `clock`; next is always the first that fits into the time
    left.

    make(key, deadline) makes one run and raises TimeIsUp when `clock` reaches `deadline` before it is finished.
    Estimates are scaled by the pace of the finished runs, mainly those of the same experiment. A run that fails is
    reported; runs that do not need it are still made. report: called with a line after each run.
    """
    deadline, waiting, found = clock() + seconds, dict.fromkeys(order), Spent()
    took: Counter[str] = Counter()
    estimated: Counter[str] = Counter()

    def takes(name: str) -> float:
        pace = (sum(took.values()) + TRUST) / (sum(estimated.values()) + TRUST)
        own = jobs[name].experiment
        return jobs[name].left((took[own] + TRUST * pace) / (estimated[own] + TRUST))

    def reason(name: str) -> str:
        """Why a run cannot be made now; "" if it can."""
        if jobs[name].lacking:
            return jobs[name].lacking
        for need in jobs[name].needs:
            if need in found.failed or need in waiting:
                return f"needs {jobs[need].experiment}, which {'failed' if need in found.failed else 'was not made'}"
        left = max(0.0, deadline - clock())
        return f"takes about {duration(takes(name))}, {duration(left)} left" if takes(name) > left else ""

    while clock() < deadline and (name := next((one for one in waiting if not reason(one)), None)):
        del waiting[name]
        began = clock()
        try:
            make(name, deadline)
        except TimeIsUp:
            found.stopped = name
            break
        except Exception as error:  # fails one run; the others can still be made
            found.failed[name] = str(error) if isinstance(error, ReproError) else f"{type(error).__name__}: {error}"
            report(f"failed: {jobs[name].experiment}: {found.failed[name]}")
            continue
        found.finished[name] = clock() - began
        took[jobs[name].experiment] += found.finished[name] + jobs[name].spent
        estimated[jobs[name].experiment] += jobs[name].seconds
        report(f"{jobs[name].experiment} took {duration(found.finished[name])}, "
               f"{duration(max(0, deadline - clock()))} left")
    found.skipped = {name: reason(name) or "no time left" for name in waiting}
    return found


def rehearse(jobs: Mapping[str, Job], order: Iterable[str], seconds: float) -> Spent:
    """The outcome of `spend` if every run took as long as estimated.

    >>> jobs = {"one": Job("a", 5.0), "two": Job("a", 9.0)}
    >>> [rehearse(jobs, jobs, seconds=12).state(name) for name in jobs]
    [('made', 'in 5 s'), ('skipped', 'takes about 9 s, 7 s left')]
    """
    now = 0.0

    def advance(name: str, deadline: float) -> None:
        nonlocal now
        now += _total(jobs, [name])

    return spend(jobs, order, seconds, advance, lambda: now)


def lacking(claim: Claim, scale: str, results: Path | str | None = None) -> list[RunConfig]:
    """The runs that a verdict on `claim` lacks at `scale`, seed by seed; [] if it has a verdict.

    A verdict needs all configs that the claim compares, at the number of common seeds that it requires, and its
    assay at any seed.
    """
    found = claim.records(scale, results)
    compared = [{record.seed for record in records} for config, records in found if claim.where(config)]
    common = set.intersection(*compared) if compared else set()
    n = 1 if claim.same_weights or claim.unit == "exact" else claim.seeds
    more = (seed for seed in itertools.count() if seed not in common)
    seeds = sorted([*common, *itertools.islice(more, max(0, n - len(common)))])
    return [config.model_copy(update={"seed": seed}) for at, seed in enumerate(seeds) for config, records in found
            if seed not in {record.seed for record in records}
            and (claim.where(config) or not at and not records)]


@caching()
def missing(scale: str, results: Path | str | None = None, only: Collection[RunConfig] | None = None
            ) -> tuple[dict[str, RunConfig], dict[str, Job], dict[str, list[str]]]:
    """The runs to make at a scale by key, their jobs, and claim -> the keys of the runs that it lacks.

    These are the runs of the plan and of the seeds that claims require, or those of `only`, that have no valid record,
    and the runs that they need. A needed run is made again if its weights are not on this machine. Raises ReproError
    for records that cannot be trusted.
    """
    decides = {one.id: lacking(one, scale, results) for one in claims() if scale in one.scales}
    asked = list(only) if only is not None else [*every_run(scale), *(run for runs in decides.values() for run in runs)]
    again = models_to_make(asked, results)
    runs = {config.key: config for config in (*needed(asked), *asked)}
    runs = {name: config for name, config in runs.items() if name in again or _to_do(config, results)}
    jobs = {name: _job(config, runs) for name, config in runs.items()}
    return runs, jobs, {claim: names for claim, wanted in decides.items()
                        if (names := [one.key for one in wanted if one.key in jobs])}


def make(config: RunConfig, results: Path | str | None, until: Callable[[], bool], progress: bool = True) -> None:
    """Make one run, or the weights that are not stored with its record. Raises TimeIsUp if `until()` is true at a step;
    the next call continues from the checkpoint, if there is one."""
    began, place = time.time(), where(config, results)
    try:
        if _to_do(config, place):
            run(config, place, progress, until=until)
        else:
            model_folder(config, place, progress, until=until)
    except TimeIsUp:
        _note(config, began)
        raise
    _spent(config).unlink(missing_ok=True)


def duration(seconds: float) -> str:
    """Seconds in words, such as "95 s", "12 min", "2.5 h"."""
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"


def _total(jobs: Mapping[str, Job], names: Iterable[str]) -> float:
    """The seconds that these jobs still need."""
    return sum(jobs[name].left() for name in names)


def _to_do(config: RunConfig, results: Path | str | None) -> bool:
    return state(config, where(config, results)) != "done"


def _job(config: RunConfig, runs: Mapping[str, RunConfig]) -> Job:
    one = Run(config)
    needs = tuple(need.key for need in one.needs if need.key in runs)
    here = one.data_at_hand
    spent, lost = _seconds_spent(config) if here else (0.0, 0.0)
    return Job(config.experiment, one.experiment.estimate(config).seconds, needs, spent, lost,
               "" if here else "its data, or that of a run it needs, is not on this machine; see `repro data list`")


def _spent(config: RunConfig) -> Path:
    """The file for `spent` and `lost` of an unfinished run's job, next to the run's folder."""
    return paths.work() / "runs" / f"{Run(config).id}.spent"


def _note(config: RunConfig, began: float) -> None:
    """Store the seconds of a run stopped after it started at `began`: up to its last checkpoint kept, the rest lost."""
    now, (spent, lost) = time.time(), _seconds_spent(config)
    written = [path.stat().st_mtime for path in _spent(config).with_suffix("").rglob("checkpoint.pt")]
    kept = min(max([began, *written]), now) - began
    lost = now - began - kept if kept else max(lost, now - began)
    paths.write_atomic(_spent(config), f"{spent + kept:.3f} {lost:.3f}\n")


def _seconds_spent(config: RunConfig) -> tuple[float, float]:
    try:
        spent, lost = map(float, _spent(config).read_text().split())
    except (OSError, ValueError):  # never stopped
        return 0.0, 0.0
    return spent, lost
