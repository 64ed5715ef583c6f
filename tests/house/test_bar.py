"""What chapters are measured by: counts by hand, the table in CONTRIBUTING.md as it is now, lessons above the bar."""

import json

import bar
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

LESSONS = [path for path in sorted((bar.ROOT / "notebooks").glob("[0-9]*.ipynb")) if '"in-short"' in path.read_text()]


def shown(html):
    return new_output("display_data", {"text/html": html})


def test_words_are_counted_down_to_the_first_picture():
    cells = [new_markdown_cell("# 4 · Two *words*\n\n- and `three` more"),
             new_code_cell("not = 'read'", outputs=[new_output("stream", text="printed: 7"),
                                                    shown("<style>p { color: red }</style><p>one two</p>"),
                                                    shown("<details>folded away</details>")])]
    assert bar.words_before(cells) == 3 + 3 + 2 + 2
    after = [new_code_cell(outputs=[shown('before <figure class="drawing"><svg>no</svg></figure> no')]),
             new_markdown_cell("nobody reads this")]
    assert bar.words_before(cells + after) == 11


def test_lines_and_reprs_are_counted(tmp_path):
    value = new_output("execute_result", {"text/plain": "3"}, execution_count=1)
    address = new_output("stream", text="<function f at 0x7f>")
    cells = [new_code_cell("a = 1\n\nlonger = 2", outputs=[value]), new_code_cell("b", outputs=[address]),
             new_code_cell("c", outputs=[shown("<p>3</p>"), new_output("stream", text="3")])]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    found = bar.measured(tmp_path / "a.ipynb")
    assert found == {"words before the first picture": 1 + 0 + 2, "characters per line of code": 4, "longest line": 10,
                     "cells that show a repr": 2}


def test_the_table_is_as_the_chapters_are():
    page = bar.PAGE.read_text()
    assert bar.written(page) == page, "the chapters have changed: run `python book/bar.py`"


def test_a_row_gives_what_is_measured():
    found = bar.measured(bar.ROOT / "notebooks/04_recurrence_module.ipynb")
    assert "| 04_recurrence_module | {} | {} | {} | {} |".format(*found.values()) in bar.table().splitlines()
    assert f"at most {bar.BAR} words" in bar.PAGE.read_text()


@pytest.mark.parametrize("file", LESSONS, ids=lambda file: file.stem)
def test_a_lesson_is_above_the_bar(file):
    found = bar.measured(file)
    assert found["words before the first picture"] <= bar.BAR
    assert found["longest line"] <= 80 and found["cells that show a repr"] == 0
