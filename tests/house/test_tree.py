"""What holds for the tree as a whole."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
VENDORED = "book/_extra/"
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|tmp|home|opt|Users)/[\w.-]+")
LOWER = ["attention", "data", "evaluation", "models", "recurrence", "training"]
HIGHER = ("repro.study", "repro.plotting", "repro.cli", "repro.bench")


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines()
            if not name.startswith(VENDORED) and (ROOT / name).is_file()]


def imports(path: Path) -> list[str]:
    """The modules that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    return [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names] + [
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]


def test_no_path_of_a_machine():
    found = {}
    for path in files():
        hit = MACHINE.search(path.read_text(errors="ignore"))
        if hit:
            found[str(path.relative_to(ROOT))] = hit.group()
    assert not found


def test_no_large_file():
    assert not [str(path) for path in files() if path.stat().st_size > 2_000_000]


@pytest.mark.parametrize("room", LOWER)
def test_a_lower_room_never_imports_a_higher_one(room):
    for path in (ROOT / "src/repro" / room).rglob("*.py"):
        assert not [name for name in imports(path) if name.startswith(HIGHER)], path


@pytest.mark.parametrize(("modules", "slow"), [
    ("repro.cli", ("torch", "transformers", "datasets", "pandas", "matplotlib")),
    ("repro.study, repro.data, repro.evaluation, repro.training", ("transformers", "datasets", "gensim", "matplotlib")),
])
def test_what_is_slow_to_import_is_imported_where_it_is_used(modules, slow):
    script = f"import sys, {modules}; print(*sorted(set({slow}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_links_between_pages_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            near = path.parent / target
            chapter = ROOT / f"{target}.ipynb"
            assert near.exists() or near.with_suffix(".md").exists() or chapter.exists(), f"{path.name}: {target}"


def test_mathematics_is_set_without_a_network():
    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
    script = (ROOT / "book/_extra" / config["mathjax_path"].removeprefix("../")).read_text()
    assert '"3.2.2"' in script
    assert config["nb_ipywidgets_js"] == {}
