"""A ladder has a mark for every size, the paper's hollow, on a logarithmic axis."""

import pytest
from letters import smallest

from repro.errors import ReproError
from repro.plotting import draw_scales
from repro.plotting.style import SERIES

PANELS = {"weights": {"GPT-2": {"smoke": 2e5, "paper": 1.2e8}, "LSTM": {"small": 3e6}, "none": {"paper": 0}},
          "tokens": {"GPT-2": {"smoke": 1e6, "paper": 0}}}


def test_every_size_is_a_mark_where_it_belongs():
    figure = draw_scales(PANELS)
    weights, tokens = figure.axes
    marks = [(line.get_xdata()[0], line.get_ydata()[0], line.get_marker(), line.get_markerfacecolor() == "white")
             for line in weights.lines if line.get_marker() in "oD" and len(line.get_xdata()) == 1]
    assert marks == [(2e5, 0, "o", False), (1.2e8, 0, "D", True), (3e6, 1, "o", False)]
    assert [label.get_text() for label in weights.get_yticklabels()] == ["GPT-2", "LSTM"]
    assert weights.get_xscale() == tokens.get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].texts] == ["smoke", "paper", "small"]
    colors = {line.get_label(): line.get_markeredgecolor() for axis in figure.axes for line in axis.lines
              if line.get_marker() == "o"}
    assert colors == {"smoke": SERIES["smoke"], "small": SERIES["small"]}
    figure.canvas.draw()
    assert {"1M", "100M"} <= {label.get_text() for label in weights.get_xticklabels()}
    assert [label.get_text() for label in tokens.get_yticklabels()] == ["GPT-2"]
    assert smallest(figure) >= 9
    assert "LSTM: 3,000,000 at small." in figure.alt and "none" not in figure.alt


def test_nothing_to_draw_is_refused():
    with pytest.raises(ReproError, match="no row has a size above 0"):
        draw_scales({"weights": {"none": {"paper": 0}}})
