"""Figures in a page: SVG with words, the same bytes each time, never heavy."""

import xml.etree.ElementTree as xml

import numpy as np
import pytest

from repro.errors import ReproError
from repro.plotting import canvas, draw_bars
from repro.plotting.svg import LARGEST, as_svg


def bars():
    return draw_bars({"baseline": 15.25, "<recurrent>": 13.5}, "perplexity")


def test_a_drawing_is_shown_as_svg_with_a_caption_and_words_for_those_who_cannot_see_it():
    shown = bars()._repr_mimebundle_()
    assert shown["text/plain"] == "perplexity: baseline 15.25, <recurrent> 13.50."
    assert shown["text/html"].startswith('<figure class="drawing"')
    assert "<figcaption>Perplexity: baseline 15.25, &lt;recurrent&gt; 13.50.</figcaption>" in shown["text/html"]
    assert shown == bars()._repr_mimebundle_() and set(shown) == {"text/html", "text/plain"}


def test_letters_stay_letters_and_nothing_refers_outside_or_holds_for_the_whole_page():
    drawn = as_svg(bars(), "Two <bars>.")
    tree = xml.fromstring(drawn)
    assert (tree.get("role"), tree.get("aria-label")) == ("img", "Two <bars>.")
    assert {"baseline", "<recurrent>", "15.25"} <= {text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert "<style" not in drawn and "<metadata" not in drawn and "2026" not in drawn
    named = {element.get("id") for element in tree.iter() if element.get("id")}
    used = {element.get("{http://www.w3.org/1999/xlink}href") for element in tree.iter()} - {None}
    assert used and {name.removeprefix("#") for name in used} <= named


def test_a_drawing_of_very_many_points_becomes_pixels_within_letters():
    figure, axis = canvas(2, alt="Many points.")
    axis.plot(*np.random.default_rng(0).random((2, 30_000)), "o")
    axis.set_xlabel("where")
    drawn = as_svg(figure, figure.alt)
    assert len(drawn) < LARGEST and "<image" in drawn and ">where</text>" in drawn


def test_a_figure_without_words_is_refused():
    with pytest.raises(TypeError):
        canvas(2)
    with pytest.raises(ReproError, match="a figure without words"):
        canvas(2, alt=" ")
