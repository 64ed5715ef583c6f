"""The diagram of pixels shows what the patterns allow."""

import numpy as np
import pytest
from letters import unreadable
from matplotlib.patches import Rectangle

from repro.attention import Fixed, Strided
from repro.errors import ReproError
from repro.plotting import draw_pixels
from repro.plotting.pixels import seen_pixels


def pixels(figure, kind):
    return {(int(-patch.get_y() - 0.01), int(patch.get_x())) for patch in figure.findobj(Rectangle)
            if patch.get_gid() == kind}


def test_strided_sees_the_row_and_the_column_of_a_pixel():
    figure = draw_pixels({"strided": Strided(8).heads}, side=8, row=5, column=3)
    assert pixels(figure, "query") == {(5, 3)}
    assert pixels(figure, "first head") == {(5, x) for x in range(3)} | {(4, x) for x in range(4, 8)}
    assert pixels(figure, "second head only") == {(y, 3) for y in range(5)}


def test_fixed_sees_its_row_and_the_last_columns_above():
    figure = draw_pixels({"fixed": Fixed(8, 2).heads}, side=8, row=5, column=3)
    assert pixels(figure, "first head") == {(5, x) for x in range(3)}
    assert pixels(figure, "second head only") == {(y, x) for y in range(5) for x in (6, 7)}
    assert figure.alt.endswith("fixed: 3 by the first head, 10 more by the second.")


@pytest.mark.parametrize("heads", [Strided(5).heads, Fixed(5, 1).heads])
def test_pixels_that_are_seen_are_those_of_the_mask(heads):
    kinds = seen_pixels(heads, 5, 3, 2).ravel()
    mask = (heads[0] | heads[1]).mask(25)[17].numpy()
    assert (np.isin(kinds, ["query", "first head", "second head only"]) == mask).all()
    assert (kinds == "later").sum() == 7


@pytest.mark.parametrize(("settings", "message"), [
    ({"side": 1}, "side is 1 pixels; 2 to 16"), ({"row": 8}, r"pixel \(8, 3\) is outside the image"),
    ({"patterns": {"one": [Strided(8)]}}, "two heads"), ({"patterns": {}}, "two heads")])
def test_what_cannot_be_drawn_says_so(settings, message):
    with pytest.raises(ReproError, match=message):
        draw_pixels(**{"patterns": {"strided": Strided(8).heads}} | settings)


def test_letters_stay_inside_and_apart_and_are_large_enough():
    assert unreadable(draw_pixels({"strided": Strided(8).heads, "fixed": Fixed(8, 2).heads})) == []
