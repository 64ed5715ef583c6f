"""Plain products against the reference, in outputs and gradients."""

import pytest
import torch

from repro.attention import Causal, Full, Global, SlidingWindow, Strided, attend
from repro.attention import products as rows
from repro.attention.products import by_rows, products

N = 21
PATTERNS = {
    "window": (SlidingWindow(4), SlidingWindow(4)),
    "each head its own": (SlidingWindow(3, 4), Causal()),
    "global": (SlidingWindow(2, causal=False) | Global([5]), Full()),
}


def inputs(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 2, N, size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for size in (6, 6, 4)]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("kept", [None, 0.5, 0.0])  # share of the keys; the last leaves every query without one
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 0.05)])
def test_outputs_and_gradients_are_those_of_the_reference(name, kept, dtype, tolerance):
    x, patterns, key_mask = inputs(dtype), PATTERNS[name], None
    if kept is not None:
        key_mask = torch.rand(3, N, generator=torch.Generator().manual_seed(1)) < kept
    wide = [part.detach().double().requires_grad_() for part in x]
    want = attend(*wide, patterns, "dense", 0.7, key_mask)
    found = products(*x, patterns, 0.7, key_mask)
    assert found.dtype == dtype and found.shape == (3, 2, N, 4)
    torch.testing.assert_close(found.double(), want, atol=tolerance, rtol=tolerance)
    weights = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    grads = torch.autograd.grad((found.double() * weights).sum(), x)
    for grad, other in zip(grads, torch.autograd.grad((want * weights).sum(), wide), strict=True):
        torch.testing.assert_close(grad.double(), other, atol=4 * tolerance, rtol=4 * tolerance)


def test_scores_are_rounded_and_their_sums_are_not():
    """In bfloat16 257 scores of one size give weights of 1/257: sums rounded on the way would stop at 256."""
    query = torch.zeros(1, 1, 257, 8, dtype=torch.bfloat16)
    value = torch.ones(1, 1, 257, 1, dtype=torch.bfloat16)
    found = products(query, query, value, (Full(),), 1.0)
    assert (found.float() - 1).abs().max() < 0.01


@pytest.mark.parametrize("name", ["window", "each head its own"])
def test_fewer_queries_are_those_of_the_last_positions(name):
    query, key, value = inputs(torch.float64)
    key_mask = torch.arange(N) >= torch.tensor([0, 3, 20])[:, None]
    whole = products(query, key, value, PATTERNS[name], 0.7, key_mask)
    torch.testing.assert_close(products(query[:, :, -5:], key, value, PATTERNS[name], 0.7, key_mask), whole[:, :, -5:])


@pytest.mark.parametrize("patterns", [
    *PATTERNS.values(), (Causal(), Causal()), (Strided(4), Full()), (Global([2]) & Causal(), Causal())], ids=str)
@pytest.mark.parametrize("size", [1, 4, N, 512])
def test_by_rows_gives_the_same_outputs_and_gradients(patterns, size, monkeypatch):
    monkeypatch.setattr(rows, "ROWS", size)
    x, key_mask = inputs(torch.float64), torch.arange(N) >= torch.tensor([0, 3, 20])[:, None]
    weights = torch.randn(3, 2, N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    want, found = (function(*x, patterns, 0.7, key_mask) for function in (products, by_rows))
    torch.testing.assert_close(found, want)
    for grad, other in zip(*(torch.autograd.grad((out * weights).sum(), x) for out in (found, want)), strict=True):
        torch.testing.assert_close(grad, other)


def test_by_rows_computes_no_score_of_a_key_behind_its_queries(monkeypatch):
    """Four of 20 queries at a time see 4, 8, ... 20 keys."""
    monkeypatch.setattr(rows, "ROWS", 4)
    shapes, multiply = [], torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda *x, **more: shapes.append(x[1] @ x[2]) or multiply(*x, **more))
    by_rows(*(part[:, :, :20] for part in inputs(torch.float64)), (Causal(), Causal()), 0.7)
    assert [tuple(one.shape) for one in shapes] == [(6, 4, n) for n in (4, 8, 12, 16, 20)]


def test_dropout_leaves_out_a_share_of_the_weights():
    query, key, _ = inputs(torch.float64)
    told = products(query, key, torch.eye(N, dtype=torch.float64).expand(3, 2, N, N), PATTERNS["window"], 0.7,
                    dropout=0.4)
    wanted = products(query, key, torch.eye(N, dtype=torch.float64).expand(3, 2, N, N), PATTERNS["window"], 0.7)
    kept = told != 0
    torch.testing.assert_close(told[kept], wanted[kept] / 0.6)
    assert kept.sum().item() / (wanted != 0).sum().item() == pytest.approx(0.6, abs=0.08)
