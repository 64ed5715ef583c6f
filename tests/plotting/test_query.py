"""The words that a query sees are coloured, those that its pattern allows and no others."""

import pytest
from bs4 import BeautifulSoup

from repro.attention import Causal, Fixed, Full, SlidingWindow, Strided
from repro.errors import ReproError
from repro.plotting import draw_query

WORDS = [f"w{k}" for k in range(11)] + ["<b>"]


def pages(patterns, query=9):
    soup = BeautifulSoup(draw_query(WORDS, query, patterns).html(), "html.parser")
    return [{one.get_text(): one["class"] for one in page.select("span")} for page in soup.select(".query > div")]


def test_what_the_mask_allows_is_coloured():
    patterns = {"window": SlidingWindow(4), "causal": Causal(), "fixed": Fixed(4, 1), "full": Full()}
    for (name, pattern), found in zip(patterns.items(), pages(patterns), strict=True):
        allowed = {WORDS[j] for j, seen in enumerate(pattern.mask(12)[9].tolist()) if seen}
        assert set(found) == allowed, name
        assert [word for word, classes in found.items() if "asks" in classes] == ["w9"]


def test_the_second_head_has_a_colour_of_its_own():
    found, = pages({"strided": Strided(4).heads})
    assert {word: classes[0] for word, classes in found.items()} == {
        "w6": "b2", "w7": "b2", "w8": "b2", "w9": "b2", "w1": "r2", "w5": "r2"}


def test_the_words_that_are_seen_are_counted_in_words():
    drawn = draw_query(WORDS, 9, {"near": SlidingWindow(4), "all": Full()})
    assert drawn.alt == 'What "w9" at position 9 of 12 words may attend to: near 4, all 12 words.'
    assert "&lt;b&gt;" in drawn.html() and "w0 w1" in BeautifulSoup(drawn.html(), "html.parser").get_text()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ReproError, match="0 to 11"):
        draw_query(WORDS, 12, {"all": Full()})
    with pytest.raises(ReproError, match="3 heads"):
        draw_query(WORDS, 1, {"many": [Full()] * 3})
