"""The picture of what a position sees shows what it was given, and shows a disagreement."""

import pytest
import torch
from letters import smallest

from repro.errors import ReproError
from repro.models import longformer_patterns, receptive_field
from repro.plotting import draw_receptive_fields


def cells(figure, panel=0):
    return figure.axes[panel].images[0].get_array()


def test_cells_and_reach_are_those_of_the_fields():
    first, second = (receptive_field(longformer_patterns(windows, 2), 20) for windows in ((2, 4), (4, 4)))
    figure = draw_receptive_fields({"grows": (first, first), "stays": (second, second)})
    assert smallest(figure) >= 9
    assert (cells(figure) == first.numpy()).all() and (cells(figure, 1) == second.numpy()).all()
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["1", "4"]
    assert figure.alt.startswith("Input positions that the last one depends on. grows: 1, 4 positions back after")
    assert figure.png() == figure.png()
    left, right = figure.axes[0].get_xlim()
    assert -19 < left < -4.5 and right == 0.5, "what is seen, and hardly more"
    assert [cells(frame, 1).any(1).tolist() for frame in figure.frames] == [[True, False], [True, True]]
    assert list(figure.steps()) == ["layer 1", "layers 1 to 2"]
    assert [[text.get_text() for text in frame.axes[0].texts] for frame in figure.frames] == [["1"], ["1", "4"]]


def test_a_disagreement_is_seen():
    field = receptive_field(longformer_patterns((2, 4), 2), 20)
    other = field.clone()
    other[1, 3] = True
    assert cells(draw_receptive_fields({"one": (field, other)}))[1, 3] == 2
    with pytest.raises(ReproError, match="one: computed for"):
        draw_receptive_fields({"one": (field, torch.ones(2, 19, dtype=torch.bool))})
