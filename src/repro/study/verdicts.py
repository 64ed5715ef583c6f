"""Claims of the papers, judged by records; and the scoreboard of everything the study set out to show."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repro import page
from repro.errors import ReproError
from repro.study.config import SCALES, RunConfig, command, experiment
from repro.study.registry import declared, lookup
from repro.study.store import Record, Store
from repro.study.tables import NOT_RUN, Artifact, artifacts

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


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that records can confirm or refute.

    `judge(records)` gets the records, at every seed there is, of the configs of the plan for which `where` holds;
    it is called only when each of these configs has one.
    """

    id: str
    paper: str
    sentence: str  # in our words
    source: str  # where in the paper, e.g. "Table 1"
    experiment: str
    judge: Callable[[list[Record]], Verdict]
    where: Callable[[Any], bool] = lambda config: True

    def verdict(self, scale: str = "smoke", results: Path | str | None = None) -> Verdict:
        """The verdict of the records of `scale`; "not run", with the command, while one is missing.

        Raises ReproError for an unknown scale and for records that cannot be trusted.
        """
        found = self.records(scale, results)
        missing = [line for line, records in found.items() if not records]
        if missing or not found:
            line = missing[0] if len(missing) == 1 else f"repro run {self.experiment} --scale {scale}"
            return Verdict(NOT_RUN, text=f"{len(missing)} of {len(found)} runs missing: {line}")
        return self.judge([record for records in found.values() for record in records])

    def records(self, scale: str, results: Path | str | None = None) -> dict[str, list[Record]]:
        """The records it is judged by, at every seed there is, by the command that makes them; [] for one missing."""
        plan = [config for config in experiment(self.experiment).plan(scale) if self.where(config)]
        return {command(config): Store.of(scale, results).seeds(config) for config in plan}


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
    told = [page.percent(value, 2) if percent else f"{value:+.3g}" for value in (effect, low, high)]
    return Verdict(verdict, effect, low, high, f"{told[0]} [{told[1]}, {told[2]}]")


def claim(id: str) -> Claim:
    """The claim with this id. Raises ReproError, with the nearest id, when there is none."""
    return lookup(Claim, id)


def claims() -> list[Claim]:
    """All claims of the catalog."""
    return list(declared(Claim).values())


def standing(entry: Artifact | Claim, results: Path | str | None = None) -> dict[str, dict[str, Any]]:
    """Where an artifact or a claim stands: scale -> runs `planned` and `done`, `verdict` ("" if nothing claims it),
    `text`. An artifact has the verdict of the claims about it: the worst one."""
    where = entry.where if isinstance(entry, Claim) else lambda config: True
    told = {}
    for scale in (scale for scale in SCALES if scale in experiment(entry.experiment).scales):
        plan = [config for config in experiment(entry.experiment).plan(scale) if where(config)]
        verdict = entry.verdict(scale, results) if isinstance(entry, Claim) else _overall(entry, scale, results)
        told[scale] = {"planned": len(plan), "done": sum(_is_done(config, results) for config in plan),
                       "verdict": verdict.verdict if verdict else "", "text": verdict.text if verdict else ""}
    return told


def verdict_table(scales: Sequence[str], experiment: str | None = None) -> "pandas.DataFrame":
    """The claims on an experiment (default: all claims) with their verdicts, a row for each scale and claim."""
    import pandas

    chosen = [one for one in claims() if experiment in (None, one.experiment)]
    rows = [{"claim": one.sentence, "scale": scale, "verdict": found.verdict, "effect": found.text}
            for scale in scales for one in chosen for found in [one.verdict(scale)]]
    return pandas.DataFrame(rows, columns=["claim", "scale", "verdict", "effect"])


def scoreboard(results: Path | str | None = None) -> "pandas.DataFrame":
    """Every artifact and claim in a row, every scale in a column; a cell says the verdict and the runs done."""
    import pandas

    rows = []
    for entry in [*artifacts(), *claims()]:
        told = standing(entry, results)
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
             if claim.paper == artifact.paper and re.search(rf"\b{re.escape(artifact.source)}\b", claim.source)
             and scale in experiment(claim.experiment).scales]
    order = [NOT_REPRODUCED, NOT_RUN, INCONCLUSIVE, REPRODUCED]
    return min(about, key=lambda verdict: order.index(verdict.verdict), default=None)


def _is_done(config: RunConfig, results: Path | str | None) -> bool:
    return bool(Store.of(config.scale, results).seeds(config))
