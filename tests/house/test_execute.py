"""Executed chapters as they enter the book."""

import re

import execute
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output


def executed():
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "50%"}
    styled = {"text/html": "<p>", "text/plain": "<pandas.Styler at 0x7f>"}
    return new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}, "papermill": {"duration": 3.5}},
        cells=[new_code_cell('scale = "smoke"  # or small\nwindow = 32', metadata={"tags": ["parameters"]}),
               new_code_cell('scale = "small"', metadata={"tags": ["injected-parameters"]}),
               new_code_cell("1 + 1", execution_count=3, metadata={
                   "papermill": {"duration": 1.5}, "mystnb": {"code_prompt_show": "Show it"}},
                             outputs=[new_output("execute_result", {"text/plain": "2"}, execution_count=3),
                                      new_output("display_data", widget), new_output("display_data", styled)])])


def test_the_parameters_cell_shows_the_scale_that_ran():
    first, last = execute.tidy(executed(), "small").cells
    assert first.source == 'scale = "small"  # or small\nwindow = 32'
    assert first.metadata.tags == ["parameters"]
    assert last.source == "1 + 1"
    assert last.metadata == {"mystnb": {"code_prompt_show": "Show it"}}  # what its fold is called


def test_a_cell_may_stand_before_the_parameters():
    notebook = executed()
    notebook.cells.insert(0, new_code_cell("in_short()", metadata={"tags": ["in-short", "hide-input"]}))
    first, second, last = execute.tidy(notebook, "small").cells
    assert first.metadata.tags == ["in-short", "hide-input"]
    assert second.source.startswith('scale = "small"')
    assert [cell.execution_count for cell in (first, second, last)] == [1, 2, 3]


def test_papermill_sets_the_scale_behind_such_a_cell(tmp_path, monkeypatch):
    """With a real kernel: what runs first does not see the scale that was asked for, what follows does."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    cells = [new_code_cell("print('in short')", metadata={"tags": ["in-short", "hide-input"]}),
             new_code_cell('scale = "smoke"  # or small', metadata={"tags": ["parameters"]}),
             new_code_cell("print(scale)")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), "notebooks/01_toy.ipynb")
    execute.execute("notebooks/01_toy.ipynb", "out.ipynb", "small")
    shown = nbformat.read("out.ipynb", 4).cells
    assert [cell.outputs[0].text if cell.outputs else "" for cell in shown] == ["in short\n", "", "small\n"]
    assert shown[1].source == 'scale = "small"  # or small'


def test_a_page_that_asks_for_an_unknown_artifact_ends_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    cells = [new_code_cell('scale = "smoke"  # or small', metadata={"tags": ["parameters"]}),
             new_code_cell("from repro.study import artifact"),
             new_code_cell('artifact("yoshida2020-tabel1").render(scale)')]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), "notebooks/01_toy.ipynb")
    with pytest.raises(SystemExit) as end:
        execute.execute("notebooks/01_toy.ipynb", "out.ipynb", "smoke")
    assert re.fullmatch(r"notebooks/01_toy.ipynb, cell \[\d\]: unknown artifact 'yoshida2020-tabel1'. Did you mean "
                        r"'yoshida2020-table1'\? .*", end.value.code)
    assert not (tmp_path / "out.ipynb").exists()


def test_what_is_printed_in_pieces_is_one_output():
    def printed(text, name="stdout"):
        return new_output("stream", name=name, text=text)

    shown = new_output("display_data", {"text/plain": "x"})
    given = [printed("a"), printed("\n"), printed("b", "stderr"), printed("c"), shown, printed("d")]
    assert [(one.get("name"), one.get("text")) for one in execute.joined(given)] == [
        ("stdout", "a\n"), ("stderr", "b"), ("stdout", "c"), (None, None), ("stdout", "d")]


def test_times_paths_and_widgets_are_gone_and_outputs_stay():
    notebook = execute.tidy(executed(), "smoke")
    last = notebook.cells[-1]
    assert set(notebook.metadata) == {"kernelspec"}
    assert set(last.metadata) == {"mystnb"}
    assert last.execution_count == last.outputs[0].execution_count == 2
    assert last.outputs[0].data == {"text/plain": "2"}
    assert last.outputs[1].data == {"text/plain": "50%"}
    assert last.outputs[2].data == {"text/html": "<p>"}


def test_what_says_nothing_is_no_output():
    shown = [new_output("display_data", {"text/plain": text}) for text in ("", " \n", "2")]
    notebook = new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
                            cells=[new_code_cell("1", outputs=shown)])
    kept, = execute.tidy(notebook, "smoke").cells[0].outputs
    assert kept.data == {"text/plain": "2"}
