"""How executed chapters enter the book: figures with numbers, tables set alike, and a landing page from records."""

import re

import landing
import pandas as pd
import render
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


def read(frame_or_style, **options):
    text = frame_or_style.to_html(**options) if isinstance(frame_or_style, pd.DataFrame) else frame_or_style.to_html()
    return BeautifulSoup(render.set_table(text), "html.parser")


def test_a_table_of_pandas_is_set_like_those_of_the_study():
    frame = pd.DataFrame({"what": ["<x>", "y"], "value": ["1.5 [1.2, 1.8]", "not run"], "n": [3, 14]}, index=["a", "b"])
    found = read(frame)
    assert found.figure["class"] == ["tabular"] and not found.find("style") and "border" not in found.table.attrs
    assert [cell.get("class") for cell in found.thead.find_all("th")] == [None, None, ["number"], ["number"]]
    assert [[cell.name for cell in row.find_all(["th", "td"])] for row in found.tbody.find_all("tr")] == 2 * [
        ["th", "td", "td", "td"]]
    first = found.tbody.tr
    assert [cell.get_text() for cell in first.find_all("td")] == ["<x>", "1.5 [1.2, 1.8]", "3"]
    assert first.th["scope"] == "row" and first.select_one(".interval").get_text() == "[1.2, 1.8]"
    assert found.select_one(".absent").get_text() == "not run"


def test_the_caption_stands_below_and_the_first_column_heads_its_row_without_an_index():
    frame = pd.DataFrame({"name": ["a"], "n": [1_000]})
    found = read(frame.style.hide().format(thousands=",").set_caption("Counts of <b>all</b>"))
    assert found.figcaption.b.get_text() == "all" and not found.caption
    assert [(cell.name, cell.get_text()) for cell in found.tbody.tr.find_all(["th", "td"])] == [
        ("th", "a"), ("td", "1,000")]


def test_cells_that_span_rows_do_not_shift_the_columns_beside_them():
    index = pd.MultiIndex.from_tuples([("corpus", "train"), ("corpus", "test")])
    found = read(pd.DataFrame({"what": ["x", "y"], "words": [12, 3]}, index=index))
    assert found.select_one("tbody th")["scope"] == "rowgroup"
    assert [cell.get_text() for cell in found.select("tbody .number")] == ["12", "3"]
    assert [cell.get_text() for cell in found.select("thead .number")] == ["words"]


def test_a_link_in_a_cell_leads_where_it_led():
    frame = pd.DataFrame({"id": ["a"], "n": [1]})
    found = read(frame.style.hide().format(lambda id: f'<a href="06.html">{id}</a>', subset="id"))
    assert (found.tbody.th.a["href"], found.tbody.th.get_text()) == ("06.html", "a")


def test_what_is_set_already_stays():
    for text in ("<section><table><tr><td>1</td></tr></table></section>", "<p>no table</p>", read(
            pd.DataFrame({"n": [1]})).decode()):
        assert render.set_table(text) == text


def test_drawings_are_numbered_through_the_chapter():
    drawing = '<figure class="drawing"><div class="scroll"><svg></svg></div><figcaption>What.</figcaption></figure>'
    cells = [new_code_cell(outputs=[new_output("display_data", {"text/html": drawing})]) for _ in range(2)]
    chapter = render.set_outputs(new_notebook(cells=[new_markdown_cell("# 16 · Patterns"), *cells]))
    told = [cell.outputs[0].data["text/html"] for cell in chapter.cells[1:]]
    assert [re.findall("<figcaption><span class=.of-figure.>(.*?)</span> What", text) for text in told] == [
        ["Figure 16.1"], ["Figure 16.2"]]


def test_the_landing_page_tells_what_is_here_from_the_records():
    from repro.study import claims, experiments

    text = landing.filled((landing.ROOT / "book/index.md").read_text())
    assert "<!--" not in text
    rows = {name: next(line for line in text.splitlines() if line.startswith(f"| **{name}**, "))
            for name, *_ in landing.PAPERS.values()}
    known = {one.paper for one in experiments()} & set(landing.PAPERS)
    for paper, (name, _, _, first, last) in landing.PAPERS.items():
        here = [n for n in range(first, last + 1) if list((landing.ROOT / "notebooks").glob(f"{n:02d}_*.ipynb"))]
        state = "planned" if not here else "done" if len(here) == last - first + 1 else "in part"
        assert f"| **{state}**: " in rows[name] and bool(here) == (paper in known)
        judged = sum(map(int, re.findall(r"\d+", rows[name].split("|")[-2])))
        assert judged == sum(claim.paper == paper for claim in claims())


def test_a_paper_counts_all_of_its_tables_and_figures_as_all_of_its_claims():
    from repro.study import artifacts

    for paper, (name, *_) in landing.PAPERS.items():
        row = next(line for line in landing.papers().splitlines() if line.startswith(f"| **{name}**, "))
        told = re.search(r"(\d+) tables and figures", row)
        assert int(told[1] if told else 0) == sum(one.paper == paper for one in artifacts())


def test_a_paper_with_a_package_has_its_row_and_its_entry():
    from repro.study.registry import packages

    assert set(packages()) - {"base"} <= set(landing.PAPERS)
    entries = (landing.ROOT / "book/references.bib").read_text()
    assert all(f"{{{key}," in entries for _, key, *_ in landing.PAPERS.values())


def test_every_chapter_of_a_paper_is_named_once():
    covered = [n for *_, first, last in landing.PAPERS.values() for n in range(first, last + 1)]
    assert covered == list(range(3, 22))


def test_numbers_in_words():
    told = [landing.spans(numbers) for numbers in ({4}, {1, 2}, {1, 3, 4, 5, 9})]
    assert told == ["4", "1 to 2", "1, 3 to 5 and 9"]
