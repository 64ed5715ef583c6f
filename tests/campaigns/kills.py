"""A campaign of kills: SIGKILL at random moments, two processes that write at once, a folder that cannot be written.

    python tests/campaigns/kills.py [--kills 200] [--minutes 6] [--out results/campaigns/kills.json]

Each run is first made undisturbed. Then it is started, killed after a random part of that time, and started again until
it ends by itself. Its record must have the digest of the undisturbed one. The report counts the kills that happened.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
RUNS = {  # kinds of runs at smoke, with settings that keep each to some seconds
    "pre-training a decoder": ["pretrain-gpt2-mini", "--set", "tokens=20480", "--set", "validate_every=4096", "--set",
                               "n_embd=16"],
    "pre-training an encoder": ["pretrain-roberta-mini", "--set", "tokens=16384", "--set", "validate_every=4096",
                                "--set", "n_embd=16"],
    "character model, one phase": ["charlm-ablation", "--set", "steps=[40]", "--only", ""],
    "sparse patterns": ["sparse-density", "--set", "steps=20", "--only", ""],
    "depth": ["sparse-depth", "--set", "n_layer=4", "--set", "scaled=true"],
    "counting pairs": ["factorised-cost"],
}
TRIES = 60  # restarts of one run before it counts as lost


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "REPRO_WORK": str(folder / "work"), "REPRO_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def start(words: list[str], folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "repro", "run", *words, "--results", str(folder / "results")],
                            env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def records(folder: Path) -> dict[str, dict]:
    """The records by id; one that is not whole raises."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((folder / "results").glob("*/*/*.json"))}


def first_id(words: list[str], folder: Path) -> str:
    """The id of the first run of a plan."""
    found = subprocess.run([sys.executable, "-m", "repro", "run", *words, "--dry-run", "--json", "--scale", "smoke"],
                           env=environment(folder), capture_output=True, text=True, check=True)
    return json.loads(found.stdout)[0]["id"]


def finished(words: list[str], folder: Path) -> float:
    """Run to the end, and return the seconds that it took."""
    began = time.monotonic()
    process = start(words, folder)
    _, error = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{words[0]} ended with {process.returncode}: {error.strip()[-300:]}")
    return time.monotonic() - began


def again(undisturbed: Path, place: Path, name: str) -> Path:
    """A new folder with the choice of the machine's products, which is measured once and then kept."""
    folder = place / name
    (folder / "work").mkdir(parents=True)
    if (chosen := undisturbed / "work/float32.json").exists():
        shutil.copy(chosen, folder / "work")
    return folder


def killed(words: list[str], folder: Path, seconds: float, draw: random.Random, most: int) -> int:
    """Kill a run up to `most` times at random moments, then let it end; returns the number of kills."""
    count = 0
    for _ in range(TRIES):
        process = start(words, folder)
        if count == most:
            break
        try:
            process.wait(timeout=draw.uniform(0.1, 1.1) * seconds)
            return count  # it ended by itself before its moment came
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            count += 1
        records(folder)  # what is there is whole
    if process.wait():
        raise RuntimeError(f"{words[0]} ended with {process.returncode}: {process.stderr.read().strip()[-300:]}")
    return count


def same(found: dict[str, dict], expected: dict[str, dict]) -> int:
    """How many records equal those expected, with their digests."""
    return sum(key in found and {**found[key], "cost": 0} == {**one, "cost": 0} for key, one in expected.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=6, help="of CPU time of all runs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HOME / "results" / "campaigns" / "kills.json")
    given = parser.parse_args()
    draw, rows = random.Random(given.seed), []
    with tempfile.TemporaryDirectory(prefix="kills-") as sandbox:
        plain = {}
        for number, (name, words) in enumerate(RUNS.items()):
            folder = Path(sandbox) / f"undisturbed-{number}"
            folder.mkdir()
            if words[-1] == "":
                words = [*words[:-1], first_id(words[:-2], folder)]
            seconds = finished(words, folder)
            plain[name] = words, folder, seconds, records(folder)
            rows.append({"run": name, "kills": 0, "resumed": 0, "identical": 0, "different": 0})
            print(f"{name}: {seconds:.1f} s undisturbed, {len(plain[name][3])} records", flush=True)
        rows.append({"run": "two processes at once", "kills": 0, "resumed": 0, "identical": 0, "different": 0})
        turn = 0
        while sum(row["kills"] for row in rows) < given.kills and spent() < 60 * given.minutes:
            row = rows[turn % len(rows)]
            name = row["run"] if row["run"] in plain else next(iter(plain))
            words, undisturbed, seconds, expected = plain[name]
            folder = again(undisturbed, Path(sandbox), f"turn-{turn}")
            if row["run"] in plain:
                row["kills"] += killed(words, folder, seconds, draw, draw.randint(1, 4))
            else:
                row["kills"] += both(words, folder, seconds, draw)
            found = records(folder)
            n = same(found, expected)
            row["identical"] += n
            row["different"] += len(expected) - n
            row["resumed"] += sum(one["cost"]["resumed"] for one in found.values())
            shutil.rmtree(folder)
            turn += 1
        words, undisturbed, _, _ = next(iter(plain.values()))
        refused = read_only(words, again(undisturbed, Path(sandbox), "read-only"))
    report = {"kills": sum(row["kills"] for row in rows), "asked": given.kills,
              "records": sum(row["identical"] + row["different"] for row in rows),
              "different": sum(row["different"] for row in rows), "runs": rows, "read_only_folder": refused,
              "cpu_seconds": round(spent()), "created": datetime.now(UTC).isoformat(timespec="seconds")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{report['kills']} kills, {report['records']} records, {report['different']} different; {refused}")
    return bool(report["different"])


def both(words: list[str], folder: Path, seconds: float, draw: random.Random) -> int:
    """Two processes make the same run; one of them is killed, and the other has to end with it."""
    pair = [start(words, folder) for _ in range(2)]
    time.sleep(draw.uniform(0.1, 0.9) * seconds)
    victim = draw.randrange(2)
    alive = pair[victim].poll() is None
    pair[victim].send_signal(signal.SIGKILL)
    pair[victim].wait()
    _, error = pair[1 - victim].communicate()
    if pair[1 - victim].returncode:
        raise RuntimeError(f"the other process ended with {pair[1 - victim].returncode}: {error.strip()[-300:]}")
    return int(alive)


def read_only(words: list[str], folder: Path) -> str:
    """The line that ends a run whose results cannot be written: here their folder's name belongs to a file, which stops
    an administrator too."""
    (folder / "results").mkdir()
    (folder / "results/smoke").write_text("a file\n")
    process = start(words, folder)
    _, error = process.communicate()
    lines = error.strip().splitlines()
    if process.returncode != 2 or not lines or not lines[-1].startswith("repro: error: cannot write"):
        raise RuntimeError(f"a folder that cannot be written: exit code {process.returncode}: {error[-300:]}")
    return "refused in one line"


def spent() -> float:
    """Seconds of CPU time of the runs that have ended."""
    used = os.times()
    return used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main())
