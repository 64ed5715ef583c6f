"""Attention next to a busy process, with threads that spin while they wait for work, sleep, or spin briefly.

OpenMP reads its settings only once, so each way to wait is timed in its own processes, which take turns.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median

from repro.bench import report
from repro.errors import ReproError
from repro.openmp import POLICY, SETTINGS, SPINS

WAYS = {"spin": {}, "sleep": {POLICY: "PASSIVE"}, "spin, then sleep": SETTINGS}  # how threads wait -> settings
IDLE, TAKEN = "idle", "a core taken"
PATIENCE = 30.0  # seconds after which a process starts no further step; a step can take more than one minute
MOST = 4.0  # largest time of a step with a core taken, as a multiple of the idle time


def main(json_path=None, n: int = 8_192, window: int = 256, rounds: int = 5, turns: int = 3,
         patience: float = PATIENCE) -> dict:
    """Time a forward and backward pass of `blocked` attention on all cores, idle and while another process takes one.

    turns: how many processes for each way to wait are timed idle; one more is timed with a core taken. rounds: most
    steps in each; only steps that begin within `patience` seconds are run. The whole takes at most about five minutes.
    Raises ReproError if this process may use only one core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        raise ReproError("this process may use one core only; contention needs at least two, one of which is taken.")
    asked = [*[(way, IDLE) for _ in range(turns) for way in WAYS], *((way, TAKEN) for way in WAYS)]
    found: dict[tuple[str, str], list[float]] = {}
    for way, state in asked:
        found.setdefault((way, state), []).extend(in_a_process(way, state, cores, n, window, rounds, patience))
    speeds = {f"threads that {way}, {state}": {
        "tokens_per_second": n / median(seconds), "lowest": n / max(seconds), "highest": n / min(seconds)}
        for (way, state), seconds in found.items()}
    settings = {"n": n, "window": window, "rounds": rounds, "turns": turns, "patience": patience, "threads": cores}
    title = f"Attention beside a busy process, N = {n:,}, forward+backward, {cores} threads on {cores} cores"
    with threads(cores):  # the record names the threads that were timed
        return report("contention", settings, title, speeds, ratios(found), json_path,
                      seconds={f"{way}, {state}": seconds for (way, state), seconds in found.items()})


def ratios(found: dict[tuple[str, str], list[float]]) -> dict[str, tuple]:
    """Ratios of step times, with bounds: a core taken to idle, and other ways to wait to spinning while idle. Threads
    that always spin have no bound.

    >>> found = ratios({(way, state): [1.0] for way in WAYS for state in (IDLE, TAKEN)})
    >>> list(found.values())
    [(1.0, None), (1.0, 4.0, 'at most'), (1.0, 4.0, 'at most'), (1.0, None), (1.0, None)]
    """
    middle = {key: median(seconds) for key, seconds in found.items()}
    spin, *others = WAYS
    taken = {way: middle[way, TAKEN] / middle[way, IDLE] for way in WAYS}
    return ({f"time, threads that {way}: a core taken / idle": (taken[way], None) for way in (spin,)}
            | {f"time, threads that {way}: a core taken / idle": (taken[way], MOST, "at most") for way in others}
            | {f"time, idle: threads that {way} / that {spin}": (middle[way, IDLE] / middle[spin, IDLE], None)
               for way in others})


def in_a_process(way: str, state: str, cores: int, *sizes: float) -> list[float]:
    """Seconds of each step in a new process whose threads wait in this way. sizes: arguments of `timed` after its
    state."""
    settings = {name: value for name, value in os.environ.items() if name not in (POLICY, SPINS)}
    settings |= WAYS[way] | {"OMP_NUM_THREADS": str(cores)}
    code = f"import json; from repro.bench.contention import timed; print(json.dumps(timed({state!r}, *{sizes})))"
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
    if done.returncode:
        told = done.stderr.strip().splitlines() or [
            f"its process ended with status {done.returncode} and said nothing; free some memory and run it again."]
        raise ReproError(f"the timing of threads that {way} stopped: {told[-1]}")
    return json.loads(done.stdout)


def timed(state: str, n: int, window: int, rounds: int, patience: float) -> list[float]:
    """Seconds of each step in this process after one to warm up; at least one step and at most `rounds`."""
    from repro.attention import SlidingWindow, attend
    from repro.bench.attention import PASSES, Contender, a_core_taken, inputs, step

    blocked = Contender(lambda x: attend(x["query"], x["key"], x["value"], SlidingWindow(window), "blocked"))
    work = step(blocked, inputs(n, "cpu"), PASSES[1])
    work()
    with a_core_taken() if state == TAKEN else nullcontext():
        return repeated(work, rounds, patience)


def repeated(work: Callable[[], object], rounds: int, patience: float,
             clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Seconds of `rounds` calls, or of those that begin within `patience` seconds; the first call is always made."""
    began, found = clock(), []
    while not found or (len(found) < rounds and clock() - began < patience):
        before = clock()
        work()
        found.append(clock() - before)
    return found


@contextmanager
def threads(n: int) -> Iterator[None]:
    """In the `with` block, torch uses n threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
