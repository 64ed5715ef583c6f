"""The one loss, against its definition."""

import math

import pytest
import torch

from repro.loss import cross_entropy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_negative_log_likelihood_in_nats(dtype):
    logits = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0], [1.0, 2.0]], dtype=dtype)
    nll = cross_entropy(logits, torch.tensor([1, 0, -100]), reduction="none")
    assert nll.tolist() == pytest.approx([math.log(4 / 3), math.log(2), 0.0], abs=1e-6)
    assert cross_entropy(logits, torch.tensor([1, 0, -100])).item() == pytest.approx(math.log(8 / 3), abs=1e-6)


@pytest.mark.parametrize(("dtype", "expected"), [
    (torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float32),
    (torch.float64, torch.float64)])
def test_half_precision_is_widened_and_double_kept(dtype, expected):
    logits = torch.randn(50, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    targets = torch.arange(50)
    loss = cross_entropy(logits, targets)
    assert loss.dtype == expected
    exact = (logits.double().logsumexp(1) - logits.double()[targets, targets]).sum()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-12 if dtype == torch.float64 else 1e-6)
