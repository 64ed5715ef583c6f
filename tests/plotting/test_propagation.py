"""What the figures of chapter 8 show."""

import pytest
from letters import smallest

from repro.errors import ReproError
from repro.plotting import draw_own_and_other, draw_reach

ROWS = {"baseline": ((0.35, 0.3, 0.4), (0.55, 0.5, 0.6)), "recurrent": ((0.1, 0.05, 0.2), (0.6, 0.5, 0.7)),
        "the book": ((0.04, 0.03, 0.05), (0.6, 0.5, 0.7))}
CURVES = {"baseline": [(0, 0, 0), (0, 0, 0)], "overlap": [(0.5, 0.4, 0.6), (0, 0, 0)],
          "recurrent": [(0.2, 0.1, 0.3), (0.003, 0, 0.004)]}


def points(axis):
    return [(x, y, line.get_markerfacecolor()) for line in axis.lines if line.get_marker() not in ("None", "", None)
            for x, y in zip(*line.get_data(), strict=True) if x == x]


def test_own_contexts_are_filled_and_other_ones_hollow():
    figure = draw_own_and_other(ROWS, "divergence (nats)")
    axis, = figure.axes
    drawn = points(axis)
    assert [(x, y) for x, y, fill in drawn if fill == "white"] == [(0.55, 0), (0.6, 1), (0.6, 2)]
    assert [(x, y) for x, y, fill in drawn if fill != "white"] == [(0.35, 0), (0.1, 1), (0.04, 2)]
    ends = {(*line.get_xdata(), *line.get_ydata()) for line in axis.lines if line.get_marker() in ("None", "", None)}
    ends = {one for one in ends if one[0] == one[0]}
    assert ends == {(low, high, y, y) for y, pair in enumerate(ROWS.values()) for _, low, high in pair}
    assert [segment.tolist() for segment in axis.collections[0].get_segments()] == [
        [[own[0], y], [other[0], y]] for y, (own, other) in enumerate(ROWS.values())]
    assert [label.get_text() for label in axis.get_yticklabels()] == list(ROWS) and axis.get_ylim() == (2.5, -0.5)
    assert "recurrent: own 0.100, other 0.600" in figure.alt
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["own context", "context of another book"]


def test_zero_stands_below_everything_and_is_not_joined_to_it():
    figure = draw_reach(CURVES)
    axis, = figure.axes
    zero = axis.get_yticks()[0]
    hollow = [(round(x), y) for x, y, fill in points(axis) if fill == "white"]
    assert hollow == [(1, zero), (2, zero), (2, zero)] and zero < 0.001
    assert sorted(y for *_, y, fill in points(axis) if fill != "white") == [0.003, 0.2, 0.5]
    assert [label.get_text() for label in axis.get_yticklabels()][0] == "0"
    assert "recurrent: 0.2, 0.003" in figure.alt and axis.get_xticks().tolist() == [1, 2]


def test_places_have_their_names():
    axis, = draw_reach(CURVES, ["1", "2–3"], "tokens back").axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2–3"]
    assert axis.get_xlabel() == "tokens back"


def test_ticks_far_below_one_are_as_large_as_the_others():
    figure = draw_reach({"recurrent": [(0.2, 0.1, 0.3), (3e-5, 2e-5, 4e-5)]}, ["1", "901–1200"], "tokens back")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "0", "1e-05", "1e-04", "0.001", "0.01", "0.1", "1"]
    assert smallest(figure) >= 9


def test_nothing_to_draw_is_refused():
    with pytest.raises(ReproError, match="no row"):
        draw_own_and_other({}, "divergence")
    with pytest.raises(ReproError, match="no change"):
        draw_reach({"baseline": [(0, 0, 0)]})
