"""How far back a position sees: counted from the patterns, and measured in a model, must be the same."""

import pytest
import torch

from repro.attention import BlockLocal, Causal, SlidingWindow
from repro.models import Decoder, DecoderConfig, longformer_patterns, measured_field, receptive_field

N = 40


def fields(patterns):
    config = DecoderConfig(11, 12, 3, patterns, dropout=0.4, position_size=6)
    torch.manual_seed(0)
    model = Decoder(config).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return receptive_field(config.patterns, N), measured_field(model, torch.arange(N) % 11)


@pytest.mark.parametrize("patterns", [
    (SlidingWindow(3),) * 3, (Causal(), SlidingWindow(2)), longformer_patterns((2, 3, 4), 3, (1, 2, 3)),
    longformer_patterns((3, 3), 3, (4, 5), 3), (BlockLocal(7), SlidingWindow(2), SlidingWindow(1)),
], ids=["windows", "causal below", "dilated heads", "all dilated", "blocks"])
def test_gradients_reach_as_far_as_the_patterns_say(patterns):
    computed, measured = fields(patterns)
    assert computed.shape == (len(patterns), N)
    assert torch.equal(computed, measured)


def test_windows_add_up_over_layers():
    """Each layer of window w, its own position included, reaches w - 1 further; dilated d times that."""
    assert receptive_field(longformer_patterns((4,) * 5, 2), N).sum(1).tolist() == [4, 7, 10, 13, 16]
    dilated = receptive_field(longformer_patterns((4,) * 3, 2, (2, 2, 2)), N)
    assert [N - int(row.int().argmax()) for row in dilated] == [7, 13, 19]
    only = receptive_field(longformer_patterns((4,) * 3, 2, (2, 2, 2), 2), N)
    assert only.sum(1).tolist() == [4, 7, 10]  # without an undilated head every second position is never seen
