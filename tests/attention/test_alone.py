"""What `pip install repro[attention]` brings is enough: an environment with that and nothing else."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
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
    """(wanted) -> the python of a new environment with links to these packages, and with this repository installed, or
    what was unpacked at `source`."""
    def make(wanted, source=ROOT / "src"):
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        for package in asked_for(wanted).values():
            for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
                if not (packages / name).exists():
                    (packages / name).symlink_to(package.locate_file(name))
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
    done = run(python, "-W", "ignore", "-c", LINES)
    assert done.stdout == "read 400\n", done.stderr
    told = run(python, "-m", "repro", "list")
    assert told.stderr == ("repro: error: the commands need the packages of the study: "
                           "pip install 'repro[study]'.\n") and told.returncode


def test_a_wheel_installs_into_an_empty_environment(alone, tmp_path):
    """What `pip install` takes from a wheel: the code, the published values, the pages' scripts; and it runs."""
    pytest.importorskip("setuptools", "77", reason="no setuptools of 77 or newer to build a wheel without a network")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    made = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
               "-w", str(tmp_path), str(tmp_path))
    assert not made.returncode, made.stderr
    (wheel,) = tmp_path.glob("repro-*.whl")
    assert wheel.name.split("-")[1] == PROJECT["version"]
    shutil.unpack_archive(wheel, tmp_path / "unpacked", "zip")
    inside = {str(path.relative_to(tmp_path / "unpacked")) for path in (tmp_path / "unpacked").rglob("*")}
    kept = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/repro").rglob("*")
            if path.suffix in (".py", ".js", ".html", ".csv")}
    assert kept <= inside
    done = run(alone(ATTENTION, tmp_path / "unpacked"), "-W", "ignore", "-c",
               f"{LINES}\nimport repro; print(repro.__file__)")
    assert done.stdout.splitlines() == ["read 400", str(tmp_path / "unpacked/repro/__init__.py")], done.stderr


def test_its_own_tests_pass_there(alone):
    """Implementations against the softmax written out: some of these tests, all of which are run with the study."""
    chosen = "chunks or fewer or bad_input or choose"
    done = run(alone([*ATTENTION, "pytest", "hypothesis"]), "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "--noconftest", "-k", chosen, "tests/attention/test_implementations.py")
    assert " passed" in done.stdout and not done.returncode, done.stdout[-2000:]
