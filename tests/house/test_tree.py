"""What holds for the tree as a whole."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import render
import yaml

ROOT = Path(__file__).parents[2]
VENDORED = "book/_extra/"
MACHINE = re.compile(rb"/(?<![\w.]/)(?:work|root|tmp|home|opt|Users)/[\w.-]+")  # found by its first slash: fast


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines()
            if not name.startswith(VENDORED) and (ROOT / name).is_file()]


def test_no_path_of_a_machine():
    found = {}
    for path in files():
        hit = MACHINE.search(path.read_bytes())
        if hit:
            found[str(path.relative_to(ROOT))] = hit.group().decode()
    assert not found


def test_a_path_of_a_machine_is_found_where_a_word_or_a_dot_does_not_end_before_it():
    told = ["in |root|x.py", "=|tmp|a", '"|home|me"', "~|tmp|a", "a|tmp|b", "..|opt|b", "|tmp", "|var|tmp"]
    found = [bool(MACHINE.search(line.replace("|", "/").encode())) for line in told]
    assert found == [True, True, True, True, False, False, False, False]


def test_no_large_file():
    """Except the weights that every clone starts from, which take an hour or more to train: of the base models, and of
    GPT. The largest is bart-mini, with an encoder and a decoder."""
    large = {path for path in files() if path.stat().st_size > 2_000_000}
    bases = {*(ROOT / "results").glob("*/pretrain-*/*/model/model.safetensors")}
    assert large <= bases and all(path.stat().st_size < 20_000_000 for path in bases)


def test_imports_go_one_way():
    """The contracts are in pyproject.toml: floors, papers that do not know each other, no circles, tables that run
    nothing."""
    done = subprocess.run([Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True,
                          text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


WRONG = [  # where, the import, the contract that it breaks, and how the contract names it
    ("data/books.py", "from repro import study", "A lower room never", "repro.data.books -> repro.study "),
    ("windows.py", "from .study import settings", "A lower room never", "repro.windows -> repro.study.settings "),
    ("study/runs.py", "import repro.papers.yoshida2020.perplexity.tables", "A lower room never",
     "repro.study.runs -> repro.papers.yoshida2020.perplexity.tables "),
    ("papers/longformer2020/charlm.py", "from repro.papers import yoshida2020", "No paper imports another",
     "repro.papers.longformer2020.charlm -> repro.papers.yoshida2020 "),
    ("papers/base/gpt2_mini.py", "from repro.papers.yoshida2020 import deviations", "No paper imports another",
     "repro.papers.base.gpt2_mini -> repro.papers.yoshida2020.deviations "),
    ("study/claims.py", "from repro.study import plan", "Showing or judging",
     "  repro.study.claims -> repro.study.plan "),
    ("study/settings.py", "def late():\n    from repro.study import store", "No circles", ".settings -> .store "),
]


def test_wrong_imports_break_their_contracts(tmp_path):
    """Each is named by its contract, in one copy that has all of them."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room, line, _, _ in WRONG:
        with (tmp_path / "src/repro" / room).open("a") as file:
            file.write(f"\n{line}\n")
    done = subprocess.run([Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=tmp_path, text=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": str(tmp_path / "src")})
    assert done.returncode == 1 and "0 kept, 4 broken" in done.stdout
    told = re.split(r"^(.+)\n-+\n", done.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    told = dict(zip(told[1::2], told[2::2], strict=True))
    missed = [name for _, _, contract, name in WRONG
              if not any(title.startswith(contract) and f"- {name}" in text for title, text in told.items())]
    assert not missed, done.stdout


def test_chapters_import_rooms_and_papers_by_their_faces():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        for node in ast.walk(ast.parse(code)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [
                node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not re.match(r"repro\.papers\.\w+\.", name), f"{path.name}: {name}"


@pytest.mark.parametrize(("modules", "slow"), [
    ("repro.cli", ("torch", "transformers", "datasets", "pandas", "matplotlib", "seaborn")),
    ("repro.study, repro.data, repro.evaluation, repro.training", ("transformers", "datasets", "gensim", "matplotlib")),
    ("repro.plotting", ("seaborn",)),
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
    folder, script = config["mathjax_path"].removeprefix("../").split("/")
    assert (ROOT / "book/_extra" / folder / "LICENSE").exists() and render.MATHJAX.name == script
    assert '"3.2.2"' in render.MATHJAX.read_text()
    assert config["nb_ipywidgets_js"] == {}
