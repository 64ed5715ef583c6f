"""Fill the page on testing: each campaign's report as a table."""

import json
import re
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "results" / "campaigns"
PLACE = re.compile(r"<!-- campaign: (\w+) -->")


def filled(text: str, folder: Path = FOLDER) -> str:
    """The page with a table in place of each campaign's mark, or the command that makes its report."""
    return PLACE.sub(lambda found: shown(found[1], folder / f"{found[1]}.json"), text)


def shown(name: str, path: Path) -> str:
    """The table of a campaign's report as Markdown."""
    if not path.exists():
        return f"Not run. To run it: `python tests/campaigns/{name}.py`."
    report = json.loads(path.read_text())
    return {"bad_inputs": inputs, "kills": kills, "distribution": distribution, "peers": peers}[name](report)


def inputs(report: dict) -> str:
    """A row for each part of the campaign of bad inputs, and their sum."""
    rows = [[part, f"{one['cases']:,}", f"{one['refused']:,}", f"{one['faults']:,}",
             seconds(one["longest_cpu_seconds"]), megabytes(one["most_bytes"])]
            for part, one in report["parts"].items()]
    every = report["parts"].values()
    rows.append(["all", f"{report['cases']:,}", f"{sum(one['refused'] for one in every):,}", f"{report['faults']:,}",
                 seconds(max(one["longest_cpu_seconds"] for one in every)),
                 megabytes(max(one["most_bytes"] for one in every))])
    header = ["input", "cases", "refused in a line", "faults", "longest, s of CPU time", "most memory, MB"]
    return table(header, rows) + (
        "\n\nSome damage cannot be recognized, such as a flipped letter in a text or a name that only a run looks up. "
        "Such inputs were marked beforehand and may be accepted. Files changed outside the named folders: "
        f"{len(report['written_elsewhere'])}.")


def seconds(value: float) -> str:
    """Seconds with two decimals; "<0.01" for less."""
    return f"{value:.2f}" if value >= 0.005 else "<0.01"


def megabytes(value: int) -> str:
    """Bytes as megabytes, with one decimal below 10; "<0.1" for less."""
    return f"{value / 1e6:,.0f}" if value >= 9.95e6 else f"{value / 1e6:.1f}" if value >= 5e4 else "<0.1"


MOMENTS = "before a checkpoint", "after a checkpoint", "while writing", "after the record"


def kills(report: dict) -> str:
    """A row for each kind of run in the campaign of kills, with the moments at which it was killed, and their sum."""
    disks = {way: one for way, one in report["ways"].items() if "disk" in way}
    ways = {re.sub(r"(--\w+)", r"`\1`", way): one for way, one in report["ways"].items() if way not in disks}
    names = "runs", "kills", *MOMENTS, "values"
    rows = [[way, *(f"{one.get(name, 0):,}" for name in names)] for way, one in ways.items()]
    rows.append(["all", *(f"{sum(one.get(name, 0) for one in ways.values()):,}" for name in names)])
    refused = "; ".join(f"{way}: {one.get('refused', 0)} of {one['runs']}" for way, one in disks.items())
    return table(["run", *names[:-1], "values compared"], rows) + (
        f"\n\nRuns that differed from the undisturbed ones: {report['faults']}. Runs that a disk stopped with a "
        f"one-line error, and that ended with the same values once the disk had room: {refused}.")


def distribution(report: dict) -> str:
    """A row for each check of the campaign on the distributed files."""
    return "\n".join(["| check | result |", "| --- | --- |", *(
        f"| {check} | {one['found']} |" for check, one in report["checks"].items())])


def peers(report: dict) -> str:
    """The results of other projects' tests, for each model or project and each kind of case; for refusals, how often
    each was seen."""
    outcomes, every = ("passed", "refused", "failed"), report["groups"].values()
    rows = {by: [[name, *(f"{one[outcome]:,}" for outcome in outcomes)] for name, one in report[by].items()
                 if by == "groups" or name not in report["groups"]] for by in ("groups", "kinds")}
    rows["groups"].append(["all", *(f"{sum(one[outcome] for one in every):,}" for outcome in outcomes)])
    reasons = Counter()
    for one in report["not_passed"]:
        why = re.sub(r"^\w+Error:", "transformers:", re.sub(r" set to repro_\w+", " set to ours", one["why"]))
        reasons[re.split(r"; |\.(?: |$)", re.sub(r"under .* a late", "a late", why))[0]] += 1
    return "\n\n".join([
        table(["model or project", *outcomes], rows["groups"]), table(["kind of case", *outcomes], rows["kinds"]),
        generation(report),
        f"We used transformers {report['versions']['transformers']}. Cases that fail with the model's own attention "
        f"and do not count: {len(report['theirs_not_passed'])}. The refusals:",
        "\n".join(f"- {number} × {reason}" for reason, number in reasons.items())])


def generation(report: dict) -> str:
    """The source of transformers' tests of generation, and their results."""
    if not report["generation"]:
        return "Transformers' own tests of generation did not run: its package on the index lacks them."
    repository, commit = report["generation"].split("@")
    came = report["kinds"]["generation"]
    return (f"The {sum(came.values()):,} cases of generation are transformers' own, from "
            f"[{repository} at {commit[:12]}](https://github.com/{repository}/blob/{commit}/tests/generation/"
            f"test_utils.py): {came['passed']:,} passed, {came['refused']:,} were refused, {came['failed']:,} failed. "
            f"{report['generation_wide']:,} of them ran with windows longer than the text, because their checks expect "
            "caches of whole sequences; elsewhere, windows hold 5 tokens.")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
