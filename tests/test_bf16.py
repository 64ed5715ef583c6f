"""Bfloat16 products through float32: beside exact ones that are rounded once, and beside torch's own."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from repro import bf16
from repro.models import GPT, GPTConfig
from repro.training import NextToken, Sequences, TrainConfig, train

CPU, HALF = torch.device("cpu"), torch.bfloat16
ROUNDING = 2.0**-8  # of a number by rounding to bfloat16, at most


@pytest.fixture
def without(monkeypatch):
    """As on a processor without the instructions."""
    monkeypatch.setattr(bf16, "has_bf16", lambda: False)


@pytest.fixture
def widened(monkeypatch):
    """What has been widened, by its shape."""
    found = []
    plain = bf16._widened
    monkeypatch.setattr(bf16, "_widened", lambda x: found.append(tuple(x.shape)) or plain(x))
    return found


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(HALF)


PRODUCTS = {
    "mm": lambda a, b, c: a[0] @ b[0], "bmm": lambda a, b, c: a @ b,
    "addmm": lambda a, b, c: torch.addmm(c[0], a[0], b[0], beta=0.5, alpha=2),
    "baddbmm": lambda a, b, c: torch.baddbmm(c, a, b, beta=-1)}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_the_exact_one_rounded_once(without, widened, name):
    given = draw(2, 5, 300), draw(2, 300, 7, seed=1), draw(2, 5, 7, seed=2)
    with bf16.bf16_products(CPU):
        found = PRODUCTS[name](*given)
    exact = PRODUCTS[name](*(x.double() for x in given))
    assert found.dtype == HALF and widened
    assert ((found.double() - exact).abs() <= ROUNDING * exact.abs() + 1e-4).all()


def test_a_layer_is_torchs_own_but_where_rounding_ties(without, widened):
    def told():
        torch.manual_seed(0)
        layer = torch.nn.Linear(64, 48)
        with torch.autocast("cpu", HALF):
            out = layer(draw(2, 9, 64).float())
        out.backward(draw(2, 9, 48, seed=1))  # the same whatever comes out
        return out, layer.weight.grad

    theirs = told()
    assert not widened
    with bf16.bf16_products(CPU):
        ours = told()
    assert widened
    for one, other in zip(ours, theirs, strict=True):
        assert (one != other).float().mean() < 0.02
        torch.testing.assert_close(one, other, rtol=2 * ROUNDING, atol=1e-6)


def test_fused_attention_is_no_farther_from_exact_than_torchs_own(without, widened):
    query, key, value, grad = (draw(2, 2, 40, 8, seed=seed) for seed in range(4))

    def told(dtype):
        parts = [x.to(dtype, copy=True).requires_grad_() for x in (query, key, value)]
        out = scaled_dot_product_attention(*parts, is_causal=True)
        out.backward(grad.to(dtype))
        return [x.double() for x in (out.detach(), *(part.grad for part in parts))]

    exact, theirs = told(torch.float64), told(HALF)
    assert not widened
    with bf16.bf16_products(CPU):
        ours = told(HALF)
    assert widened
    for one, other, right in zip(ours, theirs, exact, strict=True):
        assert (one - right).norm() <= 1.05 * (other - right).norm() and (one - right).norm() < 0.01 * right.norm()


def test_a_block_trains_as_it_does_by_torchs_own(without, widened):
    def told():
        torch.manual_seed(0)
        layer = torch.nn.Linear(16, 48)
        with torch.autocast("cpu", HALF):
            parts = layer(draw(2, 9, 16).float()).chunk(3, 2)
            query, key, value = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in parts)
            out = scaled_dot_product_attention(query, key, value, is_causal=True)
        out.float().square().sum().backward()
        return out.dtype, out.double(), layer.weight.grad.double(), layer.bias.grad.double()

    kind, *theirs = told()
    assert not widened
    with bf16.bf16_products(CPU):
        same, *ours = told()
    assert widened and kind == same == HALF
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() < 4 * ROUNDING * other.norm()


@pytest.mark.parametrize(("device", "wanted", "has_it"), [("cuda", True, False), ("cpu", False, False),
                                                          ("cpu", True, True)])
def test_nothing_changes_where_it_would_not_help(monkeypatch, widened, device, wanted, has_it):
    monkeypatch.setattr(bf16, "has_bf16", lambda: has_it)
    with bf16.bf16_products(torch.device(device), wanted):
        draw(3, 4) @ draw(4, 3)
    assert not widened


@pytest.mark.parametrize(("precision", "optimizer", "is_used"), [
    ("bf16", "adamw", True), ("no", "muon", True), ("no", "adamw", False)])
def test_a_training_asks_for_it_where_it_multiplies_such_numbers(without, widened, precision, optimizer, is_used):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=9, n_positions=16, n_layer=1, n_embd=16, n_head=2))
    text = Sequences(torch.arange(500).numpy() % 9, length=8, batch_size=8)
    settings = TrainConfig(tokens=6_400, learning_rate=1e-2, warmup_steps=5, precision=precision, optimizer=optimizer)
    result = train(NextToken(model), text, settings, device="cpu")
    assert result.curves["train_loss"][-1][1] < result.curves["train_loss"][0][1] / 2
    assert bool(widened) == is_used
