"""What CONTRIBUTING.md names is there: files, folders, commands, ids, and every name in the source."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FENCED = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
QUOTED = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)))
PATH = re.compile(r"[\w./-]+/[\w./-]*|[\w./-]+\.(py|csv|toml|txt|yml|ipynb)")
PATHS = sorted(name for name in QUOTED if PATH.fullmatch(name))
COMMANDS = sorted(line.split(" #")[0].strip() for line in (*QUOTED, *"".join(
    code for kind, code in FENCED if kind == "bash").splitlines()) if line.startswith(("repro ", "make ")))
NAMES = sorted({word for name in QUOTED - set(PATHS) - set(COMMANDS) for word in re.findall(r"[A-Za-z_]\w+", name)})
SOURCE = "\n".join(path.read_text() for folder in ("src", "book", "notebooks") for path in sorted(
    (ROOT / folder).rglob("*")) if path.suffix in (".py", ".ipynb"))
PLACEHOLDERS = ("NAME", "PAPER", "SPLIT", "NN_name")


def test_files_and_folders_are_there():
    missing = [path for path in PATHS if not any(word in path for word in PLACEHOLDERS)
               and not [*ROOT.glob(path), *ROOT.glob(f"src/repro/study/published/{path}")]]
    assert not missing


def test_names_are_in_the_source():
    words = set(re.findall(r"\w+", SOURCE))
    assert [name for name in NAMES if name not in PLACEHOLDERS and name not in words] == []


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_there_and_what_they_run_or_show(line):
    from repro.cli import main
    from repro.study import artifacts, claims, experiments

    program, command, *words = line.split()
    if program == "make":
        assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert command in [one.name or one.callback.__name__ for one in main.registered_commands] + [
        one.name for one in main.registered_groups]
    known = {"run": [one.name for one in experiments()], "show": [one.id for one in (*artifacts(), *claims())]}
    assert command not in known or words[0] in (*known[command], "…")


def test_python_that_is_shown_calls_what_there_is():
    for code in (code for kind, code in FENCED if kind == "python"):
        for node in ast.walk(ast.parse(code)):
            assert not isinstance(node, ast.Name) or re.search(rf"^def {node.id}\b", SOURCE, re.MULTILINE), node.id


def test_something_is_looked_for():
    assert len(PATHS) > 10
    assert len(NAMES) > 30
    assert {line.split()[1] for line in COMMANDS} >= {"run", "show", "book", "test", "runs"}
