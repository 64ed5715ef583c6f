"""The cost of the committed records: runs, hours and memory of each experiment."""

from pathlib import Path
from typing import TYPE_CHECKING

from repro.study.experiment import experiments
from repro.study.record import Record
from repro.study.registry import cited
from repro.study.settings import COMMITTED
from repro.study.store import Store

if TYPE_CHECKING:
    import pandas


def hours(record: Record) -> float:
    """Hours of a run times its GPUs or CPU cores. For a resumed run, only the hours since it resumed."""
    had = record.environment
    return record.cost["wall_seconds"] / 3600 * had["processes"] * (had["threads"] if had["device"] == "cpu" else 1)


def as_hours(value: float) -> str:
    """Hours in the format of all pages: with one decimal, from one hour on.

    >>> as_hours(85.46), as_hours(0.256)
    ('85.5', '0.26')
    """
    return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def costs(results: Path | str | None = None) -> "pandas.DataFrame":
    """One row for all committed records, then one for each experiment and scale with records, the longest first.

    results: the folder of the records.

    >>> list(costs(folder).columns)
    ['paper', 'experiment', 'scale', 'runs', 'hours', 'most memory, GB', 'resumed']
    """
    import pandas

    found = {(one.paper, one.name, scale): records for one in experiments() for scale in COMMITTED
             if (records := Store.for_scale(scale, results).find(one.name, scale))}
    ordered = sorted(found.items(), key=lambda item: -sum(map(hours, item[1])))
    everything = [record for records in found.values() for record in records]
    rows = [{"paper": cited(paper), "experiment": name, "scale": scale} | _told(records)
            for (paper, name, scale), records in ordered]
    return pandas.DataFrame([{"paper": "all", "experiment": "–", "scale": "–"} | _told(everything), *rows])


def _told(records: list[Record]) -> dict[str, str]:
    return {"runs": f"{len(records):,}", "hours": as_hours(sum(map(hours, records))),
            "most memory, GB": f"{max((r.cost['peak_memory_bytes'] for r in records), default=0) / 1e9:.1f}",
            "resumed": f"{sum(record.cost['resumed'] for record in records):,}"}
