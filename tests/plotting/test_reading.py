"""Which words a summary is written from: shades, labels, description, and bad input."""

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.plotting import draw_reading

WEIGHTS = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.1, 0.2]])


def test_rows_are_shaded_by_their_own_largest_weight_and_words_that_matter_have_labels():
    figure = draw_reading(["cats", "sat"], ["the", "cat", "sits"], WEIGHTS)
    axis, = figure.axes
    shades = axis.collections[0].get_array().reshape(2, 3)
    np.testing.assert_allclose(shades, [[1 / 8, 1, 1 / 8], [1, 1 / 3, 2 / 3]], rtol=1e-6)
    assert [label.get_text() for label in axis.get_xticklabels()] == ["the", "cat", "sits"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["cats", "sat"]
    assert figure.alt.endswith('most from: cats from "cat", sat from "the".')
    weak = draw_reading(["cats"], ["the", "cat", "sits"], WEIGHTS[:1]).axes[0]
    assert [label.get_text() for label in weak.get_xticklabels()] == ["cat"]


def test_weights_of_another_shape():
    with pytest.raises(ReproError, match=r"weights have shape \(2, 3\); .* it must be \(1, 3\)"):
        draw_reading(["cats"], ["the", "cat", "sits"], WEIGHTS)
