"""The scoreboard: what it says without a script, and what its filters do in a browser."""

import re
from math import log
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from chromium import Chromium, needs_chromium

from repro.pages import Scoreboard
from repro.pages.board import _declared, place_of, row, strip
from repro.study import Artifact, Assay, Claim, Measured, Verdict, claim, register, run

DECLARED = {"paper": "toy2020", "experiment": "toy-recurrence", "direction": "lower", "unit": "book", "relative": True,
            "same_weights": True, "why_no_assay": "a toy", "control": "masked", "unit_shown": "in perplexity",
            "paper_effect": lambda: log(0.9)}


def measure(records):
    by_model = {record.model: record.metrics["test_word_perplexity"] for record in records}
    effect = log(by_model["recurrent"] / by_model["baseline"])
    return Measured([[effect - 0.01, effect + 0.01, effect]], [[0.0, 0.001, 0.0]])


@pytest.fixture
def board(toy, tmp_path):
    """A claim that was judged at `small`, one that was not run, and one of another paper; two tables."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/06_toy.ipynb").touch()
    register(Claim(id="toy-gain", sentence="Recurrence lowers <it>.", source="Table 1", **DECLARED, measure=measure,
                   where=lambda config: config.overlap == 5, about=("toy-table1",)),
             Claim(id="toy-free", sentence="It is free.", source="Table 2", **DECLARED, measure=measure,
                   where=lambda config: config.overlap == 0),
             Claim(**DECLARED | {"id": "other", "sentence": "Another.", "source": "Table 3", "paper": "other2021",
                                 "assay": Assay("more text", lambda config: True, lambda records: 0.2),
                                 "why_no_assay": ""}, measure=measure, about=("toy-table2",)),
             Artifact("toy-table1", "toy2020", "Gains", "06_toy", "toy-recurrence", lambda context: None, "Table 1"),
             Artifact("toy-table2", "other2021", "More", "07_toy", "toy-recurrence", lambda context: None, "Table 2"))
    for config in toy.experiment.plan("small"):
        if config.overlap == 5:
            run(config, progress=False)
    return BeautifulSoup(Scoreboard()._repr_html_(), "html.parser")


def test_every_claim_is_there_with_its_verdict_and_its_evidence(board):
    rows = {one["id"]: one for one in board.select(".claim")}
    told = {id: (one["data-paper"], one["data-verdict"], one["data-scale"]) for id, one in rows.items()}
    assert told == {"toy-gain": ("toy2020", "reproduced", "small"), "toy-free": ("toy2020", "not run", ""),
                    "other": ("other2021", "not run", "")}
    gain = rows["toy-gain"]
    assert gain.select_one(".sentence").get_text().startswith("Recurrence lowers <it>. Table 1, small")
    assert gain.select_one("summary .effect small").get_text() == claim("toy-gain").verdict("small").text.split("; ")[0]
    facts = {name.get_text(): text for name, text in zip(gain.select("dt"), gain.select("dd"), strict=True)}
    assert facts["control"].get_text() == "masked" and facts["assay"].get_text() == "a toy"
    assert facts["the paper's effect"].get_text() == "-10.00%" and "test_board.py:" in facts["declared in"].get_text()
    assert [link["href"] for link in facts["in the book"].select("a")] == ["06_toy.html#toy-gain",
                                                                          "06_toy.html#toy-table1"]
    records = gain.select("details li")
    assert len(records) == 2 and all(re.fullmatch(
        r"\.\./results/small/toy-recurrence/[0-9a-f]{16}\.json", one.a["href"]) for one in records)
    assert {one.code.get_text() for one in records} == {
        f"repro run toy-recurrence --scale small --set model={model} --set overlap=5"
        for model in ("baseline", "recurrent")}


def test_rows_are_in_blocks_that_are_laid_out_one_by_one(monkeypatch, board):
    assert [len(part.select(".claim")) for part in board.select(".rows")] == [2, 1]
    monkeypatch.setattr("repro.pages.board.ROWS", 1)
    parts = BeautifulSoup(Scoreboard()._repr_html_(), "html.parser").select(".rows")
    assert [[one["id"] for one in part.select(".claim")] for part in parts] == [["toy-gain"], ["toy-free"], ["other"]]


def test_a_claim_with_a_short_sentence_has_the_full_one_in_its_details():
    one = SimpleNamespace(brief="It helps & more.", source="Table 1", direction="lower", expected=lambda: None,
                          late="")
    missing = Verdict("not run", because=("2 runs",), commands=("x",))
    assert "It helps &amp; more. <small>Table 1</small>" in row(one, "small", missing)
    facts = _declared(Claim(**DECLARED | {"id": "long", "sentence": "It <helps>.", "short": "It.", "source": "Table 1"},
                            measure=measure))
    assert facts["in full"] == "It &lt;helps&gt;."


def test_scales_at_which_nothing_was_run_are_not_shown_and_a_claim_without_records_says_what_would_run_it(board):
    gain, free = (board.select_one(f"#toy-{name}") for name in ("gain", "free"))
    assert [cell.get_text() for cell in gain.select("tbody th")] == ["small"]
    assert not free.table and "repro run toy-recurrence --scale small" in free.get_text() and not free.select("svg")


def test_papers_with_judged_claims_come_first_and_tables_lead_to_their_place(board):
    assert [one.get_text() for one in board.select(".paper h3")] == ["toy2020", "other2021"]
    one, other = board.select(".gallery li")
    assert one.a["href"] == "06_toy.html#toy-table1" and one.select_one(".thumb")["data-artifact"] == "toy-table1"
    assert one["data-verdict"] == "reproduced" and not other.a and other["data-verdict"] == "not run"
    assert one.select_one(".verdict").get_text() == "✓ 1 reproduced"


def test_the_card_of_a_table_counts_the_verdicts_of_all_its_claims(toy):
    for k, effects in enumerate(([-0.1, -0.11, -0.1], [-0.1, -0.12, -0.1], [0.1, 0.11, 0.1])):
        register(Claim(**DECLARED | {"id": f"toy-{k}", "sentence": f"It helps {k}.", "source": "Table 1",
                                     "about": ("toy-table1",), "control": "", "why_no_control": "a toy",
                                     "measure": lambda records, effects=effects: Measured([effects])}))
    register(*(Artifact(id, "toy2020", "Gains", "06_toy", "toy-recurrence", lambda context: None, "Table 1")
               for id in ("toy-table1", "toy-table2")))
    for config in toy.experiment.plan("small"):
        run(config, progress=False)
    some, none = BeautifulSoup(Scoreboard()._repr_html_(), "html.parser").select(".gallery li")
    assert [mark.get_text() for mark in some.select(".verdict")] == ["✓ 2 reproduced", "✗ 1 not reproduced"]
    assert some["data-verdict"] == "reproduced|not reproduced" and some["data-scale"] == "small"
    assert not none.select(".verdict") and none["data-verdict"] == ""


def test_what_cannot_be_filtered_without_a_script_is_not_offered(board):
    assert board.form.has_attr("hidden") and len(board.select("details.claim:not([hidden])")) == 3
    assert {one["name"]: [option["value"] for option in one.select("option")] for one in board.select("select")} == {
        "paper": ["", "toy2020", "other2021"], "verdict": ["", "reproduced", "not run"], "scale": ["", "small"]}


def test_a_strip_puts_the_claimed_side_to_the_right():
    one = SimpleNamespace(direction="lower", expected=lambda: -0.4)
    drawn = strip(one, Verdict("reproduced", effect=-0.2, low=-0.3, high=-0.1, detectable=0.05))
    assert 'd="M75 0H25"' in drawn and '<g transform="translate(50)">' in drawn  # -0.3 to -0.1 of -0.4
    assert 'class="paper" transform="translate(100)"' in drawn and 'class="band" d="M-12-8h24' in drawn
    higher = SimpleNamespace(direction="higher", expected=lambda: None)
    drawn = strip(higher, Verdict("not reproduced", effect=0.9, low=0.8, high=1.0, detectable=99, null=1.0))
    assert '<g transform="translate(-50)">' in drawn and "paper" not in drawn and 'd="M-106-8h212' in drawn
    assert strip(one, Verdict("not run")) == ""


def test_what_has_no_chapter_yet_leads_nowhere(board):
    assert place_of(claim("toy-gain")) == "06_toy.html#toy-gain"
    assert place_of(claim("other")) == place_of(claim("toy-free")) == ""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


LOOK = """({shown: [...document.querySelectorAll(".claim")].filter((one) => !one.hidden).map((one) => one.id),
    told: document.querySelector("output").value,
    open: [...document.querySelectorAll(".claim[open]")].map((one) => one.id),
    hash: location.hash})"""


@needs_chromium
@pytest.mark.parametrize(("fragment", "shown", "told"), [
    ("", 3, "3 of 3 claims, 2 of 2 tables and figures."),
    ("#paper=toy2020", 2, "2 of 3 claims, 1 of 2 tables and figures."),
    ("#verdict=not+run", 2, "2 of 3 claims, 1 of 2 tables and figures."),
    ("#verdict=reproduced&scale=small", 1, "1 of 3 claims, 1 of 2 tables and figures."),
    ("#verdict=maybe&colour=red", 3, "Unknown verdict “maybe”. Unknown filter “colour”. 3 of 3 claims, 2 of 2"),
    ("#gone", 3, "Nothing on this page is called “gone” any more. 3 of 3 claims"),
    ("#%E0%A4%A", 3, "Nothing on this page is called “%E0%A4%A” any more. 3 of 3 claims"),
    ("#%25E0", 3, "Nothing on this page is called “%E0” any more. 3 of 3 claims"),
    ("#verdict=50%25%26", 3, "Unknown verdict “50%&”. 3 of 3 claims"),
])
def test_the_address_asks_for_some(board, browser, tmp_path, fragment, shown, told):
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{board}")
    browser.open("about:blank")
    browser.open((tmp_path / "page.html").as_uri() + fragment)
    seen = browser.evaluate(LOOK)
    assert len(seen["shown"]) == shown and seen["told"].startswith(told) and browser.complaints() == []


@needs_chromium
def test_a_link_to_a_claim_opens_it_and_filters_stay_in_the_address(board, browser, tmp_path):
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{board}")
    browser.open("about:blank")
    browser.open((tmp_path / "page.html").as_uri() + "#toy-free")
    assert browser.evaluate(LOOK)["open"] == ["toy-free"]
    browser.evaluate("""document.querySelector("[name=verdict]").value = "not run";
        document.querySelector("form").dispatchEvent(new Event("change"))""")
    seen = browser.evaluate(LOOK)
    assert seen["shown"] == ["toy-free", "other"] and seen["hash"] == "#verdict=not+run"
    browser.evaluate("document.querySelector('form').reset(); new Promise((done) => setTimeout(done, 0))")
    seen = browser.evaluate(LOOK)
    assert len(seen["shown"]) == 3 and seen["hash"] == ""


def test_a_strip_shows_the_control_and_a_row_says_why_a_claim_is_not_testable():
    one = SimpleNamespace(direction="lower", expected=lambda: None, brief="It helps.", source="Table 1", late="")
    found = Verdict("not reproduced", effect=-0.2, low=-0.3, high=-0.1, control=-0.4,
                    because=("no more than its control", "without the mechanism {control}"))
    assert '<path class="control" d="M100-8v16"/>' in strip(one, found)  # the control is twice the effect
    assert '<g transform="translate(50)">' in strip(one, found) and "control" not in strip(one, Verdict(
        "not reproduced", effect=-0.2, low=-0.3, high=-0.1))
    assert "<small>Table 1, small; no more than its control</small>" in row(one, "small", found)
    noisy = Verdict("not testable here", effect=-0.2, low=-0.9, high=0.5, reason="too noisy")
    assert "<small>Table 1, small; too noisy</small>" in row(one, "small", noisy)


def test_the_sides_of_the_strips_are_named_before_the_rows_of_each_paper(board):
    for paper in board.select("section.paper"):
        names = paper.select_one(".sides")
        assert names.get_text() == "← against the claim | as claimed →" and names.find_next(class_="claim")


@needs_chromium
@pytest.mark.parametrize(("fragment", "unfolded"), [("", 0), ("#paper=toy2020", 2), ("#toy-free", 1)])
def test_on_a_phone_papers_are_folded_until_one_is_asked_for(board, browser, tmp_path, fragment, unfolded):
    (tmp_path / "page.html").write_text("<!doctype html><meta charset=utf-8>"
                                         f"<meta name=viewport content='width=device-width'>{board}")
    for width, expected in ((390, unfolded), (1400, 2)):
        browser.size(width)
        browser.open("about:blank")
        browser.open((tmp_path / "page.html").as_uri() + fragment)
        assert browser.evaluate("document.querySelectorAll('.paper > details[open]').length") == expected
    assert browser.complaints() == []
