"""Web text: every planted case is left out at its step, and nothing else is."""

import sys
from dataclasses import replace

import pytest

from repro.data import Page, webtext
from repro.data.planted_pages import AROUND, CASES, pages, paragraphs
from repro.data.web import STEPS, is_wikipedia, text
from repro.errors import ReproError


def page(index=0, **changes):
    body = "".join(f"<p>{one}</p>" for one in paragraphs(index))
    html = f"<html><body><article>{body}</article></body></html>"
    return replace(Page(f"https://a.example/{index}", 3, "2017-12-31", html), **changes)


def test_planted_cases_are_left_out_at_their_step():
    made = pages(n=12, planted=4, seed=1)
    case = {one.url: name for one, name in made}
    found = webtext(one for one, _ in made)
    assert [document.id for document in found.documents] == [one.url for one, name in made if not name]
    assert {url: step for url, step in found.dropped} == {url: name for url, name in case.items() if name}
    assert found.counts == {"links": 32, "karma": 28, "date": 24, "text": 20, "Wikipedia": 16, "duplicate": 12}
    assert set(CASES) == set(STEPS)
    for document in found.documents:
        assert not any(around in document.text for around in AROUND)
        index = int(document.id.removeprefix("https://site").split(".")[0])
        assert document.text.split() == " ".join(paragraphs(index)).split()


def test_pages_are_the_same_every_time_and_others_by_seed():
    assert pages(3, 1, seed=2) == pages(3, 1, seed=2) != pages(3, 1, seed=3)


@pytest.mark.parametrize(("changes", "step"), [
    ({}, None), ({"karma": 2}, "karma"), ({"day": "2018-01-01"}, "date"), ({"html": ""}, "text"),
    ({"html": "  "}, "text"), ({"html": "<html><body><p>Too little.</p></body></html>"}, "text"),
    ({"url": "https://en.wikipedia.org/wiki/X"}, "Wikipedia"),
    ({"karma": 1, "html": "", "day": "2018-01-01"}, "karma")])
def test_where_each_step_begins(changes, step):
    found = webtext([page(**changes)])
    assert [told for _, told in found.dropped] == [step] * bool(step)
    assert len(found.documents) == (step is None)


def test_limits_can_be_moved():
    shared = [page(k, karma=k, day=f"2017-0{k}-01") for k in range(1, 6)]
    assert [one.id[-1] for one in webtext(shared, karma=2).documents] == list("2345")
    between = webtext(shared, karma=-9, first="2017-02-01", last="2017-04-01")
    assert [one.id[-1] for one in between.documents] == list("234")
    assert len(webtext(shared, karma=-9, last=None).documents) == 5


@pytest.mark.parametrize(("url", "is_one"), [
    ("https://en.wikipedia.org/wiki/X", True), ("http://de.m.wikipedia.org", True), ("HTTPS://WIKIPEDIA.ORG/a", True),
    ("https://notwikipedia.org/", False), ("https://wikipedia.org.evil.example/", False),
    ("https://a.example/?from=en.wikipedia.org", False), ("", False), ("en.wikipedia.org/wiki/X", True),
    ("https://en.wikipedia.org./wiki/X", True), ("http://[::1/wiki", False), ("a.example//wikipedia.org", False)])
def test_wikipedia_is_told_by_its_host(url, is_one):
    assert is_wikipedia(url) is is_one


def test_near_copies_are_told_from_other_texts_by_their_runs_of_words():
    """Jaccard's index of runs of five words, counted exactly, on either side of the limit."""
    def runs(words):
        return {tuple(words[k:k + 5]) for k in range(len(words) - 4)}

    words = " ".join(paragraphs(0)).split()
    for changed, copy in ((2, True), (60, False)):
        other = list(words)
        for k in range(changed):
            other[(k * 300) // changed] = f"w{k}"
        share = len(runs(words) & runs(other)) / len(runs(words) | runs(other))
        assert share > 0.9 if copy else share < 0.5
        second = page(1, html=f"<html><body><article><p>{' '.join(other)}</p></article></body></html>")
        assert [step for _, step in webtext([page(0), second]).dropped] == ["duplicate"] * copy


def test_only_the_same_text_is_a_copy_at_a_share_of_1():
    other = page(1, html=page(0).html.replace("</article>", "<p>One sentence more.</p></article>"))
    found = webtext([page(0), other, page(2, html=page(0).html)], similar=1)
    assert found.dropped == [("https://a.example/2", "duplicate")]


def test_a_malformed_link_ends_nothing():
    assert len(webtext([page(url="http://[::1/wiki")]).documents) == 1


def test_the_text_of_a_page_is_what_is_written_on_it():
    body = " ".join(["One and two are numbers, said the man."] * 6)
    assert text(f"<html><body><nav>Menu</nav><article><p>{body}</p></article></body></html>") == body


@pytest.mark.parametrize(("given", "about"), [
    ({"similar": 0}, "similar=0: allowed are shares above 0, up to 1"), ({"similar": 1.5}, "similar=1.5"),
    ({"first": "2018-01-01"}, "first=2018-01-01 is after last=2017-12-31"),
    ({"last": "Dec 2017"}, "'Dec 2017' is no day"), ({"first": 2017}, "'2017' is no day; write it as 2017-12-31")])
def test_what_is_refused(given, about):
    with pytest.raises(ReproError, match=about):
        webtext([page()], **given)


def test_a_page_shared_on_no_day():
    with pytest.raises(ReproError, match="'yesterday' is no day"):
        webtext([page(day="yesterday")])


@pytest.mark.parametrize("package", ["trafilatura", "datasketch"])
def test_without_a_package(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ReproError, match=rf"needs the package {package}: pip install 'repro\[webtext\]'"):
        webtext([page()])
