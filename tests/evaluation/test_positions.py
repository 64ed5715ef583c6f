"""Loss by position, by hand."""

import numpy as np
import pytest

from repro.evaluation.positions import by_position, stretches


@pytest.mark.parametrize(("window", "expected"), [
    (1, [(0, 1)]), (2, [(0, 1), (1, 2)]), (3, [(0, 1), (1, 2), (2, 3)]), (4, [(0, 1), (1, 2), (2, 4)]),
    (5, [(0, 1), (1, 2), (2, 4), (4, 5)]), (8, [(0, 1), (1, 2), (2, 4), (4, 8)])])
def test_stretches_double_and_cover_the_window(window, expected):
    assert stretches(window) == expected


def test_positions_are_averaged_over_whole_windows():
    nll = np.array([1, 2, 3, 5, 4, 9, 99.0], np.float32)
    assert by_position(nll, 3).tolist() == [3, 3, 6]
    assert by_position(nll, 2).tolist() == [(1 + 3 + 4) / 3, (2 + 5 + 9) / 3]
