"""Curves and bars show the numbers that they were given, in the colours of the house."""

import pandas
import pytest
from letters import smallest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from repro.errors import ReproError
from repro.plotting import (
    COLOURS,
    draw_bars,
    draw_cost_front,
    draw_curves,
    draw_gains,
    draw_layer_weights,
    draw_memory,
    draw_quality_and_cost,
    draw_table_curves,
    house,
)


def lines(axis):
    return {line.get_label(): line for line in axis.lines if not line.get_label().startswith("_")}


def intervals(axis):
    return sorted((ends[0][1], ends[1][1]) for part in axis.findobj(LineCollection) for ends in part.get_segments()
                  if len(ends) and ends[0][1] == ends[0][1])


@pytest.fixture
def frame():
    rows = [("paper", "baseline", "0", "30.47", None, None), ("paper", "recurrent", "0", "29.01", None, None),
            ("small", "baseline", 5, 98.0, 97.0, 99.0), ("small", "baseline", 0, 100.0, 99.0, 101.0),
            ("small", "recurrent", 0, 96.0, 95.0, 97.0), ("small", "recurrent", 5, "not run", None, None)]
    return pandas.DataFrame(rows, columns=["source", "model", "overlap", "perplexity", "low", "high"])


def test_table_curves_have_a_panel_per_source_and_intervals_where_there_are_any(frame):
    figure = draw_table_curves(frame)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["paper", "small"]
    small = lines(figure.axes[1])
    assert {name: list(line.get_ydata()) for name, line in small.items()} == {
        "baseline": [100, 98], "recurrent": [96]}  # "not run" is left out
    assert {name: to_hex(line.get_color()).upper() for name, line in small.items()} == {
        name: COLOURS[name] for name in small}
    assert small["baseline"].get_xdata() == pytest.approx([-0.03, 4.97])
    assert intervals(figure.axes[1]) == [(95, 97), (97, 99), (99, 101)] and not intervals(figure.axes[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["baseline", "recurrent"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["perplexity per word", ""]
    assert not any(axis.get_legend() for axis in figure.axes)
    assert draw_table_curves(frame).svg() == figure.svg()


def test_marks_beside_each_other_stay_on_a_scale_of_doublings():
    """The shift is a share of the panel: an even one would push short inputs off the panel, or below nothing."""
    rows = [("paper", name, n, 1.0) for name in "abcde" for n in (100, 500, 11_000)]
    frame = pandas.DataFrame(rows, columns=["source", "model", "overlap", "perplexity"])
    axis, = draw_table_curves(frame, log_x=True).axes
    for k, line in enumerate(lines(axis)[name] for name in "abcde"):
        assert list(line.get_xdata()) == pytest.approx([n * 110**(0.012 * (k - 2)) for n in (100, 500, 11_000)])


@pytest.mark.parametrize(("xs", "by", "marks"), [
    ((128, 256, 1024), True, [128, 256, 512, 1024]), ((117, 345, 1542), 10, [200, 500, 1000]),
    ((0.69, 1.05, 2.77), 10, [1, 2]), ((0.69, 2.77, 1542), 10, [1, 10, 100, 1000])])
def test_lengths_are_marked_at_powers_of_two_and_sizes_at_round_numbers(xs, by, marks):
    rows = [("paper", "baseline", x, 1.0) for x in xs]
    axis, = draw_table_curves(pandas.DataFrame(rows, columns=["source", "model", "n", "perplexity"]), "n",
                              log_x=by).axes
    assert [x for x in axis.get_xticks() if min(xs) <= x <= max(xs)] == pytest.approx(marks)


def test_nothing_but_zeros_stands_at_the_bottom(frame):
    axis, other = draw_table_curves(frame.assign(perplexity=[0, 0, 1, 0, 0, 0])).axes
    assert axis.get_ylim() == (0, 1) and other.get_ylim()[0] < 0


def test_a_single_place_is_the_only_mark(frame):
    one, more = draw_table_curves(frame).axes
    assert list(one.get_xticks()) == [0] and len(more.get_xticks()) > 2


def test_table_curves_leave_the_frame_alone_and_refuse_what_they_cannot_draw(frame):
    before = frame.copy()
    draw_table_curves(frame)
    pandas.testing.assert_frame_equal(frame, before)
    with pytest.raises(ReproError, match="no column overlap"):
        draw_table_curves(frame.drop(columns="overlap"))


def test_table_curves_without_a_number_say_not_run(frame):
    (axis,) = draw_table_curves(frame.assign(perplexity="not run")).axes
    assert [text.get_text() for text in axis.texts] == ["not run"]
    assert not axis.lines


def test_two_series_under_one_name_are_refused_and_a_control_has_its_own_line(frame):
    control = frame.iloc[[2]].assign(perplexity=90.0)
    with pytest.raises(ReproError, match="two points have source small, model baseline, overlap 5"):
        draw_table_curves(pandas.concat([frame, control]))
    control = control.assign(model="baseline trained with overlap")
    small = lines(draw_table_curves(pandas.concat([frame, control])).axes[1])
    assert list(small["baseline"].get_ydata()) == [100, 98]
    assert list(small["baseline trained with overlap"].get_ydata()) == [90]
    assert len({line.get_color() for line in small.values()}) == 3


def test_the_cost_front_goes_through_the_points_of_its_window_that_nothing_beats():
    nan = float("nan")
    rows = [("small", 200, "baseline", 0, 0.0, 0.0, nan, nan), ("small", 200, "baseline", 50, 30.0, -9.0, -11.0, -7.0),
            ("small", 200, "baseline", 10, 5.0, -6.0, -7.0, -5.0), ("small", 200, "recurrent", 0, 0.0, 0.5, -1.0, 2.0),
            *(("small", size, "baseline", 0, 0.0, 0.0, nan, nan) for size in (300, 600)),
            ("smoke", 200, "baseline", 10, 5.0, 3.0, 2.0, 4.0), ("smoke", 200, "baseline", 0, 0.0, 0.0, nan, nan),
            ("paper", 200, "recurrent", 0, 0.0, -8.0, nan, nan)]
    frame = pandas.DataFrame(rows, columns=["source", "window", "model", "overlap", "cost", "change", "low", "high"])
    figure = draw_cost_front(frame)
    small, *_, smoke, paper = figure.axes
    assert len(figure.axes) == 5  # four in a row, and one in the next: no empty ones
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "small, T = 200", "small, T = 300", "small, T = 600", "smoke, T = 200", "paper, T = 200"]
    drawn = {name: line.get_xydata().tolist() for name, line in lines(small).items() if not name.startswith("_")}
    assert drawn == {"baseline": [[0, 0], [5, -6], [30, -9]], "recurrent": [[0, 0.5]],
                     "Pareto front": [[0, 0], [5, -6], [30, -9]]}
    assert lines(smoke)["Pareto front"].get_xydata().tolist() == [[0, 0]]
    assert lines(paper)["Pareto front"].get_xydata().tolist() == [[0, -8]]
    assert [text.get_text() for text in small.texts] == ["10", "50"]
    ends = [segment[:, 1].tolist() for bars in small.collections for segment in bars.get_segments() if len(segment)]
    assert sorted(ends) == [[-11, -7], [-7, -5], [-1, 2]]
    assert small.get_ylim() == paper.get_ylim() and small.get_ylim()[0] < -11
    with pytest.raises(ReproError, match="no point to draw"):
        draw_cost_front(frame[:0])
    with pytest.raises(ReproError, match="two points have source small, window 200, model baseline, overlap 0"):
        draw_cost_front(pandas.concat([frame, frame[:1]]))


def test_a_level_is_a_line_across_every_panel(frame):
    for axis in draw_table_curves(frame, level=97.5).axes:
        assert [line.get_ydata() for line in axis.lines if list(line.get_xdata()) == [0, 1]] == [[97.5, 97.5]]


def test_curves_show_points_and_bounds():
    figure = draw_curves({"train": [[0, 5.0], [20_000, 3.0]], "none yet": []}, bounds={"best": 2.0})
    train, best = figure.axes[0].lines
    assert list(train.get_ydata()) == [5, 3]
    assert set(best.get_ydata()) == {2.0}
    assert draw_curves({"train": [[2, 5.0], [64, 3.0]]}, log_x=True).axes[0].get_xscale() == "log"
    with pytest.raises(ReproError, match="no point"):
        draw_curves({"train": []})


def test_bars_and_weights_show_their_values():
    figure = draw_bars({"baseline": 15.25, "recurrent": 13.5}, "perplexity", bounds={"best": 12.0})
    assert [bar.get_width() for bar in figure.axes[0].patches] == [15.25, 13.5]
    assert {"15.25", "13.50"} <= {text.get_text() for text in figure.axes[0].texts}
    assert all(text.get_bbox_patch() for text in figure.axes[0].texts), "the bound would cross the numbers"
    figure = draw_layer_weights({"a": [0.25, 0.75], "b": [0.5, 0.5]})
    assert sorted(bar.get_height() for bar in figure.axes[0].patches) == [0.25, 0.5, 0.5, 0.75]
    with pytest.raises(ReproError, match="sum to 0.900"):
        draw_layer_weights([0.4, 0.5])


def test_the_house_style_ends_where_it_should():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with house():
        assert matplotlib.rcParams["axes.titleweight"] == "bold"
    assert dict(matplotlib.rcParams) == before


def test_models_differ_in_grey_too():
    def luminance(colour):
        return sum(weight * int(colour[i:i + 2], 16) for weight, i in ((0.299, 1), (0.587, 3), (0.114, 5)))

    pairs = [("read", "scored"), ("empty", "scored"), ("empty", "h_prev"), ("read", "h_prev")]
    assert all(abs(luminance(COLOURS[a]) - luminance(COLOURS[b])) > 60 for a, b in pairs)


def test_memory_has_the_peaks_and_what_is_added_after_the_first_windows():
    peaks = {"none": [[1, 2**20], [3, 2**21], [4, 2**21 + 2**11], [7, 2**21 + 2**13]], "window": [[3, 100], [4, 1124]]}
    figure = draw_memory(peaks, allowed=2048, settled=3)
    whole, added = figure.axes
    assert smallest(figure) >= 9  # no powers of ten between the ticks either
    assert [list(line.get_ydata()) for line in whole.lines][0][:2] == [1, 2]  # MiB
    none, window, paper = added.lines
    assert (list(none.get_xdata()), list(none.get_ydata())) == ([1, 4], [2, 8])  # KiB beyond those at 3 windows
    assert list(window.get_ydata()) == [1]
    assert paper.get_ydata() == pytest.approx(2 * paper.get_xdata())


def test_gains_have_the_paper_and_ours_as_lines_and_controls_as_hollow_marks():
    rows = [("small", "paper", 0, 4.8, None, None), ("small", "paper", 10, 3.0, None, None),
            ("small", "recurrent", 10, 2.0, 1.0, 3.0), ("small", "recurrent", 0, 2.5, 2.0, 3.5),
            ("small", "recurrent, first block", 0, 2.9, 2.0, 3.5), ("small", "module masked out", 0, -0.5, -1.0, 0.5)]
    frame = pandas.DataFrame(rows, columns=["source", "name", "overlap", "gain", "low", "high"])
    (axis,) = draw_gains(frame).axes
    shown = lines(axis)
    assert {tuple(line.get_ydata()) for line in axis.lines if line.get_marker() == "None"} == {(0, 0)}
    assert {name: list(line.get_ydata()) for name, line in shown.items()} == {
        "paper": [4.8, 3.0], "recurrent": [2.5, 2.0], "recurrent, first block": [2.9], "module masked out": [-0.5]}
    hollow = {name for name, line in shown.items() if line.get_markerfacecolor() == "white"}
    assert hollow == {"module masked out"} == {name for name, line in shown.items() if line.get_linestyle() == "None"}
    assert len({line.get_marker() for line in shown.values()}) == 4
    assert intervals(axis) == [(-1, 0.5), (1, 3), (2, 3.5), (2, 3.5)]
    fewer = draw_gains(frame[frame["name"] != "recurrent"], list(shown))
    fewer, masked, told = lines(fewer.axes[0])["module masked out"], shown["module masked out"], fewer.legends[0]
    assert (fewer.get_marker(), fewer.get_color()) == (masked.get_marker(), masked.get_color())
    assert [text.get_text() for text in told.get_texts()] == ["paper", "recurrent, first block", "module masked out"]
    assert [text.get_text() for text in draw_gains(frame[:0]).axes[0].texts] == ["not run"]
    with pytest.raises(ReproError, match="two points have source small, name paper, overlap 0"):
        draw_gains(pandas.concat([frame, frame[:1]]))


def test_costs_and_changes_are_drawn_where_they_are():
    """Two that cost the same too; what the others are compared with has no interval."""
    costs = {"none": 5.0, "b": 5.0, "c": 1.0, "d": 105.0}
    changes = {"none": (0, None, None), "b": (-28.0, -31.8, -24.0), "c": (-1, -2, 0.5), "d": (3, 2, 4)}
    rows = [("small", name, flops, *changes[name]) for name, flops in costs.items()]
    frame = pandas.DataFrame(rows, columns=["source", "name", "flops", "change", "low", "high"])
    figure = draw_quality_and_cost(frame)
    cost, effect = figure.axes
    for axis, values in ((cost, list(costs.values())), (effect, [change for change, _, _ in changes.values()])):
        assert {(x, y) for line in axis.lines if line.get_marker() == "o"
                for x, y in zip(*line.get_data(), strict=True) if x == x} == set(zip(values, range(4), strict=True))
    bars = {line.get_ydata()[0]: tuple(line.get_xdata()) for line in effect.lines[1:]
            if line.get_marker() == "None" and line.get_xdata()[0] == line.get_xdata()[0]}
    assert bars == {k: changes[name][1:] for k, name in enumerate(costs) if name != "none"}
    assert set(effect.lines[0].get_xdata()) == {0}
    assert [label.get_text() for label in cost.get_yticklabels()] == list(costs)
    assert [text.get_text() for text in draw_quality_and_cost(frame[:0]).axes[0].texts] == ["not run"]
    with pytest.raises(ReproError, match="two points have source small, name none"):
        draw_quality_and_cost(pandas.concat([frame, frame[:1]]))
