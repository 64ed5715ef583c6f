"""Effects stand where they belong, the paper's hollow, with a dot for each seed."""

import pytest

from repro.errors import ReproError
from repro.plotting import draw_effects

PANELS = {"pre-training": {"CoLA": {"paper": [26.5], "small": [4.0, 6.5]}, "RTE": {"small": [-1.0]}},
          "LSTM": {"CoLA": {"paper": [-0.5]}, "RTE": {}}}


def test_every_effect_is_a_mark_and_every_seed_a_dot():
    figure = draw_effects(PANELS, "points")
    left, right = figure.axes
    marks = [(line.get_xdata()[0], line.get_ydata()[0], line.get_marker(), line.get_markerfacecolor() == "none")
             for line in left.lines if line.get_markersize() == 7]
    assert marks == [(26.5, 0, "D", True), (5.25, 0, "o", False), (-1.0, 1, "o", False)]
    dots = [(*line.get_xdata(), *line.get_ydata()) for line in left.lines if line.get_markersize() == 3]
    assert dots == [(4.0, 6.5, 0, 0)]
    assert [label.get_text() for label in left.get_yticklabels()] == ["CoLA", "RTE"]
    assert left.get_xlim() == right.get_xlim() and left.get_ylim() == right.get_ylim() == (1.5, -0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["paper", "one seed", "ours, small"]
    assert figure.alt == ("points. pre-training: CoLA +26.5 paper, +5.2 small; RTE -1.0 small. LSTM: CoLA -0.5 paper.")


def test_nothing_to_draw_is_refused():
    with pytest.raises(ReproError, match="no set has an effect"):
        draw_effects({"LSTM": {"CoLA": {}}}, "points")
    with pytest.raises(ReproError, match="of 'LSTM' are RTE, those of 'pre-training' CoLA, RTE; give the"):
        draw_effects(PANELS | {"LSTM": {"RTE": {"small": [1.0]}}}, "points")
