"""Side-by-side timings: contenders take turns in one process, so their ratio is reliable even if the machine is busy.

A benchmark writes a record, as a run does: an id (the hash of its name and settings), the environment in which it was
measured, and a digest of everything. Unlike a run's metrics, its numbers are times and vary slightly.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.errors import ReproError
from repro.paths import home, write_atomic

ROUNDS = 5
SCHEMA = 1
MISSING = ("there is no {name}.json in results/bench; make it with `repro bench {name} --json "
           "results/bench/{name}.json`.")


def compare(contenders: dict[str, Callable[[], int]], rounds: int = ROUNDS, warm_up: bool = True,
            clock: Callable[[], float] = time.perf_counter) -> dict[str, dict[str, float]]:
    """Run each contender once to warm up if `warm_up`, then `rounds` times in turn; each call returns its tokens.

    clock: `time.process_time` counts seconds of the processor, which other processes do not lengthen; use it for work
    on one thread.
    Returns the median, lowest and highest tokens per second of each contender.
    """
    speeds = {name: [] for name in contenders}
    for turn in range(not warm_up, rounds + 1):
        for name, work in contenders.items():
            started = clock()
            tokens = work()
            if turn:
                speeds[name].append(tokens / (clock() - started))
    return {name: {"tokens_per_second": statistics.median(found), "lowest": min(found), "highest": max(found)}
            for name, found in speeds.items()}


def report(benchmark: str, settings: dict[str, Any], title: str, speeds: dict[str, dict[str, float]],
           ratios: dict[str, tuple], json_path: Path | str | None = None, unit: str = "tokens", printed: bool = True,
           **notes) -> dict:
    """Print speeds and ratios, each next to its bound; return the record, and write it to `json_path` if given.

    settings: everything that determines the measurement. unit: what the speeds count. ratios: (measured, bound) for a
    lower bound, (measured, bound, "at most") for an upper bound, or (measured, None) without a bound. If a ratio was
    not measured, a text says why. printed: False only writes the record of the measurements so far.
    """
    from rich.console import Console
    from rich.table import Table

    from repro.cpu import generation
    from repro.study.runner import environment

    table = Table("", f"{unit}/s (median)", "lowest", "highest", title=title, title_justify="left")
    for name, found in speeds.items():
        table.add_row(name, *(f"{value:,.0f}" for value in found.values()))
    console = Console(quiet=not printed)
    console.print(table)
    judged = {name: {"measured": ratio, "wanted": wanted, "bound": bound[0] if bound else "at least"}
              for name, (ratio, wanted, *bound) in ratios.items()}
    for name, ratio in judged.items():
        console.print(f"{name}: {_shown(ratio)}" + (f" ({_wanted(ratio)} wanted)" if _wanted(ratio) else ""))
    found = sealed(benchmark, settings, title=title, speeds=speeds, notes=notes,
                   environment=environment() | {"generation": generation()}, ratios=judged)
    if json_path:
        write_atomic(json_path, json.dumps(found, indent=1) + "\n")
    return found


def sealed(benchmark: str, settings: dict[str, Any], **parts: Any) -> dict:
    """The record of a benchmark with its schema, id and digest, identical to the result of reading its file."""
    from repro.study.settings import sha256

    named = json.loads(json.dumps({"benchmark": benchmark, "settings": settings}))  # keys and tuples as in JSON
    found = json.loads(json.dumps({"schema": SCHEMA, "id": sha256(named)[:16], **named, **parts}))
    return found | {"digest": sha256(found)}


def read(path: Path | str) -> dict:
    """The record in a file. Raises ReproError if it cannot be trusted, saying why and what to do."""
    from repro.study.settings import sha256

    again = "restore it from git, or measure again with `repro bench NAME --json FILE`."
    try:
        found = json.loads(Path(path).read_text())
        digest, schema = found.pop("digest"), found["schema"]
        proper_id = sha256({"benchmark": found["benchmark"], "settings": found["settings"]})[:16]
    except OSError as error:
        raise ReproError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # not JSON, not an object, keys missing
        raise ReproError(f"{path} is not the whole record of a benchmark ({type(error).__name__}: {error}); "
                         f"{again}") from error
    if isinstance(schema, int) and schema > SCHEMA:
        raise ReproError(f"{path} has benchmark schema {schema}, this version of repro reads up to {SCHEMA}: it was "
                         "written by a newer one. Update repro; the record is kept as it is.")
    if schema != SCHEMA:
        raise ReproError(f"{path} has benchmark schema {schema}, this version reads {SCHEMA}; {again}")
    if digest != sha256(found) or found["id"] != proper_id:
        raise ReproError(f"{path} was changed after it was written: its digest or id does not match its content; "
                         f"{again}")
    return found | {"digest": digest}


def stored(name: str) -> dict | None:
    """The committed record `results/bench/NAME.json`; None if there is none. Raises ReproError as `read` does."""
    path = home() / "results" / "bench" / f"{name}.json"
    return read(path) if path.exists() else None


def recorded(name: str):
    """The committed run of a benchmark as a DataFrame, one row per ratio; its caption names the machine.

    Raises ReproError if there is none in `results/bench`.
    """
    import pandas

    found = stored(name)
    if found is None:
        raise ReproError(MISSING.format(name=name))
    asked = any(map(_wanted, found["ratios"].values()))
    rows = [{"": label, "measured": _shown(ratio),
             **({"wanted": _wanted(ratio) + ": missed" * _missed(ratio)} if asked else {}),
             **{key: f"{value:.2f}" for key, value in found["notes"].get(label, {}).items() if key == "flops_allow"}}
            for label, ratio in found["ratios"].items()]
    caption = f"{found['title']}: ratios on {_machine(found)}"
    return pandas.DataFrame(rows).rename(columns={"flops_allow": "what FLOPs allow"}).style.hide().set_caption(caption)


def by_processor(name: str):
    """All committed runs of the benchmark in the record `name` as a DataFrame: one row per ratio, one column per run,
    headed by its machine. To add another processor, add a file to `results/bench`.

    Raises ReproError if there is no such record.
    """
    import pandas

    first = stored(name)
    if first is None:
        raise ReproError(MISSING.format(name=name))
    files = sorted((home() / "results" / "bench").glob("*.json"), key=lambda file: (len(file.stem), file.stem))
    table: dict[str, dict[str, str]] = {}
    for found in map(read, files):
        if (found["benchmark"], found["title"]) == (first["benchmark"], first["title"]):
            for label, ratio in found["ratios"].items():
                row = table.setdefault(label, {"": label, "wanted": _wanted(ratio)})
                row[_machine(found)] = _shown(ratio) + ": missed" * _missed(ratio)
    return pandas.DataFrame(table.values()).fillna("–").style.hide().set_caption(f"{first['title']}: ratios by machine")


def _machine(found: dict) -> str:
    """The machine of a record: processor and threads, and the allocator if it was the default in a benchmark that sets
    one."""
    machine, allocator = found["environment"], found["settings"].get("allocator")
    generation = machine.get("generation")  # older records lack it
    name = machine["cpu"] + (f" ({generation})" if generation else "")
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    return f"{name}, {threads}" + ", default allocator" * (allocator == {})


def _shown(ratio: dict) -> str:
    """A measured ratio as text, or why it was not measured."""
    return ratio["measured"] if isinstance(ratio["measured"], str) else f"{ratio['measured']:.2f}"


def _wanted(ratio: dict) -> str:
    """The bound that a ratio must meet, in words; "" if there is none."""
    return "" if ratio["wanted"] is None else f"{ratio.get('bound', 'at least')} {ratio['wanted']:g}"


def _missed(ratio: dict) -> bool:
    """Whether a ratio was measured and misses its bound."""
    if ratio["wanted"] is None or isinstance(ratio["measured"], str):
        return False
    over = ratio["measured"] - ratio["wanted"]
    return over > 0 if ratio.get("bound") == "at most" else over < 0
