"""The diagrams say what the code does: cells are counted against windows and against the model's own attention."""

from collections import Counter

import numpy as np
import pytest
from letters import unreadable
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from repro.errors import ReproError
from repro.plotting import COLOURS, diagrams, draw_inputs, draw_insertion, draw_recurrence, draw_windows
from repro.windows import windows


def cells(figure, kind):
    return [patch for patch in figure.findobj(Rectangle) if patch.get_gid() == kind]


def columns(patches):
    return Counter(int(patch.get_x()) for patch in patches)


def colour(patch):
    return to_hex(patch.get_facecolor()).upper()


@pytest.mark.parametrize(("n_tokens", "window", "overlap"),
                         [(17, 8, 0), (17, 8, 3), (16, 8, 7), (9, 8, 0), (40, 10, 5)])
def test_windows_are_drawn_as_they_are_read_and_scored(n_tokens, window, overlap):
    figure, cover = draw_windows(n_tokens, window, overlap), windows(n_tokens, window, overlap)
    read, scored = cells(figure, "read"), cells(figure, "scored")
    assert len(read) == sum(w.stop - w.start for w in cover)
    assert len(scored) == sum(w.n_scored for w in cover) == n_tokens - 1
    assert columns(scored) == dict.fromkeys(range(1, n_tokens), 1)  # every target once
    assert columns(read) == Counter(token for w in cover for token in range(w.start, w.stop))
    assert {colour(patch) for patch in scored} == {COLOURS["scored"]}
    assert {colour(patch) for patch in read} == {COLOURS["read"]}


def test_a_target_is_drawn_in_the_row_of_the_window_that_scores_it():
    cover = windows(17, 8, 3)
    rows = {}
    for patch in cells(draw_windows(17, 8, 3), "scored"):
        rows.setdefault(round(patch.get_y()), set()).add(int(patch.get_x()))
    assert [rows[y] for y in sorted(rows, reverse=True)] == [set(range(w.first_target, w.stop + 1)) for w in cover]


def test_one_panel_per_overlap_and_least_context_told():
    figure = draw_windows(17, 8, (0, 3))
    told = [text.get_text() for text in figure.axes[0].texts]
    assert len(cells(figure, "scored")) == 2 * 16
    assert {"overlap 0", "overlap 3"} <= set(told)
    assert "after window 1, a scored token sees 4 or more tokens of its window" in told


@pytest.mark.parametrize(("n_windows", "window", "overlap", "n_layer", "insert_layer"),
                         [(3, 4, 0, 4, 2), (2, 6, 2, 3, 0)])
def test_recurrence_draws_every_state_and_h_prev_beside_the_input_of_its_block(n_windows, window, overlap, n_layer,
                                                                             insert_layer):
    figure = draw_recurrence(n_windows, window, overlap, n_layer, insert_layer)
    inserted = cells(figure, "h_prev")
    assert len(cells(figure, "state")) == n_windows * window * (n_layer + 1)
    assert len(inserted) == n_windows - 1  # the first window has none
    assert {int(patch.get_y()) for patch in inserted} == {int(insert_layer * diagrams.STEP)}
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told.count("z") == told.count("feedforward") == n_windows - 1


def test_recurrence_goes_step_by_step():
    """A window, z, h_prev, the next window; every step has what the one before it had, the last one everything."""
    figure = draw_recurrence(3, 4, 0, 4, 1)
    seen = [(len(cells(one, "state")) // 20, [text.get_text() for text in one.axes[0].texts].count("z"),
             len(cells(one, "h_prev"))) for one in figure.frames]
    assert seen == [(1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2)]
    assert figure.frames[-1].png() == figure.png()
    assert {one.axes[0].get_xlim() + one.axes[0].get_ylim() for one in figure.frames} == {
        figure.axes[0].get_xlim() + figure.axes[0].get_ylim()}
    assert draw_recurrence(1).frames == ()


def test_where_the_last_block_alone_makes_z_only_its_mean_is_drawn():
    def dots(figure):
        return sorted(line.get_ydata()[0] for line in figure.axes[0].lines if line.get_markersize() == 6
                      and line.get_marker() == "o")
    every, last = draw_recurrence(2, 4, 0, 3, 1), draw_recurrence(2, 4, 0, 3, 1, layers="last")
    assert dots(every) == [layer * diagrams.STEP + 0.5 for layer in (1, 2, 3)] and dots(last) == dots(every)[-1:]
    assert "; the last block's states of each are pooled to z," in last.alt
    with pytest.raises(ReproError, match="unknown layers 'first'"):
        draw_recurrence(layers="first")


@pytest.mark.parametrize(("n_windows", "window", "overlap"), [(3, 4, 0), (2, 6, 2), (1, 3, 0)])
def test_insertion_draws_one_more_key_per_query_after_the_first_window(n_windows, window, overlap):
    figure = draw_insertion(n_windows, window, overlap)
    seen = cells(figure, "seen")
    triangles = n_windows * window * (window + 1) // 2
    previous = [patch for patch in seen if colour(patch) == COLOURS["h_prev"]]
    assert len(previous) == (n_windows - 1) * window
    assert len(seen) == 2 * triangles + len(previous)
    n = n_windows * window
    assert len(seen) + len(cells(figure, "unseen")) == n * n + n * (n + n_windows - 1)
    assert [len(cells(figure, kind)) for kind in ("queries", "keys", "values", "output")] == [
        window, window + 1, window + 1, window]


def test_grid_is_the_mask_of_the_model():
    seen, rows, keys = diagrams.grid(windows(9, 4, 0), inserted=True)
    assert keys == [0, 1, 2, 3, None, 4, 5, 6, 7]
    expected = np.array([[key is None and row > 3 or key is not None and row // 4 == key // 4 and key <= row
                          for key in keys] for row in rows])
    assert (seen == expected).all()


def test_visible_asks_the_attention_that_the_model_uses(monkeypatch):
    from repro.recurrence import causal

    def blind(module, query, key, value, previous=None, **_):
        return value[:, :, :query.shape[2]].transpose(1, 2), None

    diagrams.visible.cache_clear()
    monkeypatch.setattr(causal, "attention_with_previous", blind)
    assert diagrams.visible(3, 0).sum() == 3
    diagrams.visible.cache_clear()


def test_counts_notice_a_window_that_is_off_by_one(monkeypatch):
    monkeypatch.setattr(diagrams, "windows", lambda n, window, overlap: windows(n, window + 1, overlap))
    read = columns(cells(draw_windows(17, 8, 3), "read"))
    assert read != Counter(token for w in windows(17, 8, 3) for token in range(w.start, w.stop))


@pytest.mark.parametrize("draw", [lambda: draw_windows(17, 8, 8), lambda: draw_windows(1, 8, 0),
                                  lambda: draw_windows(1000, 300, 0), lambda: draw_recurrence(4),
                                  lambda: draw_recurrence(insert_layer=4), lambda: draw_recurrence(n_windows=0),
                                  lambda: draw_insertion(window=40), lambda: draw_insertion(insert_layer=-1)])
def test_what_cannot_be_drawn_says_so(draw):
    with pytest.raises(ReproError):
        draw()


def test_letters_that_cannot_be_read_are_found():
    from matplotlib.figure import Figure

    figure = Figure((4, 3))
    axes = figure.subplots()
    for x, y, letters, size in ((0.1, 0.5, "first", 10), (0.12, 0.5, "second", 10), (0.5, 0.2, "small", 8),
                                (1.1, 0.9, "long and outside", 10), (0.5, 0.8, "fine", 9)):
        axes.text(x, y, letters, fontsize=size)
    assert unreadable(figure) == ["'first' touches 'second'", "'small' has 8 points",
                                  "'long and outside' leaves the drawing"]


@pytest.mark.parametrize("draw", [draw_windows, draw_recurrence, draw_insertion])
def test_letters_stay_inside_and_apart_and_are_large_enough(draw):
    figure = draw(17, 8, (0, 3)) if draw is draw_windows else draw()
    assert unreadable(figure) == []


def test_inputs_have_a_row_for_each_sequence_and_special_tokens_apart():
    rows = [[("Start", True), ("a cat", False), ("Extract", True)], [("Start", True), ("b", False)]]
    figure = draw_inputs({"one": rows[:1], "two": rows})
    axis = figure.axes[0]
    told = [text.get_text() for text in axis.texts]
    assert told == ["one", "Start", "a cat", "Extract", "two", "Start", "a cat", "Extract", "Start", "b"]
    assert len({text.get_position()[1] for text in axis.texts}) == 5  # two names, three sequences
    faces = Counter(colour(patch) for patch in axis.patches)
    assert faces == {COLOURS["scored"]: 5, COLOURS["read"]: 3}
    with pytest.raises(ReproError, match="a form without a sequence"):
        draw_inputs({"one": []})
