"""A campaign of other projects' own tests, run against our attention.

    python tests/campaigns/peers.py [--models "GPT-2,Llama"] [--tests FOLDER --tests-from REPOSITORY@COMMIT]
                                    [--out results/campaigns/peers.json]

transformers' tests come from its source package on the index, in the installed version. That package lacks the tests of
generation. --tests names a folder `tests` that has them (`git clone --depth 1 --branch v5.23.0
https://github.com/huggingface/transformers`), and --tests-from says for the record where it comes from. attention-gym's
masks and allenai's sliding chunks come from the index too. Everything is unpacked into a temporary folder and removed
again.
"""

import argparse
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from collections import Counter
from contextlib import nullcontext, redirect_stderr
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
SOURCES = {"attn-gym": "0.0.17", "longformer-chinese": "0.0.0.8", "parameterized": "0.9.0"}  # the second has allenai's
STUBS = {  # what the source package lacks
    "generation/test_utils.py": ["GenerationTesterMixin"],
    "exporters/test_export.py": ["ExportTesterMixin", "ExportGenerateTesterMixin"]}
REFUSALS = "repro.errors.ReproError: ", "is not supported when using the `attn_implementation`"  # ours, transformers'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", help="names, separated by commas; all by default")
    parser.add_argument("--tests", type=Path, help="the folder `tests` of transformers' repository")
    parser.add_argument("--tests-from", metavar="REPOSITORY@COMMIT", help="where that folder comes from")
    parser.add_argument("--out", type=Path, default=HOME / "results" / "campaigns" / "peers.json")
    given = parser.parse_args()
    if bool(given.tests) != bool(given.tests_from):
        parser.error("--tests and --tests-from go together: a folder, and the repository and commit it comes from.")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_TEST_DEVICE": "cpu", "RUN_SLOW": "1"}
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        place = Path(folder)
        fetch(place, given.tests)
        sys.path[:0] = [str(place), str(place / "index"), str(Path(__file__).parent)]
        import peer_masks
        import peer_models

        mixins = [getattr(importlib.import_module(f"tests.{module}"), name) for module, name in (
            ("test_modeling_common", "ModelTesterMixin"), ("test_training_mixin", "TrainingTesterMixin"),
            ("generation.test_utils", "GenerationTesterMixin"))]
        chosen = given.models.split(",") if given.models else list(peer_models.MODELS)
        others = peer_masks.masks() + peer_masks.chunks()
        rows = [row for name in chosen for row in compare(name, peer_models, mixins)] + others
    report = {
        "versions": {"transformers": version("transformers"), "torch": version("torch"), **SOURCES},
        "generation": given.tests_from,
        "generation_wide": sum(row.pop("wide", False) and row["theirs"] == "passed" for row in rows),
        "cases": len(rows), "groups": counted(rows, "group"), "kinds": counted(rows, "kind"),
        "not_passed": [row for row in rows if row["theirs"] == "passed" and row["ours"] != "passed"],
        "theirs_not_passed": [row for row in rows if row["theirs"] != "passed"],
        "cpu_seconds": round(time.process_time() - began), "created": datetime.now(UTC).isoformat(timespec="seconds")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    failed = sum(row["ours"] == "failed" for row in report["not_passed"])
    print(f"{len(rows)} cases, {failed} failed, {report['cpu_seconds']} s")
    return bool(failed)


def fetch(place: Path, tests: Path | None) -> None:
    """Unpack other projects' packages into `place/index`, and transformers' tests as the package `place/tests`."""
    index = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    named = [f"{name}=={number}" for name, number in SOURCES.items()]
    subprocess.run([*index, "install", "--no-deps", "--target", place / "index", *named], check=True)
    if tests:
        shutil.copytree(tests, place / "tests", ignore=shutil.ignore_patterns("fixtures", "quantization"))
    else:
        subprocess.run([*index, "download", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--dest", place,
                        f"transformers=={version('transformers')}"], check=True)
        with tarfile.open(next(place.glob("transformers-*.tar.gz"))) as packed:
            packed.extractall(place, [one for one in packed if Path(one.name).parts[1:2] == ("tests",)], filter="data")
        next(place.glob("transformers-*/tests")).rename(place / "tests")
    for name, mixins in STUBS.items():
        stub = place / "tests" / name
        stub.parent.mkdir(exist_ok=True)
        if not stub.exists():
            stub.write_text("".join(f"class {mixin}:\n    pass\n" for mixin in mixins))
    for folder in (place / "tests", *(place / "tests" / name for name in ("generation", "exporters"))):
        (folder / "__init__.py").touch()
    models, generation = place / "tests/test_modeling_common.py", place / "tests/generation/test_utils.py"
    for path in (models, generation):
        inside = re.compile('^( {8}.*)"sdpa"', re.MULTILINE)  # in a method: a test that names sdpa asks for ours
        path.write_text(inside.sub(r"\1self.attention", path.read_text()))
    shares = re.compile(r'(_attn_implementation = |_from_config\(config, attn_implementation=)"eager"')
    text = shares.sub(r"\1self.probabilities", generation.read_text())  # which ours returns, too
    generation.write_text(text.replace("    @is_flaky\n", ""))  # without (), it returns a function: no test would run


def compare(name: str, peers, mixins: list[type]) -> list[dict]:
    """A row for each test of a model: what came of it under the model's own attention and under ours."""
    kinds = {begin: kind for kind, begins in peers.KINDS.items() for begin in begins}
    rows = []
    for test in unittest.TestLoader().getTestCaseNames(peers.cases(name, *mixins)):
        generation = test in vars(mixins[2])
        kind = "generation" if generation else next((kinds[one] for one in kinds if test.startswith(one)), None)
        if not kind:
            continue
        outcomes, calls = both(name, test, peers, mixins)
        if wide := generation and outcomes[0][0] == "failed" and "sliding_window" in peers.MODELS[name][3]:
            outcomes, calls = both(name, test, peers, mixins, wide)  # their checks of caches expect whole sequences
        if outcomes[0][0] == "skipped":
            continue
        if generation and outcomes[1][0] == "passed" and not calls:
            print(f"{name}: {test} never calls our attention and does not count", flush=True)
            continue
        rows.append({"group": name, "kind": kind, "case": test, "wide": wide,
                     "theirs": outcomes[0][0], "ours": outcomes[1][0], "why": outcomes[1][1] or outcomes[0][1]})
        if rows[-1]["theirs"] != "passed" or rows[-1]["ours"] != "passed":
            print(rows[-1], flush=True)
    print(f"{name}: {dict(Counter((row['theirs'], row['ours']) for row in rows))}", flush=True)
    return rows


def both(name: str, test: str, peers, mixins: list[type], wide: bool = False) -> tuple[list[tuple[str, str]], list]:
    """What came of a test under the model's own attention and, unless it was skipped, under ours; calls of ours."""
    outcomes = []
    for own in False, True:
        case = peers.cases(name, *mixins, wide=wide)(test)
        with peers.ours(case, name) if own else nullcontext([]) as calls:
            outcomes.append(outcome(case))
        if outcomes[0][0] == "skipped":
            break
    return outcomes, calls


def outcome(case: unittest.TestCase) -> tuple[str, str]:
    """passed, skipped, refused by one line of ours, or failed; and the last line of its error."""
    result = unittest.TestResult()
    with redirect_stderr(io.StringIO()):
        case.run(result)
    trouble = [said for _, said in result.errors + result.failures]
    if not trouble:
        return ("skipped", result.skipped[0][1]) if result.skipped else ("passed", "")
    last = next(line for line in reversed(trouble[0].splitlines()) if line.strip())
    refused = all(any(one in said for one in REFUSALS) for said in trouble)
    return ("refused" if refused else "failed"), last.removeprefix(REFUSALS[0])[:300]


def counted(rows: list[dict], by: str) -> dict:
    """What came of the cases that pass under the model's own attention, for each value of a column."""
    found = {}
    for row in rows:
        if row["theirs"] == "passed":
            found.setdefault(row[by], Counter(passed=0, refused=0, failed=0))[row["ours"]] += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
