"""Every experiment, artifact and claim with its status, for `repro list`, `repro show` and downloads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro.study.artifacts import Artifact, artifacts
from repro.study.cache import caching
from repro.study.claims import Claim, claims, overall
from repro.study.experiment import experiments
from repro.study.rule import NOT_RUN, Verdict
from repro.study.settings import RunConfig
from repro.study.store import Store


def standing(entry: Artifact | Claim, results: Path | str | None = None,
             scales: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The status of an artifact or a claim: scale (default: all that it has) -> runs `planned` and `done`, `verdict`
    ("" without a claim), `text`. An artifact has the worst verdict of the claims about it. A claim also has the
    numbers behind its verdict: `reason`, `seeds`, `units`, `effect`, `low`, `high`, `exact`, `detectable`,
    `control`, `room`, `paper_room`, and `paper_effect` or `why_no_paper_effect`."""
    standing = {}
    for scale in scales or entry.scales:
        is_claim = isinstance(entry, Claim)
        plan = entry.needed(scale) if is_claim else entry.plan(scale)
        verdict = entry.verdict(scale, results) if is_claim else overall(entry, scale, results)
        standing[scale] = {"planned": len(plan), "done": sum(_is_done(config, results) for config in plan),
                           "verdict": verdict.verdict if verdict else "", "text": verdict.text if verdict else ""}
        if is_claim:
            standing[scale] |= _numbers(entry, verdict)
    return standing


def _numbers(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    """The numbers behind a verdict, named as in `repro list --json`."""
    names = ("reason", "effect", "low", "high", "exact", "detectable", "control", "room", "paper_room")
    found = {"seeds": verdict.n_seeds, "units": verdict.n_units} | {name: getattr(verdict, name) for name in names}
    paper = claim.expected()
    return found | ({"why_no_paper_effect": claim.why_no_paper_effect} if paper is None else {"paper_effect": paper})


@caching()
def listing(results: Path | str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Every experiment, artifact and claim with its `standing`, as `repro list --json` prints them and the book
    offers them for download."""
    entries = []
    for entry in (*artifacts(), *claims()):
        scales, is_claim = standing(entry, results), isinstance(entry, Claim)
        judged = [scale for scale, found in scales.items()  # smoke reads generated text: not evidence about a paper
                  if found["verdict"] not in ("", NOT_RUN) and scale != "smoke"]
        entries.append({"paper": entry.paper, "id": entry.id, "kind": "claim" if is_claim else entry.kind,
                        "chapter": entry.chapter, "source": entry.source,
                        "about": entry.sentence if is_claim else entry.title, "experiment": entry.experiment,
                        "scales": scales, "verdict": scales[judged[-1]]["verdict"] if judged else NOT_RUN,
                        "verdict_scale": judged[-1] if judged else None} | (entry.declared() if is_claim else {}))
    planned = [{"paper": one.paper, "name": one.name, "summary": one.summary, "scales": list(one.scales)}
               for one in experiments()]
    return {"experiments": planned, "artifacts": [one for one in entries if one["kind"] != "claim"],
            "claims": [one for one in entries if one["kind"] == "claim"]}


def as_rows(listed: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The artifacts and claims of a `listing` as a flat table: one row for each entry and scale."""
    keys = ("paper", "id", "kind", "chapter", "source", "about")
    numbers = ("planned", "done", "verdict", "effect", "low", "high", "paper_effect", "detectable", "control", "room",
               "seeds", "units", "text")
    return [{key: entry[key] for key in keys} | {"scale": scale} | {name: values.get(name) for name in numbers}
            for entry in (*listed["artifacts"], *listed["claims"]) for scale, values in entry["scales"].items()]


def _is_done(config: RunConfig, results: Path | str | None) -> bool:
    return bool(Store.for_scale(config.scale, results).seeds(config))
