"""A campaign on what is distributed: wheel and sdist in new environments, the lowest and newest versions, the metadata.

    python tests/campaigns/distribution.py [--out results/campaigns/distribution.json]

It needs the package index, which also has its tools: uv, cffconvert, and pip-audit. New environments link to packages
that are installed here, so that PyTorch, of 200 MB or more, is not fetched again.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
import zipfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
TOOLS = "uv", "cffconvert", "pip-audit"
PARTS = "src", "pyproject.toml", "README.md", "LICENSE"  # all that setuptools reads
TESTS = ("tests/attention/test_implementations.py", "tests/attention/test_registration.py",
         "tests/attention/test_models.py")
RUN = ("run", "pretrain-gpt2-mini", "--set", "tokens=20480", "--set", "validate_every=4096", "--set", "n_embd=16")
SPEC = importlib.util.spec_from_file_location("test_alone", HOME / "tests/attention/test_alone.py")
alone = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(alone)
PROJECT = alone.PROJECT
STUDY = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["study"]]


class Failed(Exception):
    """A check that did not pass, with the reason."""


def call(*words, folder: Path = HOME, **variables: str) -> str:
    """What a command prints. Raises Failed for any exit code but 0."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REPRO"))}
    done = subprocess.run([str(word) for word in words], cwd=folder, env=clean | variables, capture_output=True,
                          text=True)
    if done.returncode:
        raise Failed(f"{Path(words[0]).name} {' '.join(map(str, words[1:4]))} ends with exit code {done.returncode}: "
                     f"{(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def build(box: Path) -> str:
    """Wheel and sdist from the files that setuptools reads; the sdist has all that the wheel has."""
    (box / "copy").mkdir()
    for name in PARTS:
        (shutil.copytree if (HOME / name).is_dir() else shutil.copy)(HOME / name, box / "copy" / name)
    for kind in ("sdist", "wheel"):
        call(sys.executable, "-c", f"from setuptools.build_meta import *; build_{kind}({str(box)!r})",
             folder=box / "copy")
    wheel, sdist = built(box)
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("repro/")}
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    if lacking := {"LICENSE", "README.md", *(f"src/{name}" for name in inside)} - names:
        raise Failed(f"the sdist lacks {min(lacking)}")
    return f"{len(inside)} files of code and data; {wheel.stat().st_size:,} and {sdist.stat().st_size:,} bytes"


def built(box: Path) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    (wheel,), (sdist,) = box.glob("*.whl"), box.glob("*.tar.gz")
    return wheel, sdist


def attention(box: Path) -> str:
    """`pip install repro[attention]` next to an installed PyTorch takes under a minute, and attention runs."""
    python = alone.environment(box / "attention", alone.ATTENTION)
    began = time.monotonic()
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", f"{built(box)[0]}[attention]")
    seconds = time.monotonic() - began
    if "read 400" not in call(python, "-W", "ignore", "-c", alone.LINES) or seconds > 60:
        raise Failed(f"{seconds:.0f} s, or attention does not run")
    return f"{seconds:.0f} s"


def doctor(box: Path, number: int) -> str:
    """The wheel or the sdist installs into an environment with the study's packages, and `repro doctor` runs there."""
    python = alone.environment(box / f"doctor-{number}", STUDY)
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", built(box)[number])
    told = call(python.with_name("repro"), "doctor", folder=box, REPRO_HOME=str(box / "home"))
    if "Python" not in told or "attention, causal" not in told:
        raise Failed(f"doctor prints {told[:200]!r}")
    return f"{len(told.splitlines())} lines"


def resolve(box: Path, which: str) -> str:
    """The direct dependencies of all extras at their lowest, or all at their newest versions, fit together."""
    call(box / "tools/bin/uv", "pip", "compile", "-q", "--all-extras", "--no-annotate", "--no-header",
         *(["--resolution", "lowest-direct"] if which == "lowest" else []), "--python-version", "3.11",
         "pyproject.toml", "-o", box / f"{which}.txt")
    return f"{len(versions(box, which))} packages, {len(others(box, which))} in another version than the tested one"


def versions(box: Path, which: str) -> dict[str, str]:
    """Package -> its lowest or newest version."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", (box / f"{which}.txt").read_text(), re.MULTILINE))


def others(box: Path, which: str) -> list[str]:
    """The requirements that are installed here in another version, without PyTorch, which the study pins."""
    found = []
    for name, wanted in versions(box, which).items():
        try:
            if name != "torch" and version(name) != wanted:
                found.append(f"{name}=={wanted}")
        except PackageNotFoundError:  # of another system, or renamed
            continue
    return found


def tests(box: Path, which: str) -> str:
    """Attention's tests and a run of the study pass with these versions, installed on top of the tested ones."""
    folder = box / f"versions-{which}"
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "below.pth").write_text(sysconfig.get_path("purelib"))
    call(python, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", *others(box, which), built(box)[0])
    for one in others(box, which):
        name, wanted = one.split("==")
        found = call(python, "-c", f"from importlib.metadata import version; print(version({name!r}))").strip()
        if found != wanted:
            raise Failed(f"{name} is {found}, not {wanted}")
    passed = call(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS, OMP_NUM_THREADS="1")
    call(python, "-m", "repro", *RUN, "--results", box / which, REPRO_HOME=str(box / "home"),
         REPRO_WORK=str(box / f"work-{which}"), OMP_NUM_THREADS="1")
    call(python, "-m", "repro", "list", REPRO_HOME=str(box / "home"))
    return f"{len(others(box, which))} packages installed; {passed.strip().splitlines()[-1].partition(' in ')[0]}"


def audit(box: Path) -> str:
    """No known vulnerability in a package at its tested version, where the database can be reached."""
    (box / "one.txt").write_text("safetensors==" + version("safetensors"))
    options = "--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json"
    one = json.loads(call(box / "tools/bin/pip-audit", "-r", box / "one.txt", *options))["dependencies"][0]
    if "skip_reason" in one:
        return "not audited: the index here serves no data on vulnerabilities"
    every = json.loads(call(box / "tools/bin/pip-audit", "-r", HOME / "constraints.txt", *options))["dependencies"]
    return f"{len(every)} packages, {sum('skip_reason' in one for one in every)} of them not audited"


def citation(box: Path) -> str:
    """CITATION.cff is valid and names the current version."""
    told = call(box / "tools/bin/cffconvert", "--validate", "-i", "CITATION.cff")
    if f"version: {PROJECT['version']}\n" not in (HOME / "CITATION.cff").read_text():
        raise Failed(f"CITATION.cff has another version than {PROJECT['version']}")
    return told.strip().rpartition(" are ")[2].rstrip(".")


def changelog(box: Path) -> str:
    """CHANGELOG has a section for each release, the current one first."""
    releases = re.findall(r"^## (\S+)", (HOME / "CHANGELOG.md").read_text(), re.MULTILINE)
    if releases != sorted(set(releases), key=lambda one: [int(part) for part in one.split(".")], reverse=True) or (
            releases[0] != PROJECT["version"]):
        raise Failed(f"its releases are {', '.join(releases)}, the version is {PROJECT['version']}")
    return f"releases: {', '.join(releases)}"


CHECKS = {
    "wheel and sdist, built": build,
    "repro[attention] next to PyTorch, installed": attention,
    "wheel in a new environment, repro doctor": lambda box: doctor(box, 0),
    "sdist in a new environment, repro doctor": lambda box: doctor(box, 1),
    "all dependencies at their lowest version, resolved": lambda box: resolve(box, "lowest"),
    "all dependencies at their newest version, resolved": lambda box: resolve(box, "newest"),
    "lowest versions: attention's tests and a run": lambda box: tests(box, "lowest"),
    "newest versions: attention's tests and a run": lambda box: tests(box, "newest"),
    "pip-audit": audit, "CITATION.cff": citation, "CHANGELOG.md": changelog}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HOME / "results" / "campaigns" / "distribution.json")
    given = parser.parse_args()
    checks, found = {}, []
    with tempfile.TemporaryDirectory(prefix="distribution-") as box:
        venv.create(Path(box) / "tools", with_pip=True)
        call(Path(box) / "tools/bin/pip", "install", "-q", *TOOLS)
        for name, check in CHECKS.items():
            began = time.monotonic()
            try:
                checks[name] = {"found": check(Path(box))}
            except Failed as failed:
                checks[name] = {"found": f"failed: {failed}"}
                found.append({"check": name, "fault": str(failed)})
            checks[name]["seconds"] = round(time.monotonic() - began)
            print(f"{name}: {checks[name]}", flush=True)
    report = {"checks": checks, "python": sys.version.split()[0], "found": found,
              "created": datetime.now(UTC).isoformat(timespec="seconds")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
