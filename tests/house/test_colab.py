"""The set-up cell of the chapters at Colab, run on a machine that looks like one, and what Binder installs, as far as
that goes offline."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import colab
import nbformat
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PIP = """import json, os, sys
with open(os.environ["CALLED"], "a") as file:
    file.write(json.dumps([os.getcwd(), *sys.argv[1:]]) + "\\n")
"""
HERE = """
import json, os, sys
import repro, repro.paths
print(json.dumps([os.getcwd(), repro.__file__, str(repro.paths.home())]))
"""


@pytest.fixture
def machine(tmp_path):
    """Runs code as a fresh kernel: a google.colab that is imported, a pip that notes what it is asked for."""
    (tmp_path / "fake/google/colab").mkdir(parents=True)
    (tmp_path / "fake/google/colab/__init__.py").touch()
    (tmp_path / "fake/pip").mkdir()
    (tmp_path / "fake/pip/__init__.py").touch()
    (tmp_path / "fake/pip/__main__.py").write_text(PIP)
    called = tmp_path / "called"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REPRO")}

    def run(code, imported=True):
        done = subprocess.run([sys.executable, "-c", "import google.colab\n" * imported + code], cwd=tmp_path,
                              env=environment | {"PYTHONPATH": str(tmp_path / "fake"), "CALLED": str(called)},
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout, [json.loads(line) for line in called.read_text().splitlines()] if called.exists() else []
    return run


@pytest.fixture
def cloned(tmp_path):
    """A small repository, and where it is to be cloned to."""
    there, home = tmp_path / "there", tmp_path / "content/repro"
    (there / "notebooks").mkdir(parents=True)
    (there / "notebooks/a.ipynb").touch()
    (there / "src").mkdir()
    (there / "src/repro").symlink_to(ROOT / "src/repro")
    git = ["git", "-C", there, "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    home.parent.mkdir()
    return there.as_uri(), home


def test_a_fresh_machine_is_set_up_once(machine, cloned):
    address, home = cloned
    cell = colab.CELL.format(address=address, home=home)
    told, called = machine(cell + HERE)
    assert json.loads(told) == [f"{home}/notebooks", f"{home}/src/repro/__init__.py", str(home)]
    assert called == [[str(home), "install", "-q", "-c", "constraints.txt", "-e", ".[study,webtext,bench]"]]
    again, called = machine(cell + HERE)
    assert again == told and len(called) == 1


def test_elsewhere_it_does_nothing(machine, cloned):
    address, home = cloned
    machine(colab.CELL.format(address=address, home=home), imported=False)
    assert not home.exists()


def test_what_it_installs_is_declared():
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = colab.CELL.partition('".[')[2].partition("]")[0].split(",")
    assert set(asked) <= set(declared) and (ROOT / "constraints.txt").exists()


def test_binder_installs_what_colab_does_for_processors_and_in_the_pinned_versions():
    """By repo2docker's rules: from the folder `.binder` alone where there is one, in the root of the repository."""
    import tomllib

    lines = [line for line in (ROOT / ".binder/requirements.txt").read_text().splitlines() if not line.startswith("#")]
    told = dict(line.partition(" ")[::2] for line in lines)
    assert told.pop("--extra-index-url") == "https://download.pytorch.org/whl/cpu"
    assert (ROOT / ".binder" / told.pop("-c")).resolve() == ROOT / "constraints.txt"  # from where the file lies
    assert told.pop("-e") == f".[{colab.CELL.partition('.[')[2].partition(']')[0]}]"  # from where pip is called
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert set(told) == {"ipykernel", "ipywidgets"} <= pinned  # what a kernel and the bars of chapters need
    python = (ROOT / ".binder/runtime.txt").read_text().strip()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert Requirement(f"python{project['requires-python']}").specifier.contains(python.removeprefix("python-") + ".0")


def test_what_binder_installs_is_all_here():
    """pip finds nothing to fetch for it: every requirement is installed, in a version that the constraints allow."""
    pytest.importorskip("setuptools", "77", reason="no setuptools of 77 or newer to read the project without a network")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation",
                           "-r", ".binder/requirements.txt"], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    found = re.search("Would install (.*)", done.stdout)
    assert not found or found[1].startswith("repro-") and " " not in found[1]


def test_every_chapter_has_the_cell_behind_its_title_and_is_else_the_same(tmp_path):
    colab.write(tmp_path, "https://github.com/some/book")
    files = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in files]
    for file in files:
        own, made = (nbformat.read(path, as_version=4).cells for path in (file, tmp_path / file.name))
        first = made.pop(1)
        assert made == own and own[0].cell_type == "markdown"
        assert "https://github.com/some/book" in first.source and max(map(len, first.source.splitlines())) <= 80
