"""How executed chapters enter the book: figures with numbers, tables set alike, and a landing page from records."""

import csv
import json
import re

import cite
import downloads
import gallery
import landing
import pandas as pd
import pytest
import render
import yaml
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from repro.markup import table as set_table
from repro.study import artifact, registry
from repro.study.paper import Paper, papers


def read(frame_or_style, **options):
    text = frame_or_style.to_html(**options) if isinstance(frame_or_style, pd.DataFrame) else frame_or_style.to_html()
    return BeautifulSoup(render.set_table(text), "html.parser")


@pytest.mark.parametrize(("target", "said"), [
    ("home/html", "lies in or beside book/, where a copy of it is to be built; take another folder"),
    ("link/html", "lies in or beside book/"), ("home/book/_static", "lies in or beside book/"),
    ("home", "lies in or beside book/"), ("other/html", "other/book is there and is no book"),
    ("mine", "mine is there and is no book, so it is not replaced")])
def test_what_is_no_book_of_ours_is_not_replaced(target, said, tmp_path, monkeypatch):
    monkeypatch.setattr(render, "ROOT", tmp_path / "home")
    kept = [tmp_path / name for name in ("home/book/index.md", "home/book/_static/a.css", "other/book/thesis.md",
                                         "mine/letter.txt")]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    with pytest.raises(SystemExit, match=said):
        render.render(tmp_path / target)
    assert all(file.read_text() == "kept" for file in kept)


def test_what_a_kill_left_of_a_book_in_build_is_replaced(tmp_path, monkeypatch):
    left = [tmp_path / "build" / name for name in ("html/index.html", "book/index.md")]
    for file in left:
        file.parent.mkdir(parents=True)
        file.write_text("half")
    monkeypatch.setattr(render, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError):  # there is no source to copy
        render.render(tmp_path / "build/html")
    assert not any(file.exists() for file in left)


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


def test_rows_of_smoke_are_folded_beside_others_and_words_of_verdicts_are_explained():
    frame = pd.DataFrame({"verdict": ["a", "a"], "scale": ["small", "smoke"], "room": ["0.1", "–"]})
    found = read(frame.style.hide())
    assert [row.get("class") for row in found.tbody.find_all("tr")] == [None, ["smoke"]]
    assert found.select(".fold input")
    table = BeautifulSoup(render.explained(set_table(frame)), "html.parser")
    assert table.find("a", string="room")["href"] == "../how-to-read.html#a-claim"
    assert render.explained(other := set_table(frame.drop(columns="verdict"))) == other
    alone = read(frame[1:].style.hide())
    assert not alone.select(".fold") and not alone.select("tr.smoke")


def test_the_caption_stands_below_and_the_first_column_heads_its_row_without_an_index():
    frame = pd.DataFrame({"name": ["a"], "n": [1_000]})
    found = read(frame.style.hide().format(thousands=",").set_caption("Counts of <b>all</b>"))
    assert found.figcaption.b.get_text() == "all" and not found.caption
    assert [(cell.name, cell.get_text()) for cell in found.tbody.tr.find_all(["th", "td"])] == [
        ("th", "a"), ("td", "1,000")]


def test_a_table_that_is_folded_next_to_an_artifact_is_set_and_the_artifact_stays_as_it_is():
    frame = pd.DataFrame({"phase": [1, 2], "steps": [10, 20]})
    artifact = '<figure class="tabular"><table><tr><td>a</td></tr></table><svg viewBox="0 0 1 1"></svg></figure>'
    inside = f'<summary>T</summary>{artifact}{frame.style.hide().set_caption("C")._repr_html_()}'
    text = render.set_table(f'<details class="more">{inside}</details>')
    assert artifact in text and "<style" not in text and text.endswith("</details>")
    first, second = BeautifulSoup(text, "html.parser").select("details > figure.tabular")
    assert [cell.get_text() for cell in second.select('tbody th[scope="row"]')] == ["1", "2"]
    assert second.figcaption.get_text() == "C" and not first.th


def test_a_caption_links_the_records_that_the_book_holds():
    one, other, word = "0" * 16, "a" * 16, "b" * 16
    text = f"<details><summary>records</summary>{one}, {other}</details> {one} <summary>record</summary>{one}"
    link = f'<a href="../r/{one}.json">{one}</a>'
    assert render.linked(text, {one: f"../r/{one}.json", word: "../r/b.json"}) == (
        f"<details><summary>records</summary>{link}, {other}</details> {one} <summary>record</summary>{link}")


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


def test_values_of_drawings_and_tables_of_artifacts_become_files_that_captions_link():
    from repro.markup import figure

    drawn = figure("<svg></svg>", "What.", id="one", values=[{"line": 'a "<b>"', "y": 1.5}])
    frame = pd.DataFrame({"name": ["a"], "small: test": ["1.5 [1, 2]"], "small: validation": ["not run"]})
    other = set_table(frame, "Numbers.", "two")
    cells = [new_code_cell(outputs=[new_output("display_data", {"text/html": text})])
             for text in (figure("<svg></svg>", "How."), drawn, other)]
    files = {}
    chapter = render.set_outputs(new_notebook(cells=[new_markdown_cell("# 16 · Patterns"), *cells]), files=files)
    pages = [cell.outputs[0].data["text/html"] for cell in chapter.cells[1:]]
    assert files == {"figure-16-2.csv": 'line,y\n"a ""<b>""",1.5\n',
                     "table-16-two.csv": 'name,small: test,small: validation\na,"1.5 [1, 2]",not run\n'}
    links = [BeautifulSoup(page, "html.parser").select("figcaption .data a") for page in pages]
    assert [[one["href"] for one in some] for some in links] == [
        [], ["../data/figure-16-2.csv"], ["../data/table-16-two.csv"]]
    assert pages[1].startswith('<figure class="drawing" id="one"><') and "data-csv" not in "".join(pages)


@pytest.fixture(scope="module")
def page():
    """The landing page, as Markdown."""
    return landing.filled((landing.ROOT / "book/index.md").read_text())


def test_the_landing_page_tells_what_is_here_from_the_records(page):
    from repro.study import claims, experiments

    text = page
    assert "<!--" not in text
    known = {one.paper for one in experiments()}
    for paper in papers():
        row = next(line for line in text.splitlines() if line.startswith(f"| **{paper.name}**, "))
        here = [n for n in paper.planned if list((landing.ROOT / "notebooks").glob(f"{n:02d}_*.ipynb"))]
        state = "planned" if not here else "written" if len(here) == len(paper.planned) else "in part"
        assert f"| **{state}**: " in row and paper.id in known
        counted = BeautifulSoup(landing.counts(paper.id), "html.parser").select("a")
        judged = sum(int(re.search(r"\d+", one.get_text())[0]) for one in counted)
        assert judged == sum(claim.paper == paper.id for claim in claims())
        assert all(f"paper={paper.id}&verdict=" in one["href"] for one in counted)


def test_the_lead_counts_every_claim_by_verdict(page):
    from repro.study import claims, tally
    from repro.study.claims import latest

    told = next(line for line in page.splitlines() if line.startswith("So far, "))
    words = re.findall(r"[*][*](\d+)[*][*] (reproduced, smaller|[a-z ]+)", told)
    counted = {verdict.strip(): int(n) for n, verdict in words}
    verdicts = [(one, latest(one)[1]) for one in claims()]
    by_counting = sum(one.unit == "exact" and found.exact and found.verdict == "reproduced" for one, found in verdicts)
    assert f"({by_counting} of them exact counts)" in told
    every = len(claims())
    judged = every - counted["not run"] - counted["open"]
    assert counted == tally(claims()) and f"{judged} of {every} claims are judged, with" in told
    smallest, largest = map(float, re.search(r"models of ([\d.]+) to ([\d.]+) million", told).groups())
    assert smallest < 0.4 < 1.4 <= largest  # a character model of Table 4; the base model


def test_every_paper_has_a_card_with_its_sentence_its_finding_and_the_claims_behind_it(page):
    from repro.study import claim
    from repro.study.claims import latest

    cards = BeautifulSoup(page, "html.parser").select(".outcome")
    assert [card.h3.contents[0].strip() for card in cards] == [paper.name for paper in papers()]
    for card, paper in zip(cards, papers(), strict=True):
        says, found, *_ = (one.get_text() for one in card.select("p"))
        assert says == paper.says and found == f"Here: {paper.finding.written()}" and re.search(r"\d", found)
        rows = card.select("li")
        for row, id in zip(rows, paper.finding.verdicts, strict=True):
            one, (_, verdict) = claim(id), latest(claim(id))
            assert one.paper == paper.id and row.a["href"] == f"notebooks/{one.chapter}.html#{id}"
            assert row.select_one(".visually-hidden").get_text() == f"{verdict.verdict}:"
            assert row.select_one("svg.strip") and row.select("small")[-1].get_text().startswith(verdict.measured)
            assert bool(row.abbr) == bool(one.late)
        read = card.select_one(".go a")["href"]
        assert (landing.ROOT / read).with_suffix(".ipynb").exists() and int(read.split("/")[1][:2]) in paper.planned
        assert card.select_one(".go code").get_text().startswith("repro run ")


def test_the_headline_is_a_sentence_to_repeat_with_numbers_of_its_claims(page):
    from repro.study import claim
    from repro.study.claims import latest

    gemma, short, long, other = (latest(claim(f"yoshida2020-{name}"))[1] for name in (
        "gemma-gain-normalized", "matched-wikitext-103-second-block", "table1-gain-disjoint", "gemma-own-state"))
    told = page[page.index("**A memory"):].split("\n")[0]
    assert f"Gemma 3 270M on books by {-gemma.effect:.1%}; with the memory of another" in told and other.high < 0
    assert f"lowers perplexity by {-short.effect:.1%} on articles" in told and f"no effect ({long.effect:+.1%};" in told
    assert f"by a sixth lowers perplexity by {gemma.room:.1%}" in told
    assert max(gemma.high, short.high) < 0 < long.high and long.low < 0


def test_late_is_explained_before_the_first_mark_that_says_it():
    shown = landing.cards()
    assert 0 < shown.index("Late: we changed") < shown.index(">late</abbr>") < shown.index(landing.LEGEND)


def test_the_papers_sizes_are_those_that_they_print():
    sizes = {paper.id: paper.weights() for paper in papers() if paper.weights}
    assert sizes.items() >= {"yoshida2020": 124, "gpt2_2019": 1542, "sparse2019": 152, "longformer2020": 102}.items()
    rows = [[cell.strip() for cell in line.split("|")] for line in landing.table().splitlines()]
    assert [row[-2] for row in rows[2:]] == ["124 M", "not printed", "not printed", "1,542 M", "152 M",
                                             "102 M"]
    ours = [re.fullmatch(r"([\d.]+) M(, Gemma 3 270M|, MiniLM-L6)*", row[-3]) for row in rows[2:]]
    assert all(float(size[1]) < 20 for size in ours)  # a published model is named, and is no size of ours


@pytest.mark.parametrize(("written", "said"), [
    (range(3, 19), "Chapters 19 to 21 are planned, so the sidebar skips their numbers. "), (range(3, 22), ""),
    ({*range(3, 22)} - {20}, "Chapter 20 is planned, so the sidebar skips its number. ")])
def test_planned_chapters_are_named_while_there_are_any(written, said, monkeypatch):
    monkeypatch.setattr(landing, "chapters", lambda: {*written})
    assert landing.missing() == said


def test_hours_are_the_same_on_all_pages(page):
    from repro.pages import costs

    steps = BeautifulSoup(page, "html.parser").select(".time ol li")
    assert steps[1].get_text().split(" hours")[0].split()[-1] == costs().iloc[0]["hours"]


def test_the_cards_fail_and_succeed_in_the_proportion_of_all_claims():
    from repro.study import claim, claims
    from repro.study.claims import latest

    def successes(some):
        verdicts = [latest(one)[1].verdict for one in some]
        judged = [word for word in verdicts if word not in ("open", "not run")]
        return sum(word.startswith("reproduced") for word in judged) / len(judged)

    chosen = [claim(id) for paper in papers() for id in paper.finding.verdicts]
    assert abs(successes(chosen) - successes(claims())) <= 0.15, "the front page picks its claims"


def test_without_records_the_landing_page_says_so(toy):
    registry.register(Paper(id="toy2020", name="Toy", cite="toy2020", idea="play", part="Toys", chapters=(3, 9)))
    text = landing.filled((landing.ROOT / "book/index.md").read_text())
    assert "No claim has runs yet." in text and "runs still to be made" in text
    assert "<li><b>0</b> records" in text


def test_the_repository_is_known_from_where_it_is_built(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/book")
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    landing.repository.cache_clear()
    try:
        assert landing.repository() == "https://github.com/some/book"
        links = re.findall('<a href="(.*?)">(.*?)</a>', landing.actions())
        assert ("https://github.com/some/book", "Source") in links
        opened = {told: address for address, told in links if told.startswith("at ")}
        assert opened == {
            "at Colab": f"https://colab.research.google.com/github/some/book/blob/{landing.BRANCH}/{landing.FIRST}",
            "at Binder": f"https://mybinder.org/v2/gh/some/book/{landing.BRANCH}?urlpath=lab/tree/{landing.FIRST}"}
        assert (landing.ROOT / landing.FIRST).exists()
        assert landing.site() == "https://some.github.io/book/"
        assert "  url = {https://some.github.io/book/},\n" in cite.citation()
        monkeypatch.setenv("GITHUB_REPOSITORY", "Some/some.github.io")
        landing.repository.cache_clear()
        assert landing.site() == "https://some.github.io/"
    finally:
        landing.repository.cache_clear()


def test_a_public_repository_gives_every_chapter_its_buttons(tmp_path, monkeypatch):
    monkeypatch.setattr(landing, "repository", lambda: "https://github.com/some/book")
    config = yaml.safe_load(render.configured(tmp_path / "_config.yml").read_text())
    assert config["repository"]["url"] == "https://github.com/some/book" and config["html"]["use_repository_button"]
    assert set(config["launch_buttons"]) == {"binderhub_url", "colab_url"}
    assert config["repository"]["branch"] == landing.BRANCH
    assert config["sphinx"]["config"]["html_context"]["site"] == "https://some.github.io/book/"
    for other in ("", "https://gitlab.example/some/book"):
        monkeypatch.setattr(landing, "repository", lambda other=other: other)
        config = yaml.safe_load(render.configured(tmp_path / "_config.yml").read_text())
        assert "launch_buttons" not in config and not config["sphinx"]["config"]["html_context"].get("site")
        assert ("repository" in config) == bool(other)


def test_the_book_says_how_it_is_cited():
    page = cite.filled((landing.ROOT / "book/references.md").read_text())
    known = yaml.safe_load((landing.ROOT / "CITATION.cff").read_text())
    assert "## Cite this book\n" in page and known["message"] in page and cite.PLACE not in page
    assert '<a href="references.html#cite-this-book">Cite</a>' in landing.actions()
    assert cite.entry({"authors": [{"name": "A B"}, {"family-names": "C", "given-names": "D"}], "title": "It: x",
                       "version": "1.2.3", "license": "MIT"}).splitlines()[:4] == [
        "@software{repro,", "  author = {{A B} and C, D},", "  title = {{It: x}},", "  version = {1.2.3},"]
    assert f"title = {{{{{known['title']}}}}}" in page and f"version = {{{known['version']}}}" in page


def test_the_head_of_a_page_tells_its_first_sentences():
    head = '<meta name="description" content="all"><meta property="og:description" content="all">'
    told = "A chapter about windows &amp; <i>what</i> lies in them, " + "word " * 50
    page = render.described(f'{head}<p>before</p><article class="bd-article"><h1>A</h1><p>{told}</p><p>b</p></article>')
    found = re.findall('content="([^"]*)"', page)
    assert found[0] == found[1] and found[0].startswith("A chapter about windows &amp; what lies in them, word word")
    assert found[0].endswith("word …") and 190 < len(found[0]) < 210
    for short in (f'{head}<article class="bd-article"><p>Short.</p></article>', f"{head}<p>{told}</p>"):
        assert render.described(short) == short


def test_what_chapters_show_is_found_again(tmp_path):
    from repro.study import claims

    one, figure = artifact("yoshida2020-table1"), artifact("longformer2020-figure1")
    told = next(other for other in claims() if other.chapter == one.chapter)
    shown = gallery.Gallery(tmp_path / "gallery")
    table = f'<figure><table id="{one.id}"><tr><td>1</td></tr></table></figure>'
    assert shown.visit(one.chapter, table) == table
    assert "id=" not in shown.visit(one.chapter, table)  # the second time: an id is there once
    rows = f'<table><tr id="{told.id}"><th scope="row">{told.sentence}</th><td>open</td></tr></table>'
    assert shown.visit(one.chapter, rows) == rows
    assert "id=" not in shown.visit(one.chapter, rows)
    drawn = f'<figure class="drawing" id="{figure.id}"><svg><text>x</text></svg></figure>'
    assert "id=" not in shown.visit(one.chapter, drawn)  # another chapter's
    assert shown.visit(figure.chapter, drawn) == drawn
    page = shown.finished(f'<a href="{one.chapter}.html#{one.id}"></a><a href="notebooks/99_x.html#{one.id}"></a>'
                          '<a href="../src/repro/markup.py#L3"></a><a href="06_x.html#what"></a>'
                          f'<span class="thumb figure" data-artifact="{figure.id}"></span>')
    assert re.findall('href="([^"]*)"', page) == [f"{one.chapter}.html#{one.id}", "notebooks/99_x.html",
                                                  "../src/repro/markup.py.html#L3", "06_x.html#what"]
    assert f'src="../gallery/{figure.id}.svg"' in page
    assert (tmp_path / f"gallery/{figure.id}.svg").read_text() == "<svg><text>x</text></svg>"


@pytest.mark.parametrize("rest", ["", "<div>records</div>"])
def test_the_caption_of_a_picture_ends_before_the_link_to_its_data(rest, tmp_path):
    import downloads

    shown = gallery.Gallery(tmp_path / "gallery")
    figure = (f'<figure class="drawing"><svg></svg><figcaption><span class="of-figure">Figure 7.2</span> Ours (filled)'
              f'{rest}{downloads.link("figure-7-2.csv")}</figcaption></figure>')
    shown.visit("07_pg19", figure)
    one, = shown.figures
    assert one.caption.startswith("Ours (filled)") and "CSV" not in one.caption and one.number == "Figure 7.2"


def test_a_page_loads_no_script_that_it_does_not_need():
    icons = '<script src="_static/vendor/fontawesome/6/js/all.min.js">\n</script>'
    other = '<script src="a.js"></script>'
    drawn = '<script defer="defer" src="_static/../mathjax/tex-svg.js?v=1"></script>'
    assert render.lighter(f"{icons}{drawn}{other}<p>no formula</p>") == f"{other}<p>no formula</p>"
    formula = '<span class="math notranslate">n</span>'
    assert render.lighter('<html lang="en" data-theme="auto"><b data-theme="auto">').startswith(
        '<html lang="en" data-theme="light"><b data-theme="auto">')
    assert render.lighter(f"{drawn}{icons}{other}{formula}") == f"{drawn}{other}{formula}"


@pytest.mark.parametrize(("files", "needed"), [
    (("mystnb.0a1.css",), '<div class="cell docutils container">'), (("sphinx-design.min.css", "design-tabs.js"),
     '<div class="sd-card">'), (("togglebutton.css", "togglebutton.js"), '<div class="tip admonition dropdown">'),
    (("copybutton.css", "copybutton.js", "clipboard.min.js"), '<div class="highlight-python notranslate">')])
def test_a_page_loads_no_style_sheet_that_it_does_not_need(files, needed):
    head = "".join(f'<link rel="stylesheet" href="_static/{name}?v=1" />' if name.endswith("css") else
                   f'<script data-prefix="sd-tab" src="_static/{name}?v=1"></script>' for name in files)
    kept = '<link rel="stylesheet" href="_static/book.css" /><button class="dropdown-toggle primary-toggle">'
    assert render.lighter(f"{head}{kept}") == kept
    assert render.lighter(f"{head}{kept}{needed}") == f"{head}{kept}{needed}"


def test_every_figure_has_a_card_that_leads_to_it(tmp_path):
    shown = gallery.Gallery(tmp_path / "gallery")
    caption = ('<figcaption><span class="of-figure">Figure {}</span> What it <i>shows</i>, e.g. 2.5. And more.'
               "</figcaption>")
    drawn = '<figure class="drawing"><svg>one</svg>' + caption.format("4.1") + "</figure>"
    words = '<figure class="drawing"><p>two</p>' + caption.format("4.2") + "</figure>"
    other = '<figure class="drawing"><svg>three</svg>' + caption.format("13.10") + "</figure>"
    found = [shown.visit(chapter, text) for chapter, text in (
        ("04_recurrence_module", drawn + words), ("13_factorised_attention", other))]
    assert re.findall('class="drawing" id="([^"]*)"', "".join(found)) == ["figure-4-1", "figure-4-2", "figure-13-10"]
    page = shown.filled(f"before {gallery.PLACE} after", {"04_recurrence_module": "4 · R & D",
                                                          "13_factorised_attention": "13 · F"})
    assert page.startswith("before <section") and page.endswith("</section> after")
    assert re.findall("<h2>(.*?)</h2>", page) == ["4 · R &amp; D", "13 · F"]
    assert re.findall(r'href="([^"]*)".*?<b>(.*?)</b> (.*?)</a>', page) == [
        (f"notebooks/{chapter}.html#{id}", number, "What it shows, e.g. 2.5") for chapter, id, number in (
            ("04_recurrence_module", "figure-4-1", "Figure 4.1"), ("04_recurrence_module", "figure-4-2", "Figure 4.2"),
            ("13_factorised_attention", "figure-13-10", "Figure 13.10"))]
    assert re.findall('src="([^"]*)"', page) == ["gallery/figure-4-1.svg", "gallery/figure-13-10.svg"]
    assert (tmp_path / "gallery/figure-13-10.svg").read_text() == "<svg>three</svg>"


def test_words_texts_and_what_is_moved_by_sliders_have_cards_with_a_picture(tmp_path):
    shown = gallery.Gallery(tmp_path / "gallery")
    words = ('<figure class="drawing"><div class="words"><p>short</p><p>Ann <span class="r3">ran</span> <span '
             'class="b1 name">home</span></p></div><figcaption><span class="of-figure">Figure 8.4</span> Words.'
             "</figcaption></figure>")
    one = artifact("yoshida2020-continuations")
    texts = (f'<figure class="tabular"><table class="texts" id="{one.id}"><tr><td>a</td></tr></table>'
             f"<figcaption>{one.heading}</figcaption></figure>")
    moved = '<section class="planner" aria-label="What fits"><table><tr><th>1</th></tr></table></section>'
    mask = '<section class="playground" aria-label="Who"><svg></svg><svg><path/></svg></section>'
    assert 'id="figure-8-4"' in shown.visit(one.chapter, words)
    assert shown.visit(one.chapter, texts) == texts
    assert "id=" not in shown.visit(one.chapter, texts)  # the second time: an id is there once
    assert "id=" not in shown.visit("06_wikitext103", texts)  # another chapter's
    assert 'class="planner" id="planner" aria-label="What fits"' in shown.visit("09_x", moved + mask)
    cards = BeautifulSoup(shown.filled(gallery.PLACE, {one.chapter: "8", "09_x": "9"}), "html.parser").select("li")
    assert [(card.a["href"], card.a.get_text()) for card in cards] == [
        (f"notebooks/{one.chapter}.html#figure-8-4", "Figure 8.4 Words"),
        (f"notebooks/{one.chapter}.html#{one.id}", one.title), ("notebooks/09_x.html#planner", "What fits"),
        ("notebooks/09_x.html#playground", "Who")]
    assert all(card.select_one(".thumb :is(svg, img)") for card in cards)
    strokes = {path.get("fill", "none"): path["d"] for path in cards[0].select("path")}
    assert len(strokes) == 3 and strokes[gallery.COLOURS["recurrent"]] == "M10 5h7v6h-7z"
    assert (tmp_path / "gallery/playground.svg").read_text() == "<svg><path/></svg>"
    card = f'<span class="thumb table" data-artifact="{one.id}">'
    assert f"{card}<svg" in shown.finished(f"{card}</span>")


def test_a_table_in_small_has_a_bar_for_each_cell():
    drawn = gallery.sketch("<table><tr><th>name</th><th>n</th></tr><tr><th>a</th><td>1.5 <i>[1, 2]</i></td></tr>"
                           "<tr><th>b</th><td>not run</td></tr></table>")
    assert {kind: path.count("M") for kind, path in re.findall('class="([a-z]+)" d="([^"]+)"', drawn)} == {
        "head": 2, "number": 1, "word": 2, "absent": 1}


def test_records_and_verdicts_and_code_lie_beside_the_pages(tmp_path):
    from repro.study import Store, claims

    downloads.write(tmp_path, {"figure-1-1.csv": "a\n1\n"})
    assert (tmp_path / "data/figure-1-1.csv").read_text() == "a\n1\n"
    rows = list(csv.DictReader((tmp_path / "scoreboard.csv").read_text().splitlines()))
    listed = json.loads((tmp_path / "scoreboard.json").read_text())
    assert {row["id"] for row in rows if row["kind"] == "claim"} == {one.id for one in claims()} == {
        one["id"] for one in listed["claims"]}
    (record, *_) = Store.for_scale("small").find("pretrain-gpt2-mini", "small")
    assert json.loads((tmp_path / f"results/small/pretrain-gpt2-mini/{record.id}.json").read_text())["id"] == record.id
    file, line = claims()[0].declared_at
    code = BeautifulSoup((tmp_path / f"{file.relative_to(landing.ROOT)}.html").read_text(), "html.parser")
    assert code.find(id=f"L{line}") and not (tmp_path / "results/small/pretrain-gpt2-mini" / record.id).exists()


def test_the_picture_for_others_has_the_size_that_they_ask_for(tmp_path):
    landing.social(tmp_path / "claims.png")
    data = (tmp_path / "claims.png").read_bytes()
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (1200, 630)


def test_a_paper_counts_all_of_its_tables_and_figures_as_all_of_its_claims():
    from repro.study import artifacts

    for paper in papers():
        row = next(line for line in landing.table().splitlines() if line.startswith(f"| **{paper.name}**, "))
        told = re.search(r"(\d+) tables and figures", row)
        assert int(told[1] if told else 0) == sum(one.paper == paper.id for one in artifacts())


def test_a_paper_has_its_entry_in_the_references():
    entries = (landing.ROOT / "book/references.bib").read_text()
    assert [paper.cite for paper in papers() if f"{{{paper.cite}," not in entries] == []


def test_every_chapter_of_a_paper_is_named_once():
    covered = [n for paper in papers() for n in sorted(paper.planned)]
    assert covered == sorted(set(covered)) and covered[0] == 3


def test_numbers_in_words():
    told = [landing.spans(numbers) for numbers in ({4}, {1, 2}, {1, 3, 4, 5, 9})]
    assert told == ["4", "1 to 2", "1, 3 to 5 and 9"]
