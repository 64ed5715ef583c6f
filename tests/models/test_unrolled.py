"""The LSTM unrolled by hand against PyTorch's: states and the gradients of all that they come from."""

import math

import pytest
import torch
from torch import nn

from repro.bf16 import has_bf16
from repro.errors import ReproError
from repro.models import LSTM, LSTMConfig
from repro.models.unrolled import unrolled


def told(read, layer, inputs):
    """States, and the gradients of a weighed sum of them by inputs and weights."""
    inputs = inputs.clone().requires_grad_()
    layer.zero_grad()
    states = read(inputs)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    (states.float() * weights).sum().backward()
    return [states.detach(), inputs.grad, *(weight.grad for weight in layer.parameters())]


@pytest.mark.parametrize("batch, n", [(1, 1), (3, 11), (2, 40)])
def test_in_single_precision_it_is_pytorch_s_lstm(batch, n):
    torch.manual_seed(0)
    layer, inputs = nn.LSTM(5, 7, batch_first=True), torch.randn(batch, n, 5)
    for one, other in zip(told(lambda x: unrolled(x, layer, torch.float32), layer, inputs),
                          told(lambda x: layer(x)[0], layer, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def test_in_16_bits_it_is_off_by_rounding_alone():
    torch.manual_seed(0)
    layer, inputs = nn.LSTM(32, 48, batch_first=True), torch.randn(4, 30, 32)
    ours, theirs = told(lambda x: unrolled(x, layer), layer, inputs), told(lambda x: layer(x)[0], layer, inputs)
    assert ours[0].dtype == torch.bfloat16
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() / other.norm() < 3 * 2**-8


def test_cells_are_kept_in_single_precision():
    """Gates that keep everything and let in 2^-9 a step: in 16 bits a cell of 1 would grow no more."""
    layer = nn.LSTM(1, 1, batch_first=True)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
        layer.bias_ih_l0.copy_(torch.tensor([100.0, 100.0, math.atanh(2**-9), 100.0]))
        states = unrolled(torch.zeros(1, 3_000, 1), layer)
    assert states[0, -1].item() > 0.99 > math.tanh(2.0)


def test_autocast_works_products_out_in_16_bits_and_only_autocast_does():
    torch.manual_seed(0)
    model, ids = LSTM(LSTMConfig(vocab_size=30, n_embd=16, units=24)), torch.randint(0, 30, (2, 12))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model.hidden(ids)
        assert torch.equal(rounded, model.back(unrolled(model.embed(ids), model.recurrent)))
        if has_bf16():  # or torch has no LSTM in 16 bits
            assert not torch.equal(rounded, model.back(model.recurrent(model.embed(ids))[0]))
    plain = model.hidden(ids)
    assert torch.equal(plain, model.back(model.recurrent(model.embed(ids))[0]))
    assert (rounded.float() - plain).norm() / plain.norm() < 0.02


@pytest.mark.parametrize("settings", [{"num_layers": 2}, {"bidirectional": True}, {"batch_first": False},
                                      {"bias": False}, {"proj_size": 2}])
def test_another_layer_is_refused(settings):
    layer = nn.LSTM(3, 4, **{"batch_first": True} | settings)
    with pytest.raises(ReproError, match="the layer is LSTM.* it must be one LSTM"):
        unrolled(torch.zeros(1, 2, 3), layer)
