"""A campaign of kills: SIGKILL at random moments, two processes with one run, full disks, and read-only ones.

    python tests/campaigns/kills.py [--kills 200] [--seed 0] [--out results/campaigns/kills.json]

Each run is made undisturbed first. Then it is killed one to four times and started again until it ends by itself. Half
of the kills come after a random part of its CPU time, the other half before a random change of a file. Its records and
weights must equal those of the undisturbed run, and no half-written file may remain. The runs are forks of one process
that has imported everything and written the generated books, so that kills fall on the runs themselves. The disks are
of the kind tmpfs: Linux mounts them for root, or for anybody within `unshare --user --map-root-user --mount`.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
RUNS = {  # experiment at smoke -> what it does, and settings that shorten it
    "pretrain-gpt2-mini": ("pre-training a decoder", {"tokens": 30720, "validate_every": 8192, "n_embd": 32}),
    "pretrain-roberta-mini": ("pre-training an encoder", {"tokens": 24576, "validate_every": 8192, "n_embd": 32}),
    "pretrain-gpt": ("an LSTM", {"model": "lstm", "tokens": 30720}),
    "recurrence-pg19": ("recurrence, fine-tuned and scored", {
        "model": "recurrent", "steps": 12, "validation_tokens": 1000, "test_head": 200}),
    "summarise": ("summaries by beam search", {"model": "t-dmca", "epochs": 1, "n_summaries": 2}),
    "charlm": ("a character model in five phases", {
        "steps": "[20,10,5,2,2]", "implementations": "[]", "scored": 1000}),
    "sparse-density": ("sparse patterns on images", {"pattern": "strided", "steps": 20, "scored": 8}),
    "classify-documents": ("classifying documents", {"length": 65, "epochs": 1}),
    "memory-recurrence": ("counting bytes of memory", {"windows": "[1,2,3,4]"}),
    "overlap-gpt2": ("counting shared words", {"random_runs": 2000})}
NEEDS = "recurrence-pg19", "pretrain-gpt2-mini"  # a run, and the base model that is there before it starts
TWO, AGAIN = "two processes with one run", "a finished run, with --force"
MOMENTS = "before a checkpoint", "after a checkpoint", "while writing", "after the record"


class Fault(Exception):
    """What a kill or a disk must not do."""


class Place:
    """A folder in which a run is made, killed, and made again. before: a folder to begin with."""

    def __init__(self, config, folder: Path, before: Path | None = None):
        from repro.study import run_id

        self.config, self.folder, self.id = config, folder, run_id(config)
        for name in ("home", "results", "work"):
            (folder / name).mkdir(parents=True)
        self.fill(before)

    def fill(self, before: Path | None) -> None:
        """Copy what is there before the first start."""
        if before:
            shutil.copytree(before, self.folder, dirs_exist_ok=True)
        self.before, self.kept = set(files(self.folder)), self.results()

    def start(self, log: str = "run.log", **how):
        """A fork that makes the run."""
        from forked import start

        return start(self.config, self.folder, self.folder.with_name(log), **how)

    def finish(self, **how):
        """The fork, after it has ended by itself."""
        fork = self.start(**how)
        if fork.wait():
            raise Fault(f"exit code {fork.status}: {fork.said[-300:]}")
        return fork

    def results(self) -> dict[str, object]:
        """File -> contents: of a record all but its cost, of another file its bytes."""
        found = {}
        for path in files(self.folder / "results"):
            name = str(path.relative_to(self.folder))
            if not unfinished(name):
                record = path.suffix == ".json" and path.parent.name != "model"
                found[name] = {**json.loads(path.read_text()), "cost": {}} if record else path.read_bytes()
        return found

    def check(self) -> None:
        """Raise Fault unless each record is whole, and those of the last check are still here."""
        try:
            found = self.results()
        except ValueError as error:
            raise Fault(f"a record is not whole: {error}") from error
        if lost := [name for name, one in self.kept.items() if found.get(name) != one]:
            raise Fault(f"{lost[0]} was here before the kill; now it is gone or another file")
        self.kept = found

    def moment(self) -> str:
        """What a killed run had done."""
        new = [str(path.relative_to(self.folder)) for path in set(files(self.folder)) - self.before]
        if any(map(unfinished, new)):
            return MOMENTS[2]
        if any(name in (f"results/smoke/{self.config.experiment}/{self.id}.json", f"work/runs/{self.id}/record.json")
               for name in new):
            return MOMENTS[3]
        return MOMENTS[any(name.endswith("checkpoint.pt") for name in new)]


def files(folder: Path) -> list[Path]:
    """The files in a folder and below."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def unfinished(name: str) -> bool:
    """Whether a path has the name of a file or folder that is still being written."""
    return any(part.startswith(".") for part in Path(name).parts)


def compare(place: Place, undisturbed: Place) -> Counter:
    """Count the values of the results and those that differ. Raises Fault for files too many or too few."""
    found, expected = place.results(), undisturbed.results()
    if found.keys() != expected.keys():
        raise Fault(f"results that are missing or new: {sorted(found.keys() ^ expected.keys())[:3]}")
    known = {path.relative_to(undisturbed.folder).as_posix() for path in files(undisturbed.folder)}
    names = (path.relative_to(place.folder).as_posix().replace("work-2/", "work/") for path in files(place.folder))
    if strange := [name for name in names if name not in known]:
        raise Fault(f"a file remains that the undisturbed run does not leave: {strange[0]}")
    count = Counter(runs=1)
    for name, one in expected.items():
        pairs, other = values(one), dict(values(found[name]))
        count["values"] += len(pairs)
        if differ := [path for path, value in pairs if path not in other or other[path] != value]:
            raise Fault(f"{name}: {len(differ)} values differ, first {differ[0]}")
    return count


def values(record, path: str = "") -> list[tuple[str, object]]:
    """The path and the value of each leaf of a record; another file is one value."""
    if not isinstance(record, (dict, list)):
        return [(path, record)]
    pairs = record.items() if isinstance(record, dict) else enumerate(record)
    return [leaf for key, one in pairs for leaf in values(one, f"{path}/{key}")]


def killed(place: Place, undisturbed: Place, draw: random.Random, **how) -> Counter:
    """Kill a run up to four times, then let it end."""
    count = Counter()
    for _ in range(draw.randint(1, 4)):
        by_time, part = draw.random() < 0.5, draw.random()
        if by_time:
            status = place.start(**how).kill(part * undisturbed.seconds)
        else:
            status = place.start(at=1 + int(part * undisturbed.changes), **how).wait()
        place.check()
        if not status:
            break
        if status != -9:
            raise Fault(f"started again, it ends with exit code {status}")
        count["kills"] += 1
        count[place.moment()] += 1
    place.finish(**how)
    return count + compare(place, undisturbed)


def two(place: Place, undisturbed: Place, draw: random.Random) -> Counter:
    """Two processes make the same run, in one work folder or each in its own; one is killed, the other has to end."""
    names = ["work", draw.choice(("work", "work-2"))]
    if "work-2" in names:
        shutil.copytree(place.folder / "work", place.folder / "work-2")
    pair = [(name, place.start(work=name, log=f"{number}.log")) for number, name in enumerate(names)]
    (name, victim), (own, other) = draw.sample(pair, 2)
    count = Counter(kills=int(victim.kill(draw.random() * undisturbed.seconds) == -9))
    if count["kills"]:
        count[place.moment()] += 1
    if other.wait():
        raise Fault(f"the other process ends with exit code {other.status}: {other.said[-300:]}")
    place.check()
    if name != own:
        shutil.rmtree(place.folder / name)  # of a machine that is gone
    return count + compare(place, undisturbed)


def on_disk(place: Place, undisturbed: Place, draw: random.Random, full: bool, before: Path) -> Counter:
    """The results or the work are on a disk that is too small or read-only; then there is room, and it ends."""
    disk = place.folder / draw.choice(("results", "work"))
    mount("-t", "tmpfs", "-o", "size=1g", "tmpfs", disk)
    try:
        place.fill(before)
        used, needed = (sum(-(-path.stat().st_size // 4096) * 4 for path in files(folder))
                        for folder in (disk, undisturbed.folder / disk.name))
        size = draw.randint(used + 4, max(used + 4, needed - 4))  # in KiB; one page is the least that there is
        mount("-o", f"remount,size={size}k" if full else "remount,ro", disk)
        fork = place.start()
        fork.wait()
        refused = fork.status == 2 and fork.said.startswith("repro: error: cannot w") and "\n" not in fork.said
        if not refused and (fork.status or not full):
            raise Fault(f"exit code {fork.status}: {fork.said[-300:]}")
        mount("-o", "remount,rw,size=1g", disk)
        place.check()
        place.finish()
        return Counter(refused=int(refused)) + compare(place, undisturbed)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def mount(*words) -> None:
    """Mount a disk, or change one."""
    subprocess.run(["mount", *map(str, words)], check=True)


def undisturbed_runs(box: Path) -> tuple[dict[str, Place], dict[str, Path]]:
    """Each run, made twice: the second time with all modules imported, which gives the time and the changes of files.
    Also the folder that each begins with, which has the way of this machine's float32 products."""
    from repro.data import synthetic
    from repro.study import experiment

    type(synthetic.BOOKS).book = cache(type(synthetic.BOOKS).book)
    for split, n in synthetic.SIZES.items():
        for index in range(n):
            synthetic.BOOKS.book(split, index)
    configs = {name: experiment(name).plan("smoke", sets)[0] for name, (_, sets) in RUNS.items()}
    user, base = NEEDS
    first = Place(experiment(base).plan("smoke")[0], box / "base")
    first.finish()
    (box / "plain/work").mkdir(parents=True)
    shutil.copy(first.folder / "work/float32.json", box / "plain/work")
    before = {name: first.folder if name == user else box / "plain" for name in RUNS}
    for name, config in configs.items():
        for module in Place(config, box / f"first-{name}", before[name]).finish().left("modules"):
            with suppress(Exception):
                import_module(module)
    places = {}
    for name, config in configs.items():
        place = places[name] = Place(config, box / f"undisturbed-{name}", before[name])
        fork = place.finish()
        place.seconds, place.changes = fork.seconds, len(fork.left("files"))
        compare(place, Place(config, box / f"compared-{name}", box / f"first-{name}"))
        print(f"{name}: {place.seconds:.1f} s of CPU time, {place.changes} changes of files", flush=True)
    return places, before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--disks", type=int, default=10, help="full ones, and as many read-only ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HOME / "results" / "campaigns" / "kills.json")
    given = parser.parse_args()
    draw, counts, found = random.Random(given.seed), {}, []
    with tempfile.TemporaryDirectory(prefix="kills-") as sandbox:
        os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
                       "TOKENIZERS_PARALLELISM": "false", "REPRO_HOME": sandbox, "REPRO_WORK": sandbox}
        box = Path(sandbox)
        undisturbed, before = undisturbed_runs(box)

        def turn(way: str, name: str, what, begin: Path, *more, **how) -> None:
            place = Place(undisturbed[name].config, box / "turn", begin)
            try:
                counts[way] = counts.get(way, Counter()) + what(place, undisturbed[name], draw, *more, **how)
            except Fault as fault:
                found.append({"way": way, "run": name, "fault": str(fault)})
                print(f"{way}, {name}: {fault}", flush=True)
            shutil.rmtree(place.folder)

        names, number = list(RUNS), 0
        while (kills := sum(count["kills"] for count in counts.values())) < given.kills and len(found) < 20:
            way = [*RUNS, TWO, AGAIN][number % (len(RUNS) + 2)]
            name = way if way in RUNS else names[number // (len(RUNS) + 2) % len(names)]
            turn(RUNS[way][0] if way in RUNS else way, name, two if way == TWO else killed,
                 undisturbed[name].folder if way == AGAIN else before[name], **{"force": True} if way == AGAIN else {})
            number += 1
            print(f"{kills} kills, {spent():.0f} s of CPU time", flush=True)
        for number in range(2 * given.disks):
            name, full = names[number // 2 % len(names)], number % 2 == 0
            turn("a full disk" if full else "a read-only disk", name, on_disk, None, full, before[name])
    report = {"kills": sum(count["kills"] for count in counts.values()), "asked": given.kills, "seed": given.seed,
              "ways": {way: dict(count) for way, count in counts.items()}, "faults": len(found), "found": found,
              "cpu_seconds": round(spent()), "created": datetime.now(UTC).isoformat(timespec="seconds")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{report['kills']} kills, {report['faults']} faults")
    return bool(found)


def spent() -> float:
    """Seconds of CPU time of this process and of those that it started."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
