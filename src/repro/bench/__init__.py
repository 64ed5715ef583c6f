"""Side-by-side timings: contenders take turns in one process, so that what counts is their ratio."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from repro.errors import ReproError
from repro.paths import home, write_atomic

ROUNDS = 5


def compare(contenders: dict[str, Callable[[], int]], rounds: int = ROUNDS, warm_up: bool = True
            ) -> dict[str, dict[str, float]]:
    """Run each contender once to warm up if that is to be, then `rounds` times in turn; each returns its tokens.

    Returns per contender the median, lowest and highest tokens per second.
    """
    speeds = {name: [] for name in contenders}
    for turn in range(not warm_up, rounds + 1):
        for name, work in contenders.items():
            started = time.perf_counter()
            tokens = work()
            if turn:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return {name: {"tokens_per_second": statistics.median(found), "lowest": min(found), "highest": max(found)}
            for name, found in speeds.items()}


def report(title: str, speeds: dict[str, dict[str, float]], ratios: dict[str, tuple],
           json_path: Path | str | None = None, **notes) -> dict:
    """Print speeds and ratios, each beside its bound, and write them to `json_path` if given.

    ratios: (measured, bound), the least that it should be, or (measured, bound, "at most").
    """
    from rich.console import Console
    from rich.table import Table

    from repro.study.runner import environment

    table = Table("", "tokens/s (median)", "lowest", "highest", title=title, title_justify="left")
    for name, found in speeds.items():
        table.add_row(name, *(f"{value:,.0f}" for value in found.values()))
    console = Console()
    console.print(table)
    judged = {name: {"measured": ratio, "wanted": wanted, "bound": bound[0] if bound else "at least"}
              for name, (ratio, wanted, *bound) in ratios.items()}
    for name, ratio in judged.items():
        console.print(f"{name}: {ratio['measured']:.2f} ({ratio['bound']} {ratio['wanted']} wanted)")
    found = {"title": title, "speeds": speeds, "notes": notes, "environment": environment(),
             "ratios": judged}
    if json_path:
        write_atomic(json_path, json.dumps(found, indent=1) + "\n")
    return found


def stored(name: str) -> dict | None:
    """The committed run of a benchmark, as `report` returned it; None when there is none in `results/bench`."""
    path = home() / "results" / "bench" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def recorded(name: str):
    """The committed run of a benchmark as a DataFrame, a row a ratio; its caption names the machine.

    Raises ReproError when there is none in `results/bench`.
    """
    import pandas

    found = stored(name)
    if found is None:
        raise ReproError(f"there is no {name}.json in results/bench; make it with `repro bench {name} --json "
                         f"results/bench/{name}.json`.")
    rows = [{"": label, "measured": f"{ratio['measured']:.2f}",
             "wanted": f"{ratio.get('bound', 'at least')} {ratio['wanted']:g}",
             **{key: f"{value:.2f}" for key, value in found["notes"].get(label, {}).items() if key == "flops_allow"}}
            for label, ratio in found["ratios"].items()]
    machine = found["environment"]
    caption = f"{found['title']}: ratios on {machine['cpu']}, {machine['threads']} thread(s)"
    return pandas.DataFrame(rows).rename(columns={"flops_allow": "what FLOPs allow"}).style.hide().set_caption(caption)
