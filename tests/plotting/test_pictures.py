"""Pictures of images, sound, attention and who hears from whom."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import to_hex

from repro.plotting import COLOURS, draw_connectivity, draw_images, draw_spectrograms, draw_weights


def test_images_are_shown_as_they_are():
    image = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    figure = draw_images({"drawn": [image, image], "missing": []})
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert len(shown) == 2 and (shown[0] == image).all()
    assert figure.alt == "Images. drawn: 2; missing: not run."


def test_a_spectrogram_is_brightest_at_the_frequency_of_a_tone():
    tone = np.sin(2 * np.pi * 1_500 * np.arange(4_800) / 12_000)
    figure = draw_spectrograms({"tone": tone}, 12_000)
    loud = figure.axes[0].images[0].get_array()
    assert abs(loud.mean(1).argmax() / (loud.shape[0] - 1) * 6_000 - 1_500) < 30
    assert loud.max() == 0 and figure.alt == "Spectrograms: tone, 0.40 s."
    assert draw_spectrograms({}, 12_000).alt == "Spectrograms: not run."


def cells(axis):
    assert axis.yaxis_inverted()  # the first row is on top
    return axis.collections[0].get_array()


def test_every_row_of_weights_is_relative_to_its_largest():
    figure = draw_weights({"one": torch.tensor([[0.5, 0.0], [0.1, 0.4]])})
    assert np.allclose(cells(figure.axes[0]), [[1, 0], [0.25, 1]])


def test_pictures_keep_their_colours_in_dark_mode_and_drawings_do_not():
    image, tone = np.zeros((2, 2, 3), np.uint8), np.sin(np.arange(4_800))
    for figure, kept in ((draw_images({"one": [image]}), True), (draw_spectrograms({"tone": tone}, 12_000), True),
                         (draw_weights({"head": torch.eye(2)}), False)):
        assert ('<svg class="photograph" ' in figure.svg()) is kept
    rule = 'html[data-theme="dark"] .cell_output :is(.drawing svg, img).photograph { background: none; filter: none; }'
    assert rule in (Path(__file__).parents[2] / "book/_static/book.css").read_text()


def test_what_is_new_in_a_layer_is_told_from_what_was_known():
    one = torch.eye(2, dtype=torch.bool)
    figure = draw_connectivity({"toy": [one, torch.ones(2, 2).tril().bool()]})
    first, second = (cells(axis) for axis in figure.axes)
    assert first.tolist() == [[1, 0], [0, 1]] and second.tolist() == [[1, 0], [2, 1]]
    assert "toy: 2 pairs, 3 pairs" in figure.alt


def test_connectivity_is_played_layer_by_layer_from_before_the_first():
    short, deep = torch.ones(2, 2).tril().bool(), [torch.eye(2).bool(), torch.ones(2, 2).tril().bool()]
    figure = draw_connectivity({"one layer": [short], "two": deep})
    shown = [[cells(axis).tolist() for axis in frame.axes] for frame in figure.frames]
    assert shown == [[[[1, 0], [0, 1]]] * 2, [[[1, 0], [2, 1]], [[1, 0], [0, 1]]], [[[1, 0], [1, 1]], [[1, 0], [2, 1]]]]
    told = [frame.axes[0].get_title("left") for frame in figure.frames]
    assert list(figure.steps()) == ["before", "layer 1", "layer 2"]
    assert told == ["one layer, before the first layer", "one layer, after layer 1", "one layer, after layer 2"]
    assert [bool(axis.collections) for axis in figure.axes] == [axis.axison for axis in figure.axes]
    assert sum(axis.axison for axis in figure.axes) == 3  # the still has no panel where there is no layer
    colours = [COLOURS[name] for name in ("empty", "scored", "h_prev")]
    assert [to_hex(colour).upper() for colour in figure.axes[0].collections[0].cmap(range(3))] == colours
    page = figure._repr_mimebundle_()["text/html"]
    assert page.count("<svg") == 4 and page.count('role="img"') == 1  # words once, for the still
    assert page.index('class="still"') < page.index('class="moving" aria-hidden="true"')
