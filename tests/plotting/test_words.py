"""A page of words shows each word once, in the colour of who predicts it better and above the line of its kind."""

import pytest
from bs4 import BeautifulSoup

from repro.errors import ReproError
from repro.plotting import COLOURS, Page, Word, draw_changes, draw_words
from repro.plotting.words import LINES, SHADES, STYLE, shade

WORDS = [Word("Ann", 1.5, "name", 3), Word("<took>", -0.2, window=3), Word("her", 0.04, "pronoun", 3),
         Word("ship", 0.3, "topic", 4, begins=True)]


def drawn(*pages):
    return BeautifulSoup(draw_words(pages).html(), "html.parser")


def test_a_caption_begins_with_what_to_see_and_the_words_stay():
    page = draw_words([Page("live", WORDS)])
    seen = page.look_for("Dark words\n count.")
    assert seen.alt == f"Dark words count. {page.alt}" and seen.values == page.values and seen.inside == page.inside
    with pytest.raises(ReproError, match="look_for has no words"):
        page.look_for(" ")


@pytest.mark.parametrize(("saved", "name"), [(0.0, ""), (0.0999, ""), (-0.0999, ""), (0.1, "r1"), (-0.1, "b1"),
                                             (0.3, "r2"), (-0.99, "b2"), (1, "r3"), (-7, "b3")])
def test_the_shade_of_a_word_goes_by_the_nats_saved(saved, name):
    assert shade(saved) == name


def test_every_word_has_its_colour_its_line_and_its_number():
    told = drawn(Page("live", WORDS)).select("span[title]")
    assert [(one.text, one.get("class"), one["title"]) for one in told] == [
        ("Ann", ["r3", "name"], "name, +1.50 nats"), ("<took>", ["b1"], "-0.20 nats"),
        ("her", ["pronoun"], "pronoun, +0.04 nats"), ("ship", ["r2", "topic"], "topic, +0.30 nats")]


def test_windows_and_paragraphs_begin_where_they_do():
    page = drawn(Page("live", WORDS)).find_all("p")[1]
    assert page.get_text(" ", strip=True).split() == ["Ann", "<took>", "her", "ship"]
    marks = [one.name if one.name == "br" else one["class"][0] if one.get("class") == ["cut"] else "word"
             for one in page.find_all(True)]
    assert marks == ["cut", "word", "word", "word", "br", "cut", "word"]


def test_the_sums_by_kind_add_up():
    text = drawn(Page("live", WORDS, "More.")).get_text(" ")
    assert ("live: +1.6 nats saved on 4 words, +0.3 on 1 topic words, +1.5 on 1 names, 0.0 on 1 pronouns, "
            "-0.2 on 1 others. More.") in text
    assert "live: 4 words, +1.6 nats" in draw_words([Page("live", WORDS)]).alt


def test_only_the_first_page_is_open_and_without_one_it_says_not_run():
    page = drawn(Page("small", WORDS), Page("smoke", WORDS[:2]))
    assert [one.summary.text for one in page.find_all("details")] == ["smoke"]
    assert len(page.details.select("span[title]")) == 2
    assert "not run" in draw_words([]).alt and drawn().p.text == "not run"


def test_kinds_are_told_by_lines_that_differ_and_sides_by_the_colours_of_the_house():
    assert len(set(LINES.values())) == len(LINES)
    for side, of in (("r", "recurrent"), ("b", "baseline")):
        for k, share in enumerate(SHADES, 1):
            assert f".words .{side}{k}{{background:{COLOURS[of]}{round(255 * share):02X}}}" in STYLE


def test_later_words_are_coloured_by_how_far_a_replaced_one_moves_their_loss():
    words = [Word("The", 0.0), Word("ship → barn", 0.0, "replaced"), Word("took", 0.25, window=0),
             Word("<her>", -0.002, window=1), Word("home", 0.0009, window=1)]
    found = draw_changes([Page("recurrent", words), Page("baseline", [*words[:3], *(Word("it", 0.0),) * 2])])
    page = BeautifulSoup(found.html(), "html.parser")
    told = [(one.text, one.get("class"), one["title"]) for one in page.select("p > span[title]")]
    assert told[:5] == [("The", None, "0 nats"), ("ship → barn", ["replaced"], "replaced, 0 nats"),
                        ("took", ["r3"], "+0.2 nats"), ("<her>", ["b1"], "-0.002 nats"), ("home", None, "+0.0009 nats")]
    assert found.alt == ("Text of which one word was replaced (ship → barn). recurrent: 2 of 3 later words move, the "
                         "last one 2 words on. baseline: 1 of 3 later words move, the last one 1 word on.")
    assert "recurrent: 2 of 3 later words move" in page.get_text() and page.details.summary.text == "baseline"
    assert "0.001 to 0.01" in page.p.text and "over 0.1" in page.p.text and "less than 0.001" in page.p.text


@pytest.mark.parametrize("kinds", [["other"], ["replaced", "replaced"]])
def test_exactly_one_word_is_replaced(kinds):
    with pytest.raises(ReproError, match="the page 'small' has not exactly one word of kind 'replaced'"):
        draw_changes([Page("small", [Word("it", 0.1, kind) for kind in kinds])])
    with pytest.raises(ReproError, match="there is nothing to draw"):
        draw_changes([])


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ReproError, match="the page 'small' has no word"):
        draw_words([Page("small", [])])
    with pytest.raises(ReproError, match="'it' is of kind 'thing'; one of topic, name, pronoun or other"):
        draw_words([Page("small", [Word("it", 0.1, "thing")])])
