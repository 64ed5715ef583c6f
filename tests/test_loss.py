"""The losses, against their definitions."""

import math

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.loss import any_span_loss, cross_entropy


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


def test_targets_may_be_int32():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    grads = []
    for targets in (torch.tensor([4, -100, 0]), torch.tensor([4, -100, 0], dtype=torch.int32)):
        grads += torch.autograd.grad(cross_entropy(logits, targets), logits)
    assert torch.equal(*grads)
    for targets in (torch.ones(3), torch.ones(3, dtype=torch.bool), torch.ones(4, dtype=torch.int32)):
        with pytest.raises(ReproError, match=r"targets torch.* of shape .*; give floats \(n, V\) and int64 \(n,\)"):
            cross_entropy(logits, targets)


SPANS = [[(0, 1)], [(2, 4), (2, 5), (3, 5)], [(6, 6), (0, 6), (6, 6)]]


def by_enumeration(start, end, spans, mask):
    """-log of probabilities that are summed one by one, in double precision."""
    losses = []
    for row, pairs in enumerate(spans):
        for logits, right in ((start, {one for one, _ in pairs}), (end, {other for _, other in pairs})):
            weights = [math.exp(logits[row, k]) * float(mask[row, k]) for k in range(logits.shape[1])]
            losses.append(-math.log(sum(weights[k] for k in right) / sum(weights)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("masked", [False, True])
def test_any_span_is_right(masked):
    draw = torch.Generator().manual_seed(0)
    start, end = (2 * torch.randn(3, 7, generator=draw, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(3, 7, dtype=torch.bool)
    if masked:
        mask[0, 2:] = mask[1, 0] = mask[1, 6] = mask[2, 3] = False
    want = by_enumeration(start, end, SPANS, mask)
    given = mask if masked else None
    assert any_span_loss(start, end, SPANS, given).item() == pytest.approx(want, rel=1e-12)
    assert any_span_loss(start, end, SPANS, mask).item() == pytest.approx(want, rel=1e-12)
    found = any_span_loss(start.float(), end.float(), [torch.tensor(one) for one in SPANS], given)
    assert found.dtype == torch.float32 and found.item() == pytest.approx(want, rel=1e-5)


def test_each_example_has_its_own_loss():
    start, end = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(4))
    each = any_span_loss(start, end, SPANS, reduction="none")
    want = [any_span_loss(start[k:k + 1], end[k:k + 1], SPANS[k:k + 1]) for k in range(3)]
    torch.testing.assert_close(each, torch.stack(want))
    torch.testing.assert_close(any_span_loss(start, end, SPANS), each.mean())
    with pytest.raises(ReproError, match="reduction"):
        any_span_loss(start, end, SPANS, reduction="sum")


def test_gradients_of_spans():
    """They match finite differences, are 0 outside the mask, and stay finite where the rest has infinite logits."""
    draw = torch.Generator().manual_seed(1)
    start, end = (torch.randn(3, 7, generator=draw, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 0] = mask[2, 3] = False
    assert torch.autograd.gradcheck(lambda *ends: any_span_loss(*ends, SPANS, mask), (start, end))
    any_span_loss(start, end, SPANS, mask).backward()
    assert not start.grad[~mask].any() and start.grad[mask].all()
    far = torch.tensor([[0.0, -torch.inf, 1.0]], requires_grad=True)
    any_span_loss(far, far, [[(0, 2)]]).backward()
    assert far.grad.isfinite().all()


def test_spans_under_bf16_autocast():
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(8, 2), torch.randn(3, 7, 8)
    with torch.autocast("cpu", torch.bfloat16):
        start, end = head(hidden).unbind(-1)
        assert start.dtype == torch.bfloat16
        found = any_span_loss(start, end, SPANS)
    found.backward()
    assert found.dtype == torch.float32 and head.weight.grad.isfinite().all()
    assert found.item() == pytest.approx(any_span_loss(start.double(), end.double(), SPANS).item(), rel=1e-6)


def test_one_span_costs_two_cross_entropies():
    start, end = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(2))
    starts, ends = torch.tensor([0, 3, 8, 1]), torch.tensor([2, 3, 8, 7])
    spans = [[pair] for pair in zip(starts.tolist(), ends.tolist(), strict=True)]
    want = (cross_entropy(start, starts) + cross_entropy(end, ends)) / 8
    torch.testing.assert_close(any_span_loss(start, end, spans), want)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple])
def test_spans_may_be_arrays(kind):
    start, end = torch.randn(2, 2, 9, generator=torch.Generator().manual_seed(3))
    spans = [[(0, 1), (2, 4)], [(3, 3), (3, 8)]]
    want = any_span_loss(start, end, spans)
    assert any_span_loss(start, end, kind(spans)) == want
    assert any_span_loss(start, end, [kind(one) for one in spans]) == want
    single = int if kind is tuple else kind
    assert any_span_loss(start, end, [[tuple(map(single, pair)) for pair in one] for one in spans]) == want


LOGITS, ALL = torch.zeros(2, 5), torch.ones(2, 5, dtype=torch.bool)


@pytest.mark.parametrize(("spans", "mask", "said"), [
    ([[(0, 1)], []], None, "example 1 has no span"),
    ([[(0, 1)], [(3, 2)]], None, r"span of example 1 is \(3, 2\); it must not end before it starts"),
    ([[(0, 5)], [(0, 0)]], None, r"span of example 0 is \(0, 5\), but the text has tokens 0 to 4"),
    ([[(-1, 2)], [(0, 0)]], None, r"span of example 0 is \(-1, 2\), but the text has tokens 0 to 4"),
    ([[(0, 1)], [(2, 3)]], ALL & (torch.arange(5) != 3), "example 1 starts or ends at token 3, where the mask"),
    ([[(0, 1)], [(2, 3)]], ALL & (torch.arange(5) != 2), "example 1 starts or ends at token 2, where the mask"),
    ([[(0, 1)]], None, "spans of each of the 2 examples"), (None, None, "spans are None"), ("ab", None, "a span of"),
    ([[(0, 1)], [3]], None, "a span of example 1 is 3; give a pair"),
    ([[(0, 1)], 3], None, "a span of example 1 is 3; give a pair"),
    ([[(0, 1.0)], [(0, 1)]], None, r"a span of example 0 is \(0, 1.0\)"),
    ([[(0, 1)]] * 2, torch.ones(2, 5), r"mask is torch.float32 \(2, 5\)"),
    ([[(0, 1)]] * 2, ALL[:1], r"mask is torch.bool \(1, 5\)"), ([[(0, 1)]] * 2, [True], "mask is list"),
])
def test_bad_spans(spans, mask, said):
    with pytest.raises(ReproError, match=said):
        any_span_loss(LOGITS, LOGITS, spans, mask)


class OnGPU(torch.Tensor):
    """A tensor that reports a GPU as its device."""

    device = torch.device("cuda", 0)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_span_outside_the_mask_is_refused_in_training_on_every_device(compiled):
    """Not only where values are cheap to look at: its loss would be inf, and its gradients NaN."""
    loss = torch.compile(any_span_loss, backend="eager") if compiled else any_span_loss
    logits = torch.zeros(2, 5, requires_grad=True)
    mask = ALL & (torch.arange(5) != 3)
    mask = mask if compiled else mask.as_subclass(OnGPU)
    assert loss(logits, logits, [[(0, 2)], [(1, 2)]], mask).item() == pytest.approx(math.log(4))
    with pytest.raises(ReproError, match="a span of example 1 starts or ends at token 3, where the mask allows no"):
        loss(logits, logits, [[(0, 2)], [(1, 3)]], mask)


@pytest.mark.parametrize(("start", "end"), [
    (LOGITS, LOGITS[:1]), (LOGITS[0], LOGITS[0]), (LOGITS.long(), LOGITS.long()), (None, LOGITS), (LOGITS, [0.0]),
    (LOGITS[:0], LOGITS[:0])])
def test_bad_logits_of_spans(start, end):
    with pytest.raises(ReproError, match=r"got start_logits \(.*\) and end_logits \(.*\); give two tensors of floats"):
        any_span_loss(start, end, [[(0, 1)]] * 2)
