"""Clusters of mentions in a text, read back from the figure."""

import pytest
from bs4 import BeautifulSoup

from repro.data.excerpts import novel_page
from repro.errors import ReproError
from repro.plotting import draw_clusters

WORDS = "Ann saw <her> cousin 's dog".split()
CLUSTERS = [[(2, 3), (0, 1)], [(2, 6)], [(2, 4), (3, 4)]]


def found(clusters):
    """(the words, the number or None, the class) of every marked mention, outer ones first."""
    page = BeautifulSoup(draw_clusters(WORDS, {"x": clusters}).html(), "html.parser")
    spans = []
    for span in page.select(".mentions span"):
        number = span.find("sub", recursive=False)
        spans.append((" ".join(part for part in span.strings if part.strip() and part.parent.name != "sub"),
                      number.text if number else None, span["class"][0]))
    return [(" ".join(text.split()), *rest) for text, *rest in spans]


def test_mentions_nest_and_carry_the_number_of_their_cluster():
    assert found(CLUSTERS) == [("Ann", "1", "k0"), ("<her> cousin 's dog", None, "single"), ("<her> cousin", "2", "k1"),
                               ("<her>", "1", "k0"), ("cousin", "2", "k1")]


def test_it_says_in_words_what_colours_show():
    assert draw_clusters(WORDS, {"a": CLUSTERS, "b": []}).alt == (
        "Text with its mentions. a: 2 clusters of two or more mentions and 1 mention alone. Cluster 1: Ann, <her>. "
        "Cluster 2: <her> cousin, cousin. b: 0 clusters of two or more mentions and 0 mentions alone.")


@pytest.mark.parametrize("words, panels, said", [
    (WORDS, {}, "nothing to draw"), ([], {"x": []}, "nothing to draw"),
    (WORDS, {"x": [[(0, 2)], [(1, 3)]]}, "words 1:3 crossing 0:2"),
    (WORDS, {"x": [[(0, 2)], [(0, 2)]]}, "words 0:2 twice"),
    (WORDS, {"x": [[(5, 7)]]}, "words 5:7; there are 6 words"), (WORDS, {"x": [[(2, 2)]]}, "words 2:2")])
def test_mentions_that_cannot_be_drawn(words, panels, said):
    with pytest.raises(ReproError, match=said):
        draw_clusters(words, panels)


def test_the_page_of_a_novel_has_its_mentions():
    page = novel_page()
    named = [{" ".join(page.tokens[slice(*mention)]) for mention in cluster} for cluster in page.clusters]
    assert named[1] == {"Edith", "She", "her", "her cousin"} and named[0] == {"Margaret", "her"}
    assert "Cluster 1: Edith" in draw_clusters(page.tokens, {"x": page.clusters}).alt
