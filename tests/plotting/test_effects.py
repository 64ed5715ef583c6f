"""Effects stand where they belong, the paper's hollow, with a dot for each seed."""

import pytest
from matplotlib.colors import to_hex

from repro.errors import ReproError
from repro.plotting import draw_effects
from repro.plotting.style import SERIES

PANELS = {"pre-training": {"CoLA": {"paper": [26.5], "small": [4.0, 6.5]}, "RTE": {"small": [-1.0]}},
          "LSTM": {"CoLA": {"paper": [-0.5]}, "RTE": {}}}


def test_every_effect_is_a_mark_and_every_seed_a_dot():
    figure = draw_effects(PANELS, "points")
    left, right = figure.axes
    marks = [(x, y, line.get_marker(), line.get_markerfacecolor() == "none") for line in left.lines[1:]
             for x, y in zip(*line.get_data(), strict=True) if x == x]
    assert marks == [(26.5, 0, "D", True), (5.25, 0, "o", False), (-1.0, 1, "o", False)]
    assert set(left.lines[0].get_xdata()) == {0}
    dots = [tuple(dot) for found in left.collections for dot in found.get_offsets()]
    assert dots == [(4.0, 0), (6.5, 0), (-1.0, 1)]
    colours = {line.get_label(): to_hex(line.get_color()).upper() for line in left.lines[1:]}
    assert colours == {"paper": SERIES["paper"], "ours, small": SERIES["small"]}
    assert [label.get_text() for label in left.get_yticklabels()] == ["CoLA", "RTE"]
    assert left.get_xlim() == right.get_xlim() and left.get_ylim() == right.get_ylim() == (1.5, -0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["paper", "one seed", "ours, small"]
    assert figure.alt == ("points. pre-training: CoLA +26.5 paper, +5.2 small; RTE -1.0 small. LSTM: CoLA -0.5 paper.")


def test_nothing_to_draw_is_refused():
    with pytest.raises(ReproError, match="no set has an effect"):
        draw_effects({"LSTM": {"CoLA": {}}}, "points")
    with pytest.raises(ReproError, match="of 'LSTM' are RTE, those of 'pre-training' CoLA, RTE; give the"):
        draw_effects(PANELS | {"LSTM": {"RTE": {"small": [1.0]}}}, "points")
