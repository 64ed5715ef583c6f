"""The explorer page, driven in a browser: it shows what was measured, and says what it does not find."""

import html
import json
import re
from pathlib import Path

import pytest
from chromium import Chromium, needs_chromium

from repro.plotting import Explorer

FLOPS, PEAK = "FLOPs per scored token", "peak memory of the run, bytes"


def point(line, window, overlap, value, flops, match=""):
    return {"line": line, "settings": {"window, tokens": window, "overlap, tokens": overlap}, "match": match,
            "quality": [value, value - 2, value + 2], "costs": {FLOPS: flops, PEAK: 5e8},
            "command": f"repro run {line}", "records": [f"{line[0]}{window}-{overlap}"],
            "files": [f"../results/{line[0]}{window}-{overlap}.json"]}


def series(id, metric="perplexity, test text", **more):
    return {"id": id, "paper": "Toy et al.", "title": "Toys", "text": "Toys, small", "data": "toy-text", "metric": "m",
            "part_of": "toys </script><b>", "generated": False, "quality": metric, "costs": [FLOPS, PEAK],
            "settings": ["window, tokens", "overlap, tokens"], "printed": []} | more


PRINTED = [{"line": line, "match": match, "quality": [value], "settings": {"window, tokens": 300}, "source": "Table 1",
            "costs": {FLOPS: 1e8}} for line, match, value in (("recurrent", "r0", 9.0), ("baseline", "b0", 10.0))]
SERIES = [
    series("toy/test", printed=PRINTED, points=[
        point("baseline", 300, 0, 20, 1e6, "b0"), point("baseline", 300, 50, 12, 2e6),
        point("baseline", 200, 0, 25, 9e5), point("recurrent", 300, 0, 18, 1.1e6, "r0")]),
    series("toy/bytes", "bits per byte", points=[point("baseline", 300, 0, 2, 1e6)]),
    series("other", paper="Other et al.", text="Toys, full", generated=True, points=[point("dense", 7, 1, 3, 5)]),
]
LOOK = """(() => {
const SHOWN = ".charts > div:not([hidden])";
const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
return {status: texts(".status")[0], key: texts(".key li"), chosen: texts(".chosen tr"),
  dots: [...document.querySelectorAll(SHOWN)].map((one) => one.querySelectorAll(".dot").length),
  rings: [...document.querySelectorAll(SHOWN)].map((one) => one.querySelectorAll(".ring").length),
  snaps: [...document.querySelectorAll(".snap input")].map((one) => [+one.max, +one.value, one.disabled]),
  picked: [...document.querySelectorAll("select")].map((one) => one.value),
  here: decodeURIComponent(document.querySelector(".here").getAttribute("href")),
  wide: document.querySelector(".explorer").scrollWidth}; })()"""
SET = """(([name, value]) => { const control = document.querySelector(name);
    control.value = value;
    for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, {bubbles: true})); })(%s)"""


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """What the page shows at first and after each (control, value) of `moves`."""
    folder = tmp_path_factory.mktemp("explorer")
    with Chromium(folder / "profile") as browser:
        def driven(moves=(), fragment="", explorer=None, style="margin: 0"):
            page = explorer or Explorer(SERIES)
            file = folder / "page.html"
            file.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{page._repr_html_()}')
            browser.open("about:blank")  # or another fragment of the same page would not load it anew
            browser.open(f"{file.as_uri()}{fragment}")
            seen = [browser.evaluate(LOOK)]
            for move in moves:
                browser.evaluate(move if isinstance(move, str) else SET % json.dumps(move))
                seen.append(browser.evaluate(LOOK))
            assert browser.complaints() == []
            return seen
        yield driven


@needs_chromium
def test_it_opens_at_the_best_point_that_the_paper_has_too(drive):
    (page,) = drive()
    assert page["status"] == ("Recurrent, window 300 tokens, overlap 0 tokens. Ours: 18 [16, 20]; the paper: 9 "
                              "(Table 1).")
    assert page["dots"] == [4, 2] and page["rings"] == [1, 1] and page["key"] == ["baseline", "recurrent"]
    assert page["picked"] == ["Toy et al.", "Toys, small", "perplexity, test text", FLOPS, "recurrent"]
    assert page["chosen"] == ["qualityperplexity, test text: 18 [16, 20]", f"{FLOPS}1.1 M", f"{PEAK}500 M",
                              "recordr300-0 ", "made byrepro run recurrent"]


@needs_chromium
def test_sliders_stop_where_something_was_measured(drive):
    first, baseline, narrow, wide = drive([
        ("[name=line]", "baseline"), ('[data-setting="window, tokens"] input', 0),
        ('[data-setting="window, tokens"] input', 1)])
    assert first["snaps"] == [[0, 0, True], [0, 0, True]]  # of the recurrent model there is one point
    assert baseline["snaps"] == [[1, 1, False], [1, 0, False]] and baseline["status"].startswith("Baseline, window 300")
    assert narrow["status"] == ("Baseline, window 200 tokens, overlap 0 tokens. Ours: 25 [23, 27]; the paper prints no "
                                "matching point.") and narrow["rings"] == [1, 0]
    assert wide["status"].startswith("Baseline, window 300 tokens, overlap 0 tokens. Ours: 20")


@needs_chromium
def test_arrow_keys_and_clicks_move_along_the_cost(drive):
    press = """document.querySelector(".ours svg").dispatchEvent(new KeyboardEvent("keydown", {key: "%s"}))"""
    click = """document.querySelectorAll(".ours .dot")[1].dispatchEvent(new MouseEvent("click", {bubbles: true}))"""
    seen = drive([press % "ArrowLeft", press % "ArrowLeft", press % "ArrowLeft", click])
    assert [one["status"].partition(". ")[0] for one in seen] == [
        "Recurrent, window 300 tokens, overlap 0 tokens", "Baseline, window 300 tokens, overlap 0 tokens",
        *2 * ["Baseline, window 200 tokens, overlap 0 tokens"], "Baseline, window 300 tokens, overlap 50 tokens"]


@needs_chromium
def test_another_paper_and_another_quality(drive):
    _, other, back, coded = drive([("[name=paper]", "Other et al."), ("[name=paper]", "Toy et al."),
                                   ("[name=quality]", "bits per byte")])
    assert other["status"].endswith("overlap 1 tokens. Ours: 3 [1, 5]. No paper uses generated text.")
    assert other["dots"] == [1]
    assert other["picked"][1] == "Toys, full" and back["status"].startswith("Recurrent")
    assert coded["status"].startswith("Baseline, window 300 tokens, overlap 0 tokens. Ours: 2")


@needs_chromium
@pytest.mark.parametrize(("fragment", "status"), [
    ("#series=toy%2Ftest&record=b200-0", "Baseline, window 200 tokens, overlap 0 tokens. Ours: 25"),
    ("#series=toy%2Ftest&record=gone", "The record gone no longer exists; the best point is shown. Recurrent"),
    ("#series=lost&record=b200-0", "The series “lost” no longer exists; another one is shown. Baseline, window 200"),
    ("#series=lost&record=gone", "The series “lost” no longer exists; another one is shown. Recurrent"),
    ("#series=toy%2Ftest&against=love", "Nothing is measured against “love” here. Recurrent, window 300"),
    ("#colour=red", "Unknown name “colour” in the address. Recurrent, window 300"),
    ("#pattern=full&n=8", "Recurrent, window 300"),
    ("#series=%E0%A4%A&record=%", "The series “\ufffd%A” no longer exists; another one is shown. Recurrent"),
    ("#what-the-paper-says", "Recurrent, window 300"),
])
def test_the_address_chooses_a_point(drive, fragment, status):
    (page,) = drive(fragment=fragment)
    assert page["status"].startswith(status)
    (again,) = drive(fragment=page["here"].replace("/", "%2F"))
    assert again["chosen"] == page["chosen"]


@needs_chromium
def test_a_narrow_page_holds_everything_and_no_records_are_said(drive):
    (page,) = drive(style="margin: 0; width: 340px")
    assert page["wide"] <= 340
    text = Explorer([])._repr_html_()
    assert "There are no records to show." in text and repr(Explorer([])) == "Explorer of 0 measured points."


def test_without_a_script_there_are_a_picture_and_every_point_in_a_table():
    text = Explorer(SERIES)._repr_html_()
    assert text.count("<tr>") == 6 + 3 and "[23, 27]" in text and 'class="live" hidden' in text
    assert re.search(r"<noscript><svg .*?4 measured points", text, re.DOTALL)
    assert "toys &lt;/script&gt;&lt;b&gt;" in text and text.count("</script>") == 2 and "{{" not in text


def test_the_page_loads_nothing_from_elsewhere_and_every_control_has_a_name():
    text = Explorer(SERIES[:1])._repr_html_()
    drawn = re.sub(r"<svg.*?</svg>|http://www.w3.org/2000/svg", "", text, flags=re.DOTALL)
    assert not re.findall(r"https?:|\bsrc=|@import|<link|url\(", drawn)
    assert text.count("<label>") == len(re.findall("<select", text)) == 5


def test_each_preset_of_the_chapter_is_a_chart_with_records():
    from urllib.parse import parse_qs

    cells = json.loads((Path(__file__).parents[2] / "notebooks/23_explorer.ipynb").read_text())["cells"]
    text = "".join(line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"])
    presets = [parse_qs(html.unescape(address)) for address in re.findall('<a href="#([^"]+)">', text)]
    pages = ["".join(output.get("data", {}).get("text/html", "")) for cell in cells for output in
             cell.get("outputs", [])]
    found, = (json.loads(one) for page in pages for one in re.findall(
        r'<script type="application/json"[^>]*>(\[.*?)</script>', page, re.DOTALL))
    known = {one["id"]: one for one in found}
    assert len(presets) == 3
    for preset in presets:
        assert preset["against"][0] in known[preset["series"][0]]["costs"] and set(preset) == {"series", "against"}
