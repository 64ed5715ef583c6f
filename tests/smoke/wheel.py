"""The wheel, installed into empty environments. `make wheel` runs this file; `make test` does not, as it takes longer.

That attention needs nothing but PyTorch is tested in `tests/attention/test_alone.py`, whose environments are used here.
"""

import importlib.util
import shutil
import sys
import zipfile
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("test_alone", ROOT / "tests/attention/test_alone.py")
alone = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(alone)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """What is built from this repository for `pip install`."""
    pytest.importorskip("setuptools", "77", reason="no setuptools of 77 or newer to build a wheel without a network")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    made = alone.run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
                     "-w", str(folder), str(folder))
    assert not made.returncode, made.stderr
    (found,) = folder.glob("repro-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    """(wanted) -> the python of a new environment with links to these packages, into which pip has put the wheel."""
    def make(wanted):
        python = alone.environment(tmp_path_factory.mktemp("environment"), wanted)
        done = alone.run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps",
                         "--no-index", str(wheel))
        assert not done.returncode, done.stderr
        return python
    return make


def test_a_wheel_installs_into_an_empty_environment(installed, wheel):
    """The code, the published values, the pages' scripts, the command; and it runs."""
    assert wheel.name.split("-")[1] == alone.PROJECT["version"]
    python = installed(alone.ATTENTION)
    told = alone.run(python, "-W", "ignore", "-c", f"{alone.LINES}\nimport repro; print(repro.__file__)")
    read, file = told.stdout.splitlines()
    assert read == "read 400" and Path(file).is_relative_to(python.parents[1]), told.stderr
    inside = {str(path.relative_to(Path(file).parents[1])) for path in Path(file).parent.rglob("*")}
    assert inside >= {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/repro").rglob("*")
                      if path.suffix in (".py", ".js", ".html", ".csv")}
    told = alone.run(python.with_name("repro"), "list")
    assert told.stderr.startswith("repro: error: the commands need the study's packages") and told.returncode


def test_its_command_runs_where_the_study_is_installed(installed):
    python = installed(alone.PROJECT["optional-dependencies"]["study"])
    told = alone.run(python.with_name("repro"), "--help")
    assert not told.returncode and "doctor" in told.stdout, told.stderr


def test_a_wheel_names_its_extras_and_what_each_needs_is_here(wheel):
    (name,) = (one for one in zipfile.ZipFile(wheel).namelist() if one.endswith("/METADATA"))
    told = message_from_string(zipfile.ZipFile(wheel).read(name).decode())
    extras = told.get_all("Provides-Extra")
    assert set(extras) == set(alone.PROJECT["optional-dependencies"]) >= {"attention", "book", "data", "test"}
    needs = [Requirement(one) for one in told.get_all("Requires-Dist")]
    assert [one.name for one in needs if not one.marker] == ["torch"]
    for extra in extras:
        asked = [one for one in needs if one.marker and one.marker.evaluate({"extra": extra})]
        assert {(one.name, str(one.specifier)) for one in asked} == {
            (one.name, str(one.specifier)) for one in map(Requirement, alone.PROJECT["optional-dependencies"][extra])}
        for one in asked:
            assert one.extras <= set(extras) if one.name == "repro" else one.specifier.contains(
                distribution(one.name).version.partition("+")[0]), one


def test_its_own_tests_pass_there(tmp_path):
    """Implementations against the softmax written out: some of these tests, all of which are run with the study."""
    chosen = "chunks or fewer or bad_input or choose"
    python = alone.environment(tmp_path, [*alone.ATTENTION, "pytest", "hypothesis"], ROOT / "src")
    done = alone.run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-k", chosen,
                     "tests/attention/test_implementations.py")
    assert " passed" in done.stdout and not done.returncode, done.stdout[-2000:]
