"""The landing page's chart of what recurrence gains, against its records."""

import re
from types import SimpleNamespace

import gain
import pytest
from bs4 import BeautifulSoup

from repro.papers.yoshida2020.perplexity.gain_by_window import gains_by_window
from repro.study import claim
from repro.study.claims import latest


@pytest.fixture(scope="module")
def drawn():
    return BeautifulSoup(gain.chart(), "html.parser")


def test_every_gain_is_a_mark_with_its_interval_and_its_records(drawn):
    found = gains_by_window()
    assert len(drawn.select(".point")) == len(drawn.select(".about > div")) == len(found) > 10
    for mark, one in zip(drawn.select(".point"), found, strict=True):
        about = drawn.select_one(mark["href"])
        links = [link["href"] for link in about.select("a")]
        assert links == [f"results/{record.scale}/{record.experiment}/{record.id}.json"
                         for record in (*one.recurrent, *one.baseline)]
        assert about.code is None or about.code.get_text() == f"{one.command} --results mine"
        top = float(re.search(r"top: ([-\d.]+)%", mark.select_one(".mark")["style"])[1])
        assert gain.TOP - (gain.TOP - gain.BOTTOM) * top / 100 == pytest.approx(-100 * one.change, abs=0.01)
        assert 0 <= top <= 100 and bool(mark.select_one(".bar")) == bool(one.recurrent)


def test_marks_of_a_window_stand_side_by_side_around_its_name(drawn):
    def left(one):
        return float(re.search(r"left: ([\d.]+)%", one["style"])[1])

    names = {name.get_text(): left(name) for name in drawn.select(".windows span")}
    windows = [one.window for one in gains_by_window()]
    assert list(names) == [str(window) for window in sorted(set(windows))]
    for window, middle in names.items():
        own = [left(mark) for mark, at in zip(drawn.select(".point"), windows, strict=True) if str(at) == window]
        assert sum(own) / len(own) == pytest.approx(middle, abs=0.1) and own == sorted(set(own))


def test_without_records_there_is_no_chart(monkeypatch):
    monkeypatch.setattr(gain, "gains_by_window", list)
    assert gain.chart() == ""


@pytest.mark.parametrize(("text", "window", "id"), [
    ("articles", 64, "matched-wikitext-103-second-block"), ("books", 64, "matched-pg19-subset-second-block"),
    ("articles", 300, "table1-gain-disjoint"), ("books", 300, "table2-gain-0")])
def test_a_gain_is_the_effect_that_its_claim_measures(text, window, id):
    one = next(one for one in gains_by_window() if (one.text, one.window, one.scale) == (text, window, "small"))
    found = latest(claim(f"yoshida2020-{id}"))[1]
    assert one.change == pytest.approx(found.effect, abs=1e-9)
    assert found.control <= one.masked + 1e-9 and abs(found.control - one.masked) < 0.002  # the better of two controls
    assert found.low <= one.low < one.change < one.high <= found.high  # a claim's is wider in a family


def test_a_module_is_compared_with_the_baseline_that_was_made_for_it():
    for one in gains_by_window():
        if one.recurrent:
            devices = {record.environment["device"] for record in (*one.recurrent, *one.baseline)}
            assert len(devices) == 1 or one.scale == "small"
            assert {record.config["model"] for record in one.baseline} == {"baseline"}
            assert {record.config["window"] for record in (*one.recurrent, *one.baseline)} == {one.window}


def test_the_papers_gains_are_those_of_its_tables():
    printed = {one.text: one.change for one in gains_by_window() if not one.scale}
    assert printed == {"articles": pytest.approx(claim("yoshida2020-table1-gain-disjoint").expected()),
                       "books": pytest.approx(claim("yoshida2020-table2-gain-0").expected())}


def test_a_finding_appears_only_while_its_claims_have_their_verdicts(monkeypatch):
    from repro.study import paper

    found = SimpleNamespace(verdict="reproduced", effect=-0.0312, control=0.0001, low=-0.05, high=-0.01, room=0.09)
    monkeypatch.setattr(paper, "latest", lambda one: ("small", found))
    monkeypatch.setattr(paper, "claim", lambda id: SimpleNamespace(expected=lambda: -0.048, paper="toy2020"))
    monkeypatch.setattr(paper, "declared", lambda kind: {"toy2020": SimpleNamespace(values=lambda: {"f1": 8.59})})
    told = paper.Finding("By {0.size:.1%} ({0.effect:+.1%}; {0.control:+.1%}), paper {0.paper_size:.0%}.",
                         {"toy": "reproduced"})
    assert told.written() == "By 3.1% (-3.1%; 0.0%), paper 5%."
    assert paper.Finding("F1 {f1:.1f}, room {0.room:.0%}.", told.verdicts).written() == "F1 8.6, room 9%."
    found.verdict = "inconclusive"
    assert told.written() == ""
