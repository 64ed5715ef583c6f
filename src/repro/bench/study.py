"""How long `repro list` takes with the committed records and with many more."""

import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from repro.bench import report
from repro.errors import ReproError


def main(json_path=None, many: int = 2_000, rounds: int = 5) -> dict:
    """Time `repro list` as a whole process on the committed records, and on copies of them with other seeds.

    many: the number of records then. Raises ReproError if no records are committed.
    """
    with tempfile.TemporaryDirectory() as folder:
        few, more = Path(folder) / "few", Path(folder) / "many"
        counts = {few: multiply(few), more: multiply(more, many)}
        seconds = {store: [] for store in counts}
        listing(few, Path(folder))  # compiles the modules
        for _ in range(rounds):
            for store, found in seconds.items():
                found.append(listing(store, Path(folder)))
    speeds = {f"repro list, {n:,} records": {
        "tokens_per_second": n / median(seconds[store]), "lowest": n / max(seconds[store]),
        "highest": n / min(seconds[store])} for store, n in counts.items()}
    return report("study", {"records": list(counts.values()), "rounds": rounds}, "Where the study stands", speeds,
                  {f"seconds for {n:,} records": (median(seconds[store]), bound, "at most")
                   for (store, n), bound in zip(counts.items(), (2, 4), strict=True)}, json_path, unit="records")


def multiply(folder: Path, many: int = 0) -> int:
    """Copy the committed records of `small` to `folder`, with new seeds until there are `many`; returns their
    number."""
    from repro import paths
    from repro.study import Record, Store
    from repro.study.settings import identify

    here, store = paths.results("small") / "small", Store(folder)
    records = [Record.read(path) for path in sorted(here.glob("*/*.json"))]
    if not records:
        raise ReproError(f"there are no records in {here}; the benchmark copies the committed ones.")
    n, seed = 0, 0
    while n < max(many, len(records)):
        for record in records[:max(many, len(records)) - n]:
            other = {"seed": record.seed + seed}
            parts = asdict(record) | other | {"config": record.config | other}
            parts["id"] = identify(parts["config"], record.data["fingerprint"], record.needs, record.data.get("reads"),
                                   record.revision)
            n += not store.path(copy := Record.sealed(**_content(parts))).exists()
            store.put(copy)
        seed += 100  # beyond the seeds of all records
    return n


def listing(results: Path, compiled: Path) -> float:
    """Processor seconds that `repro list` takes as a whole process, without corpora and with compiled modules.

    It runs on one thread, so this equals wall-clock time if nothing else runs. compiled: the folder for compiled
    modules, used even if the environment forbids Python to write any.
    """
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("REPRO_DATA", "PYTHONDONTWRITEBYTECODE")} | {"PYTHONPYCACHEPREFIX": str(compiled)}
    before = os.times()
    subprocess.run([sys.executable, "-m", "repro", "list", "--results", str(results)], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _content(parts: dict) -> dict:
    return {key: value for key, value in parts.items() if key not in ("schema", "digest", "carried_from")}
