"""Chapters that ran for the book, compared with their stored outputs: as nbval does it, without running them again."""

import copy
import types
from pathlib import Path

import compare
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbval import plugin

ROOT = Path(__file__).parents[2]
SANITIZE = compare.patterns(compare.SANITIZE.read_text())
TAG = {"tags": ["nbval-check-output"]}


def text(value, kind="text/plain"):
    return new_output("display_data", {kind: value})


def printed(value, name="stdout"):
    return new_output("stream", name=name, text=value)


OUTPUTS = [
    [], [text("2")], [text("3")], [text("2"), text("3")], [text("3"), text("2")], [text("2", "text/html")],
    [new_output("execute_result", {"text/plain": "2"}, execution_count=7)],
    [new_output("display_data", {"text/plain": "2", "image/png": "iVBO"})],
    [new_output("display_data", {"application/json": {"a": 1}})],
    [new_output("display_data", {"application/json": {"a": 2}})],
    [printed("took 3 s")], [printed("took 14.5 s")], [printed("took 3 steps")], [printed("took 3 s", "stderr")],
    [printed("a"), text("2"), printed("b")], [printed("ab"), text("2")], [printed("20%\nend")],
    [printed("10%\r20%\nend")], [text("at 0x7f00")], [text("at 0xab")],
    [new_output("error", ename="E", evalue="no", traceback=["x"])],
]


def by_nbval(executed, stored):
    """Whether nbval takes two lists of outputs for equal."""
    skipped = ("metadata", "traceback", "prompt_number", "output_type", "name", "execution_count",
               "application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg")  # nbval makes it in a collector
    parent = types.SimpleNamespace(skip_compare=skipped, sanitize_patterns=dict(
        plugin.get_sanitize_patterns(compare.SANITIZE.read_text())))
    cell = types.SimpleNamespace(parent=parent, colors=plugin.nocolors, format_output_compare=lambda *values: None)
    cell.sanitize = lambda value: plugin.IPyNbCell.sanitize(cell, value)
    executed, stored = (plugin.coalesce_streams(copy.deepcopy(outputs)) for outputs in (executed, stored))
    return plugin.IPyNbCell.compare_outputs(cell, executed, stored)


def test_outputs_are_equal_where_nbval_finds_them_equal():
    told = {(i, j): compare.fields(a, SANITIZE) == compare.fields(b, SANITIZE)
            for i, a in enumerate(OUTPUTS) for j, b in enumerate(OUTPUTS)}
    nbval = {(i, j): by_nbval(a, b) for i, a in enumerate(OUTPUTS) for j, b in enumerate(OUTPUTS)}
    assert told == nbval
    assert len(OUTPUTS) < sum(told.values()) < len(told) / 4  # some pairs are equal without being the same


def test_the_cells_that_nbval_checks_are_checked():
    sources = ["1", "# NBVAL_CHECK_OUTPUT\n1", "  ## NBVAL_CHECK_OUTPUT", "1  # NBVAL_CHECK_OUTPUT", "# NBVAL_CHECK"]
    for source in sources:
        assert compare.checked(new_code_cell(source)) == (("check", True) in plugin.find_comment_markers(source))
    for tags in (["nbval-check-output"], ["hide-input"], []):
        cell = new_code_cell("1", metadata={"tags": tags})
        assert compare.checked(cell) == (("check", True) in plugin.find_metadata_tags(cell.metadata))
    assert not compare.checked(new_markdown_cell("# NBVAL_CHECK_OUTPUT"))


@pytest.fixture
def chapters(tmp_path):
    """Write a chapter of three cells, two of them checked: as stored, and as executed with other outputs."""
    def make(*outputs, source="x"):
        cells = [new_markdown_cell("A title"), new_code_cell("free", outputs=[text("1")]),
                 *(new_code_cell(source, metadata=TAG, outputs=[given]) for given in outputs)]
        return new_notebook(cells=cells)

    (tmp_path / "notebooks").mkdir()
    nbformat.write(make(text("2"), printed("3 s")), tmp_path / "notebooks" / "01_toy.ipynb")

    def main(*outputs, free="1", **changes):
        executed = make(*outputs, **changes)
        executed.cells[1].outputs[0].data["text/plain"] = free
        nbformat.write(executed, tmp_path / "01_toy.ipynb")
        compare.main([str(tmp_path / "01_toy.ipynb")], tmp_path / "notebooks")
    return main


def test_equal_chapters_pass_and_are_counted(chapters, capsys):
    chapters(text("2"), printed("4.5 s"), free="random")
    assert capsys.readouterr().out == "1 chapters, 2 outputs compared: equal to the stored ones\n"


def test_an_output_that_changed_fails_with_its_place(chapters):
    with pytest.raises(SystemExit, match=r"^01_toy: cell 2: text/plain is \['9'\]; stored is \['2'\]\n1 outputs"):
        chapters(text("9"), printed("4 s"))
    with pytest.raises(SystemExit, match=r"^01_toy: cell 3: stdout is None; stored is \['TIME'\]\n1 outputs"):
        chapters(text("2"), new_output("display_data", {"image/png": "iVBO"}))


def test_a_chapter_of_other_cells_than_were_executed_fails(chapters):
    with pytest.raises(SystemExit, match="^01_toy: its cells are not those that were executed"):
        chapters(text("2"), printed("3 s"), source="y")


def test_any_checked_output_that_changes_is_found_in_every_chapter():
    total = 0
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        stored, executed = nbformat.read(path, 4), nbformat.read(path, 4)
        cells = [cell for cell in executed.cells if compare.checked(cell)]
        assert compare.differences(executed, stored, SANITIZE) == []
        for cell in cells:
            cell.outputs.append(printed("changed"))
        assert len(compare.differences(executed, stored, SANITIZE)) == len(cells), path.stem
        total += len(cells)
    assert total > 60


def test_make_check_compares_every_chapter_after_the_book():
    run = (ROOT / ".ci" / "run").read_text()
    assert run.index("\nmake book\n") < run.index("\nmake check\n")
