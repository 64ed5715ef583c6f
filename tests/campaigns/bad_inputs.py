"""A campaign of bad inputs: command line, parameters of chapters, records and corpora on disk.

    python tests/campaigns/bad_inputs.py [PART ...] [--out results/campaigns/bad_inputs.json]

Each has to end in one clear line, within 2 s of CPU time and 1 GB of memory, and must write nothing outside the folders
that the command names. The report counts the cases of each part and lists every fault.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
HOSTILE = ("", " ", "../../x", "/etc/passwd", "a/b", "nope", "yoshida2020-table1\nx", "é" * 50, "x" * 5_000, "-", "💥",
           "%s%n", "$(id)", "'; --", "null", "{}", "[1", "0", "1e999", "..", "*", "\t")
NOT_NUMBERS = ("x", "nan", "inf", "-inf", "1e999", "", "[", "{}", "null,x", "0x1f", "--", "1_0x")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--out", type=Path, default=HOME / "results" / "campaigns" / "bad_inputs.json")
    parser.add_argument("--data", type=Path, default=os.environ.get("REPRO_DATA"), help="real corpora, for their files")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30,) * 2)
    with tempfile.TemporaryDirectory(prefix="bad-inputs-") as sandbox:
        place = Path(sandbox).resolve()
        for name in ("home", "work", "data", "models", "cwd", "out"):
            (place / name).mkdir()
        os.environ |= {"REPRO_HOME": str(place / "home"), "REPRO_WORK": str(place / "work"), "HF_HUB_OFFLINE": "1",
                       "REPRO_DATA": str(place / "data"), "REPRO_MODELS": str(place / "models"), "COLUMNS": "200"}
        os.chdir(place / "cwd")
        sys.path.insert(0, str(Path(__file__).parent))
        import parts
        from watched import watch

        for module in parts.IMPORTED:
            __import__(module)
        before, began, seen = snapshot(), time.process_time(), []
        parts.prepare(place, HOME, given.data)
        for name, make in parts.PARTS.items():
            if given.parts and name not in given.parts:
                continue
            for case in make(place, HOME, given.data):
                seen.append(watch(case, [place, Path("/dev/null"), Path("/dev/shm"), Path("/proc/self")]))
                if seen[-1].fault:
                    print(f"{name}: {case.name[:150]!r}: {seen[-1].fault}", flush=True)
            mine = [one for one in seen if one.case.part == name]
            print(f"{name}: {len(mine)} cases, {sum(bool(one.fault) for one in mine)} faults, "
                  f"{sum(one.seconds for one in mine):.0f} s", flush=True)
        elsewhere = sorted(set(snapshot().items()) ^ set(before.items()))
    report = {"cases": len(seen), "faults": sum(bool(one.fault) for one in seen), "parts": {
        name: {"cases": len(some), "refused": sum(bool(one.line) for one in some),
               "faults": sum(bool(one.fault) for one in some),
               "longest_cpu_seconds": round(max(one.seconds for one in some), 2),
               "most_bytes": max(one.bytes for one in some)}
        for name in parts.PARTS if (some := [one for one in seen if one.case.part == name])},
        "written_elsewhere": [path for path, _ in elsewhere],
        "found": [{"part": one.case.part, "case": one.case.name[:200], "fault": one.fault}
                  for one in seen if one.fault],
        "cpu_seconds": round(time.process_time() - began), "created": datetime.now(UTC).isoformat(timespec="seconds")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(f"{report['cases']} cases, {report['faults']} faults, {len(elsewhere)} files changed elsewhere")
    return bool(report["faults"] or elsewhere)


def snapshot() -> dict[str, tuple[int, int]]:
    """Size and time of every file of the checkout that a command could change."""
    found = {}
    for folder in ("results", "build", "notebooks", "src", "book"):
        for path in (HOME / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


if __name__ == "__main__":
    sys.exit(main())
