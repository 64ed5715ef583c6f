"""Grids show the pairs of the patterns, and lines the numbers that they were given."""

import pytest

from repro.attention import Global, SlidingWindow, Strided
from repro.errors import ReproError
from repro.plotting import draw_growth, draw_patterns

N = 9


def cells(figure, panel):
    return figure.axes[panel].collections[0].get_array().reshape(N, N)


def test_cells_are_the_allowed_pairs_with_queries_from_above():
    window = SlidingWindow(3)
    figure, again = (draw_patterns({"window": window, "with global": (window, Global([4]))}, N) for _ in range(2))
    assert figure.png() == again.png()
    assert (cells(figure, 0) == window.mask(N).numpy()).all()
    both, added = (window | Global([4])).mask(N).numpy(), (Global([4]).mask(N) & ~window.mask(N)).numpy()
    assert ((cells(figure, 1) > 0) == both).all()
    assert ((cells(figure, 1) == 2) == added).all()
    assert all([(label.get_text(), at) for label, at in zip(side.get_ticklabels(), side.get_ticklocs(), strict=True)]
               == [("0", 0.5), ("8", 8.5)] for side in (figure.axes[0].xaxis, figure.axes[0].yaxis))
    assert figure.axes[0].yaxis_inverted() and not figure.axes[0].xaxis_inverted()
    counts = [figure.axes[panel].texts[0].get_text() for panel in (0, 1)]
    assert counts == ["24 pairs, 30%", f"{both.sum()} pairs, {both.mean():.0%}"]
    assert figure.alt == f"Who sees whom among 9 positions. Allowed pairs: window 24, with global {both.sum()}."


def test_panels_without_a_pattern_stay_empty():
    figure = draw_patterns({str(stride): Strided(stride).heads for stride in range(1, 6)}, N)
    assert [axis.axison for axis in figure.axes] == [True] * 5 + [False] * 3


@pytest.mark.parametrize("n", [1, 65])
def test_sizes_that_cannot_be_drawn(n):
    with pytest.raises(ReproError, match=f"n is {n} positions; 2 to 64"):
        draw_patterns({"window": SlidingWindow(2)}, n)


def test_growth_is_drawn_on_logarithmic_axes_with_one_style_a_name():
    figure = draw_growth({"time (ms)": {"floor": [[2, 1], [4, 2]], "ours": [[2, 3], [4, 9]]},
                          "memory (MiB)": {"theirs": [[2, 5]], "ours": [[4, 7]]}}, bounds=["floor"])
    time, memory = figure.axes
    assert {axis.get_xscale() for axis in figure.axes} == {axis.get_yscale() for axis in figure.axes} == {"log"}
    floor, ours = time.lines
    theirs, again = memory.lines
    assert [list(line.get_ydata()) for line in (floor, ours, theirs, again)] == [[1, 2], [3, 9], [5], [7]]
    assert ours.get_color() == again.get_color() != theirs.get_color()
    without = draw_growth({"time (ms)": {"theirs": [], "ours": [[2, 3]]}}).axes[0]
    first = draw_growth({"time (ms)": {"theirs": [[2, 1]], "ours": [[2, 3]]}}).axes[0]
    assert [line.get_color() for line in without.lines] == [first.lines[1].get_color()]
    assert (floor.get_linestyle(), ours.get_linestyle()) == ("--", "-")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["floor", "ours", "theirs"]


def test_more_lines_than_colours_can_still_be_told_apart():
    panels = draw_growth({"time": {str(k): [[1, 1]] for k in range(9)}}).axes
    lines = [line for axis in panels for line in axis.lines]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 9


def test_a_panel_has_seven_lines_at_most_and_rows_share_their_axes():
    curves = {"floor": [[2, 1], [4, 9]]} | {str(k): [[2, k + 1], [4, k + 2]] for k in range(13)}
    figure = draw_growth({"time": curves, "memory": curves}, bounds=["floor"])
    above, beside, below, _ = figure.axes
    assert [len(axis.lines) for axis in figure.axes] == [7, 7, 7, 7]
    assert above.lines[0].get_label() == "floor"
    assert (above.get_title("left"), below.get_title("left")) == ("time", "")
    assert above.get_ylim() == below.get_ylim() and above.get_xlim() == below.get_xlim()
    for row in (beside, figure.axes[3]):
        assert [text.get_text() for text in row.get_legend().get_texts()] == [line.get_label() for line in row.lines]
    drawn = {line.get_label(): line.get_color() for axis in figure.axes for line in axis.lines}
    assert drawn["0"] != drawn["1"] and len(drawn) == 14


@pytest.mark.parametrize(("n", "ticks"), [(3, [2, 4, 8]), (6, [2, 4, 8, 16, 32, 64]), (7, [2, 8, 32, 128]),
                                          (8, [4, 16, 64, 256])])
def test_many_lengths_have_a_tick_for_every_other_one(n, ticks):
    axis, = draw_growth({"time": {"ours": [[2**k, k] for k in range(1, n + 1)]}}).axes
    assert axis.get_xticks().tolist() == ticks


def test_what_was_not_run_says_so():
    figure = draw_growth({"time": {}, "memory": {"ours": []}})
    assert [axis.texts[0].get_text() for axis in figure.axes] == ["not run", "not run"]
    assert figure.png().startswith(b"\x89PNG")
