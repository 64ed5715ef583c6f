"""What `pip install repro[attention]` brings is enough: an environment with that and nothing else."""

import os
import subprocess
import sysconfig
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

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
REFUSED = f"""
import importlib.util, runpy, sys
print("here", *[name for name in {ABSENT} if importlib.util.find_spec(name)])
try:
    from repro.attention import register
except ValueError as error:
    print(type(error).__name__, error)
sys.argv = ["repro", "list"]
runpy.run_module("repro", run_name="__main__")
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


def environment(folder, wanted, source=None):
    """The python of a new environment in `folder` with links to these packages, and to the code in `source`."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in asked_for(wanted).values():
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(package.locate_file(name))
    if source:
        (packages / "repro.pth").write_text(str(source))
    return folder / "bin" / "python"


def run(*command):
    """A finished process that sees no variable of Python."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables)


def test_an_environment_with_attention_alone(tmp_path):
    """One process attends, is refused what needs transformers, and is refused the commands."""
    done = run(environment(tmp_path, ATTENTION, ROOT / "src"), "-W", "ignore", "-c", LINES + REFUSED)
    assert done.stdout.splitlines() == [
        "read 400", "here", "ReproError register adds patterns to transformers models, but transformers is "
        "not installed. Run: pip install 'repro[transformers]'."], done.stderr
    assert done.stderr == ("repro: error: the commands need the study's packages. Run: "
                           "pip install 'repro[study]'.\n") and done.returncode
