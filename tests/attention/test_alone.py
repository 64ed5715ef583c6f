"""What `pip install repro[attention]` brings is enough: an environment with that and nothing else."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ATTENTION = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["attention"]]
ABSENT = "transformers", "numpy", "pandas", "pydantic", "typer", "safetensors"
LINES = """
import torch
from repro.attention import Global, LongformerSelfAttention, SlidingWindow, attend

x = [torch.randn(1, 2, 400, 8, requires_grad=True) for _ in range(3)]
pattern = SlidingWindow(16) | Global([3])
found = [attend(*x, pattern, name) for name in ("blocked", "dense", "loop")]
found.append(attend(*(part.detach() for part in x), pattern, "flex"))
for one in found[1:]:
    torch.testing.assert_close(one, found[0])
found[0].sum().backward()
LongformerSelfAttention(16, 2, window=4)(torch.randn(1, 9, 16)).sum().backward()
print("read", x[0].grad.shape[2])
"""


def asked_for(wanted):
    """The installed packages that these requirements come to, by name."""
    found, waiting = {}, [Requirement(one) for one in wanted]
    while waiting:
        one = waiting.pop()
        if one.name not in found:
            found[one.name] = distribution(one.name)
            needs = (Requirement(text) for text in found[one.name].requires or ())
            waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(wanted) -> the python of a new environment with links to these packages, and to this repository as `source`."""
    def make(wanted, source=ROOT / "src"):
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        for package in asked_for(wanted).values():
            for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
                if not (packages / name).exists():
                    (packages / name).symlink_to(package.locate_file(name))
        if source:
            (packages / "repro.pth").write_text(str(source))
        return folder / "bin" / "python"
    return make


def run(*command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def test_an_environment_with_attention_alone(alone):
    python = alone(ATTENTION)
    for name in ABSENT:
        assert f"No module named '{name}'" in run(python, "-c", f"import {name}").stderr
    done = run(python, "-W", "ignore", "-c", f"{LINES}\nfrom repro.attention import register")
    assert done.stdout == "read 400\n", done.stderr
    assert done.stderr.endswith("ReproError: register puts patterns into models of transformers, which is not "
                                "installed: pip install 'repro[transformers]'.\n"), done.stderr
    told = run(python, "-m", "repro", "list")
    assert told.stderr == ("repro: error: the commands need the packages of the study: "
                           "pip install 'repro[study]'.\n") and told.returncode


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """What is built from this repository for `pip install`."""
    pytest.importorskip("setuptools", "77", reason="no setuptools of 77 or newer to build a wheel without a network")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    made = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
               "-w", str(folder), str(folder))
    assert not made.returncode, made.stderr
    (found,) = folder.glob("repro-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(alone, wheel):
    """(wanted) -> the python of a new environment with links to these packages, into which pip has put the wheel."""
    def make(wanted):
        python = alone(wanted, None)
        done = run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index",
                   str(wheel))
        assert not done.returncode, done.stderr
        return python
    return make


def test_a_wheel_installs_into_an_empty_environment(installed, wheel):
    """The code, the published values, the pages' scripts, the command; and it runs."""
    assert wheel.name.split("-")[1] == PROJECT["version"]
    python = installed(ATTENTION)
    told = run(python, "-W", "ignore", "-c", f"{LINES}\nimport repro; print(repro.__file__)")
    read, file = told.stdout.splitlines()
    assert read == "read 400" and Path(file).is_relative_to(python.parents[1]), told.stderr
    inside = {str(path.relative_to(Path(file).parents[1])) for path in Path(file).parent.rglob("*")}
    assert inside >= {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/repro").rglob("*")
                      if path.suffix in (".py", ".js", ".html", ".csv")}
    told = run(python.with_name("repro"), "list")
    assert told.stderr.startswith("repro: error: the commands need the packages of the study") and told.returncode


def test_its_command_runs_where_the_study_is_installed(installed):
    python = installed(PROJECT["optional-dependencies"]["study"])
    told = run(python.with_name("repro"), "--help")
    assert not told.returncode and "doctor" in told.stdout, told.stderr


def test_a_wheel_names_its_extras_and_what_each_needs_is_here(wheel):
    (name,) = (one for one in zipfile.ZipFile(wheel).namelist() if one.endswith("/METADATA"))
    told = message_from_string(zipfile.ZipFile(wheel).read(name).decode())
    extras = told.get_all("Provides-Extra")
    assert set(extras) == set(PROJECT["optional-dependencies"]) >= {"attention", "book", "data", "test"}
    needs = [Requirement(one) for one in told.get_all("Requires-Dist")]
    assert [one.name for one in needs if not one.marker] == ["torch"]
    for extra in extras:
        asked = [one for one in needs if one.marker and one.marker.evaluate({"extra": extra})]
        assert {(one.name, str(one.specifier)) for one in asked} == {
            (one.name, str(one.specifier)) for one in map(Requirement, PROJECT["optional-dependencies"][extra])}
        for one in asked:
            assert one.extras <= set(extras) if one.name == "repro" else one.specifier.contains(
                distribution(one.name).version.partition("+")[0]), one


def test_its_own_tests_pass_there(alone):
    """Implementations against the softmax written out: some of these tests, all of which are run with the study."""
    chosen = "chunks or fewer or bad_input or choose"
    done = run(alone([*ATTENTION, "pytest", "hypothesis"]), "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "--noconftest", "-k", chosen, "tests/attention/test_implementations.py")
    assert " passed" in done.stdout and not done.returncode, done.stdout[-2000:]
