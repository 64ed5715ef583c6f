"""Window arithmetic against lists written by hand and against a formula per target."""

import math

import pytest

from repro.errors import ReproError
from repro.evaluation import Window, windows
from repro.windows import check_window, same_shape

GOLD = {
    (10, 4, 0): [(0, 4, 1), (4, 8, 5), (8, 9, 9)],
    (9, 4, 0): [(0, 4, 1), (4, 8, 5)],
    (10, 4, 1): [(0, 4, 1), (3, 7, 5), (6, 9, 8)],
    (11, 4, 1): [(0, 4, 1), (3, 7, 5), (6, 10, 8)],
    (10, 4, 2): [(0, 4, 1), (2, 6, 5), (4, 8, 7), (6, 9, 9)],
    (10, 4, 3): [(0, 4, 1), (1, 5, 5), (2, 6, 6), (3, 7, 7), (4, 8, 8), (5, 9, 9)],  # the most overlap there can be
    (6, 4, 0): [(0, 4, 1), (4, 5, 5)],
    (6, 4, 3): [(0, 4, 1), (1, 5, 5)],
    (5, 4, 0): [(0, 4, 1)],
    (5, 4, 3): [(0, 4, 1)],
    (4, 4, 2): [(0, 3, 1)],  # the text ends inside the first window
    (2, 4, 0): [(0, 1, 1)],
    (2, 1, 0): [(0, 1, 1)],
    (4, 1, 0): [(0, 1, 1), (1, 2, 2), (2, 3, 3)],
    (1, 4, 2): [],
    (0, 4, 2): [],
    (901, 300, 50): [(0, 300, 1), (250, 550, 301), (500, 800, 551), (750, 900, 801)],
}


@pytest.mark.parametrize("case", GOLD, ids=str)
def test_windows_are_the_ones_written_by_hand(case):
    assert [tuple(window) for window in windows(*case)] == GOLD[case]


def cases():
    return [(n, window, overlap) for n in range(15) for window in range(1, 8) for overlap in range(window)]


def test_every_target_is_scored_exactly_once_and_in_order():
    for n, window, overlap in cases():
        scored = [target for w in windows(n, window, overlap) for target in range(w.first_target, w.stop + 1)]
        assert scored == list(range(1, n)), (n, window, overlap)


def test_windows_read_what_the_contract_says():
    for n, window, overlap in cases():
        cover = windows(n, window, overlap)
        for k, w in enumerate(cover):
            assert 0 <= w.start < w.first_target <= w.stop <= n - 1  # every window scores something
            assert w.stop - w.start == window or k == len(cover) - 1  # only the last one is short
            assert w.stop - w.start <= window
            if k:
                assert len(set(range(w.start, w.stop)) & set(range(cover[k - 1].start, cover[k - 1].stop))) == overlap
                assert w.first_target - 1 - w.start == overlap  # shared tokens are context, the next one predicts


def test_the_window_of_a_target_follows_from_the_target_alone(window_of):
    for n, window, overlap in cases():
        for w in windows(n, window, overlap):
            for target in range(w.first_target, w.stop + 1):
                assert (w.start, w.stop) == window_of(target, n, window, overlap)


def test_number_of_windows():
    for n, window, overlap in cases():
        expected = 0 if n < 2 else 1 + max(0, math.ceil((n - 1 - window) / (window - overlap)))
        assert len(windows(n, window, overlap)) == expected


def test_a_window_knows_how_much_it_scores_and_where_that_begins():
    assert Window(3, 7, 5).n_scored == 3  # targets 5, 6, 7
    assert Window(3, 7, 5).offset == 1  # input 4, the second one it reads, predicts target 5
    assert Window(0, 4, 1).n_scored == 4
    assert Window(0, 4, 1).offset == 0


@pytest.mark.parametrize(("window", "overlap", "words"), [
    (4, 4, "overlap is 4"), (4, 5, "overlap is 5"), (4, -1, "overlap is -1"), (1, 1, "overlap is 1"),
    (0, 0, "window is 0"), (-3, 0, "window is -3")])
def test_impossible_windows_are_refused(window, overlap, words):
    with pytest.raises(ReproError, match=words):
        windows(10, window, overlap)


def test_a_window_may_fill_the_context_but_not_exceed_it():
    check_window(16, 15, 16)
    with pytest.raises(ReproError, match=r"17 tokens.*ends at 16"):
        check_window(17, 0, 16)


def test_windows_of_one_shape_are_grouped_in_text_order():
    groups = [[tuple(window) for window in group] for group in same_shape(windows(14, 4, 2))]
    assert groups == [[(0, 4, 1)], [(2, 6, 5), (4, 8, 7), (6, 10, 9), (8, 12, 11)], [(10, 13, 13)]]
    assert [len(group) for group in same_shape(windows(13, 4, 0))] == [3]  # without overlap the first is like the rest
    for case in cases():
        groups = same_shape(windows(*case))
        assert sum(groups, []) == windows(*case) and len(groups) <= 3
        assert all(len({(w.stop - w.start, w.offset) for w in group}) == 1 for group in groups)
