"""Claims of the papers, judged by records; and the scoreboard of everything the study set out to show."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repro.errors import ReproError, unknown
from repro.page import signed
from repro.study.artifacts import NOT_RUN, Artifact, Based, artifact, artifacts, beside
from repro.study.once import unchanging
from repro.study.plan import command
from repro.study.record import Record
from repro.study.registry import declared, lookup
from repro.study.settings import SCALES, RunConfig
from repro.study.store import Store

if TYPE_CHECKING:
    import pandas

REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """What records say about a claim: an effect with its confidence interval, in the words of `text`."""

    verdict: Literal["reproduced", "not reproduced", "inconclusive", "not run"]
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    text: str = ""


UNPAIRED = Verdict(NOT_RUN, text="no seed that both have; run both with the same --seed")


@dataclass(frozen=True, eq=False)
class Claim(Based):
    """One sentence of a paper that records can confirm or refute. `about` names the artifacts that it is read off.

    `judge(records)` gets the records, at every seed there is, of the configs of the plan for which `where` holds;
    it is called only when each of these configs has one.
    """

    id: str
    paper: str
    sentence: str  # in our words
    source: str  # where in the paper, e.g. "Table 1"
    experiment: str | tuple[str, ...]  # whose runs it is judged by, one or several
    judge: Callable[[list[Record]], Verdict]
    where: Callable[[Any], bool] = lambda config: True
    about: tuple[str, ...] = ()  # ids of artifacts, the one that shows it best first

    @property
    def chapter(self) -> str:
        """The chapter of the first artifact that it is about."""
        return artifact(self.about[0]).chapter if self.about else ""

    def verdict(self, scale: str = "smoke", results: Path | str | None = None) -> Verdict:
        """The verdict of the records of `scale`; "not run", with the command, while one is missing.

        Raises ReproError for an unknown scale and for records that cannot be trusted.
        """
        found = self.records(scale, results)
        missing = [config for config, records in found if not records]
        if missing or not found:
            names = dict.fromkeys(config.experiment for config in missing)
            lines = [command(missing[0])] if len(missing) == 1 else [f"repro run {n} --scale {scale}" for n in names]
            return Verdict(NOT_RUN, text=f"{len(missing)} of {len(found)} runs missing: {'; '.join(lines)}")
        records = [record for _, records in found for record in records]
        key = (self, *(record.digest for record in records))
        if key not in _verdicts:
            _verdicts[key] = self.judge(records)
        return _verdicts[key]

    def records(self, scale: str, results: Path | str | None = None) -> list[tuple[RunConfig, list[Record]]]:
        """The configs it is judged by, each with its records at every seed there is; [] for one that was not run."""
        store = Store.of(scale, results)
        return [(config, store.seeds(config)) for config in self.plan(scale) if self.where(config)]


_verdicts: dict[tuple, Verdict] = {}  # of a claim on records with these digests


def judge_difference(effect: float, low: float, high: float, direction: Literal["lower", "higher"],
                     percent: bool = False) -> Verdict:
    """The verdict on a claim that a difference lies below ("lower") or above ("higher") zero.

    `low` and `high` bound the confidence interval. The claim is reproduced if the whole interval lies on the claimed
    side, not reproduced if it lies on the other, and inconclusive if it touches zero. `percent`: the difference is a
    share, told in per cent.
    Raises ReproError for an interval that is empty or not a number, and for another direction.
    """
    if direction not in ("lower", "higher"):
        raise ReproError(f"direction '{direction}': a claimed difference is 'lower' or 'higher'.")
    if not low <= high:
        raise ReproError(f"confidence interval from {low} to {high} is empty; its low end must not be above its high.")
    below, above = high < 0, low > 0
    claimed, other = (below, above) if direction == "lower" else (above, below)
    verdict = REPRODUCED if claimed else NOT_REPRODUCED if other else INCONCLUSIVE
    value, *ends = (signed(number, ".2%" if percent else ".3g") for number in (effect, low, high))
    return Verdict(verdict, effect, low, high, f"{value} [{', '.join(ends)}]")


def judge_seeds(effect: float, low: float, high: float, direction: Literal["lower", "higher"], n_seeds: int,
                unit: str, over: str) -> Verdict:
    """`judge_difference` of runs paired by seed, told in `unit`, with what its interval is over: seeds and `over`.

    A single seed leaves the claim open, whatever the text or the documents of `over` say: a second training might turn
    the difference around.
    """
    verdict = judge_difference(effect, low, high, direction)
    if n_seeds == 1:
        return replace(verdict, verdict=INCONCLUSIVE,
                       text=f"{verdict.text} {unit}, interval over {over} only; one seed leaves it open")
    return replace(verdict, text=f"{verdict.text} {unit}, interval over {n_seeds} seeds and {over}")


def seeds_of_both(records: list[Record], others: list[Record]) -> list[int]:
    """The seeds with which both were run. Where there is none, the verdict is `UNPAIRED`."""
    return sorted({record.seed for record in records} & {record.seed for record in others})


def claim(id: str) -> Claim:
    """The claim with this id. Raises ReproError, with the nearest id, when there is none."""
    return lookup(Claim, id)


def claims() -> list[Claim]:
    """All claims of the papers."""
    return list(declared(Claim).values())


def standing(entry: Artifact | Claim, results: Path | str | None = None) -> dict[str, dict[str, Any]]:
    """Where an artifact or a claim stands: scale -> runs `planned` and `done`, `verdict` ("" if nothing claims it),
    `text`. An artifact has the verdict of the claims about it: the worst one."""
    where = entry.where if isinstance(entry, Claim) else lambda config: True
    told = {}
    for scale in entry.scales:
        plan = [config for config in entry.plan(scale) if where(config)]
        verdict = entry.verdict(scale, results) if isinstance(entry, Claim) else _overall(entry, scale, results)
        told[scale] = {"planned": len(plan), "done": sum(_is_done(config, results) for config in plan),
                       "verdict": verdict.verdict if verdict else "", "text": verdict.text if verdict else ""}
    return told


def standings(results: Path | str | None = None) -> list[tuple[Artifact | Claim, dict[str, dict[str, Any]]]]:
    """Every artifact and every claim with its `standing`."""
    with unchanging():
        return [(entry, standing(entry, results)) for entry in (*artifacts(), *claims())]


def verdict_table(scale: str = "smoke", chapter: str | None = None) -> "pandas.DataFrame":
    """The claims of a chapter (default: all claims) with their verdicts, a row for each claim and scale shown.

    Shown are `scale` and, before it, the scales that stand `beside` it. Raises ReproError for an unknown chapter.
    """
    import pandas

    known = dict.fromkeys(one.chapter for one in claims())
    if chapter is not None and chapter not in known:
        raise unknown("chapter with claims", chapter, known)
    chosen = [one for one in claims() if chapter in (None, one.chapter)]
    rows = [{"claim": one.sentence, "scale": name, "verdict": found.verdict, "effect": found.text}
            for name in (*beside(scale), scale) for one in chosen if name in one.scales
            for found in [one.verdict(name)]]
    return pandas.DataFrame(rows, columns=["claim", "scale", "verdict", "effect"])


def scoreboard(results: Path | str | None = None) -> "pandas.DataFrame":
    """Every artifact and claim in a row, every scale in a column; a cell says the verdict and the runs done."""
    import pandas

    rows = []
    for entry, told in standings(results):
        kind = "claim" if isinstance(entry, Claim) else entry.kind
        text = entry.sentence if isinstance(entry, Claim) else entry.title
        rows.append({"reference": entry.paper, "id": entry.id, "kind": kind, "source": entry.source, "about": text}
                    | {scale: cell(told[scale]) if scale in told else "" for scale in SCALES})
    return pandas.DataFrame(rows, columns=["reference", "id", "kind", "source", "about", *SCALES])


def cell(told: dict[str, Any]) -> str:
    """One scale of `standing` in a few words."""
    if not told["done"]:
        return NOT_RUN
    runs = f"{told['done']}/{told['planned']} runs"
    return runs if told["verdict"] in ("", NOT_RUN) else f"{told['verdict']}, {runs}"


def _overall(artifact: Artifact, scale: str, results: Path | str | None) -> Verdict | None:
    about = [claim.verdict(scale, results) for claim in claims()
             if artifact.id in claim.about and scale in claim.scales]
    order = [NOT_REPRODUCED, NOT_RUN, INCONCLUSIVE, REPRODUCED]
    return min(about, key=lambda verdict: order.index(verdict.verdict), default=None)


def _is_done(config: RunConfig, results: Path | str | None) -> bool:
    return bool(Store.of(config.scale, results).seeds(config))
