"""What holds for every chapter, whoever writes it."""

import ast
import json
import re
from pathlib import Path
from statistics import median

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def code(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def lines(cell: dict) -> list[str]:
    return [line for line in "".join(cell["source"]).splitlines() if line.strip()]


def test_the_table_of_contents_has_every_chapter_and_page_once():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    listed = [entry["file"] for part in toc["parts"] for entry in part["chapters"]] + [toc["root"]]
    pages = [path.stem for path in (ROOT / "book").glob("*.md")]
    assert sorted(listed) == sorted(pages + [f"notebooks/{path.stem}" for path in CHAPTERS])


@each
def test_parameters_come_first_and_each_says_what_it_may_be(path):
    first = code(path)[0]
    assert "parameters" in first["metadata"].get("tags", [])
    source = "".join(first["source"])
    assert source.startswith('scale = "smoke"')
    for node in ast.parse(source).body:
        assert isinstance(node, ast.Assign), f"only names and values: {ast.unparse(node)}"
        assert "#" in source.splitlines()[node.end_lineno - 1], f"no unit or range: {ast.unparse(node)}"


@each
def test_the_title_begins_with_the_number_of_the_file(path):
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    assert first.startswith(f"# {int(path.stem[:2])} · ")


@each
def test_cells_are_short(path):
    lengths = [len(lines(cell)) for cell in code(path)]
    assert max(lengths) <= 15
    assert median(lengths) <= 6


@each
def test_stored_outputs_are_whole_and_plain(path):
    notebook = json.loads(path.read_text())
    assert not {"papermill", "widgets"} & set(notebook["metadata"])
    for cell in code(path):
        assert cell["execution_count"], f"not executed: {lines(cell)[0]}"
        assert "error" not in [output["output_type"] for output in cell["outputs"]]
        assert "injected-parameters" not in cell["metadata"].get("tags", [])


@each
def test_outputs_are_for_readers(path):
    """No name of a class, tuple or bare float, no number with a sign on nothing, no cut text, no picture in pixels."""
    for cell in code(path):
        for output in cell["outputs"]:
            data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            told, where = "".join(output.get("text", "")), lines(cell)[-1]
            assert set(data) != {"text/plain"}, f"a bare value, not told by print or set as a table: {where}"
            assert "image/png" not in data, f"a picture without words: {where}"
            assert not re.search(r"<[\w.]+ at 0x|\.\.\.</t[dh]>", data.get("text/html", told)), where
            assert not re.search(r"[+-]0\.0+ ?%", data.get("text/html", told)), where
