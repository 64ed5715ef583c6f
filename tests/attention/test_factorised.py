"""Strided and fixed attention by rows, columns and gathered summaries, against the dense reference."""

import pytest
import torch

from repro.attention import BlockLocal, Causal, Fixed, SlidingWindow, Strided, attend
from repro.attention.factorised import computed, factorised, factorises
from repro.attention.patterns import Multiples, Summary
from repro.errors import ReproError

PATTERNS = [Strided(7), Multiples(7), Fixed(7, 3), Fixed(7, 2, 1), Summary(7, 3), Summary(7, 2, 2), Strided(1),
            Multiples(1), Fixed(6, 6), Fixed(1, 1), Summary(6, 1)]


def inputs(n, size=4, value_size=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, n, d, generator=generator, dtype=torch.float64).requires_grad_()
            for d in (size, size, value_size)]


@pytest.mark.parametrize("n", [1, 6, 7, 29, 35])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_outputs_and_gradients_are_those_of_dense(pattern, n, monkeypatch):
    monkeypatch.setattr("repro.attention.factorised.SCORES", {"cpu": 100})  # so that there are several pieces
    x, flow = inputs(n), torch.randn(2, 3, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found, wanted = factorised(*x, pattern, 0.7), attend(*x, pattern, "dense", scale=0.7)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(torch.autograd.grad(found, x, flow), torch.autograd.grad(wanted, x, flow), strict=True):
        assert n < 29 or other.abs().max() > 1e-3
        torch.testing.assert_close(one, other)


def test_blocked_takes_them_where_nothing_differs_from_sample_to_sample(monkeypatch):
    x, taken = inputs(29), []
    monkeypatch.setattr("repro.attention.blocked.factorised",
                        lambda *given: taken.append(given[3]) or factorised(*given))
    kept = torch.ones(2, 29, dtype=torch.bool)
    one, other = (attend(*x, Strided(7), "blocked", key_mask=mask) for mask in (None, kept))
    assert taken == [Strided(7)]
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("implementation", ["auto", "dense", "loop", "blocked"])
@pytest.mark.parametrize("pattern", [Strided(50), Strided(9), Fixed(50, 3), Fixed(10, 3)], ids=repr)
def test_a_text_no_longer_than_a_stride_is_seen_whole(pattern, implementation):
    """Strided has one position more: that of a whole stride before."""
    causal = torch.ones(10, 10, dtype=torch.bool).tril()
    assert pattern.mask(10).equal(causal) and Causal().mask(10).equal(causal)
    x = inputs(10)
    weights = (x[0] @ x[1].mT / 2).masked_fill(~causal, -torch.inf).softmax(-1)  # 2: the root of 4 features
    torch.testing.assert_close(attend(*x, pattern, implementation), weights @ x[2])


def test_a_text_longer_than_a_stride_is_not_seen_whole():
    strided, fixed, causal = Strided(8).mask(10), Fixed(9, 3).mask(10), Causal().mask(10)
    assert (causal & ~strided).nonzero().tolist() == [[9, 0]]
    assert (causal & ~fixed).nonzero().tolist() == [[9, j] for j in range(6)]
    assert Fixed(50, 3).heads[0].mask(10).equal(causal) and BlockLocal(50).mask(10).equal(causal)
    assert not Fixed(50, 3).heads[1].mask(10).any()  # the block's summary is not reached


def test_a_query_that_sees_no_key_gets_zeros_and_passes_no_gradient():
    x = inputs(9)
    found = factorised(*x, Summary(4, 1), 1.0)
    assert found[:, :, :3].abs().max() == 0 < found[:, :, 3:].abs().min()
    to_query, to_key, _ = torch.autograd.grad(found.sum(), x)
    assert to_query[:, :, :4].abs().max() == 0  # the fourth sees one key alone, whatever it asks
    assert to_key[:, :, [0, 1, 2, 4, 5, 6, 8]].abs().max() == 0


def test_huge_scores_overflow_nowhere():
    x = [1e3 * one.detach() for one in inputs(20)]
    torch.testing.assert_close(factorised(*x, Strided(4), 1.0), attend(*x, Strided(4), "dense", scale=1.0))


@pytest.mark.parametrize(("pattern", "n", "scores"), [
    (Multiples(4), 12, 4 * 9), (Strided(4), 12, 4 * 9 + 16 * (3 + 2)), (Fixed(4, 2), 12, 3 * 16 + 4 * 2 * (1 + 2)),
    (Summary(4, 2), 12, 3 * 4 * 2 + 4 * 2 * (1 + 2)), (Strided(4), 11, 4 * 9 + 16 * (3 + 2))])
def test_scores_are_counted_as_they_are_computed(pattern, n, scores, monkeypatch):
    counted = []
    told = factorised.__globals__["_scores"]
    monkeypatch.setattr("repro.attention.factorised._scores",
                        lambda *given: counted.append(told(*given)) or counted[-1])
    factorised(*inputs(n), pattern, 1.0)
    assert sum(one.numel() for one in counted) == 6 * computed(pattern, n) == 6 * scores


def test_scores_grow_as_n_to_three_halves():
    counts = [computed(Strided(k), k * k) / (k * k) ** 1.5 for k in (32, 64, 128)]
    assert max(counts) < 3 and max(counts) / min(counts) < 1.05


def test_other_patterns_are_left_to_tiles():
    assert not factorises(SlidingWindow(4)) and not factorises(Strided(4) | SlidingWindow(9))
    assert not factorises(Fixed(4, 2).heads[0]) and factorises(Fixed(4, 2).heads[1])


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("pattern", [Strided(5), Fixed(5, 2)], ids=repr)
def test_every_earlier_position_is_reached_within_one_layer_more_than_there_are_heads(pattern, first):
    """Interleaved: layer r has head r mod 2. Whatever head comes first, three layers reach all that lies before."""
    n = 23
    masks = [head.mask(n) for head in pattern.heads]
    reached = torch.eye(n, dtype=torch.bool)
    for layer in range(3):
        reached = reached | (masks[(first + layer) % 2].double() @ reached.double() > 0)
        if layer == 0:
            assert not reached.equal(torch.ones(n, n).tril().bool())
    assert reached.equal(torch.ones(n, n).tril().bool())


@pytest.mark.parametrize(("sub_block", "told"), [
    (-1, "sub_block is -1 stretches; it must be at least 0"),
    (2, "sub_block is 2; a block of 8 positions has those from 0 to 1 of 4 each")])
def test_a_sub_block_lies_in_its_block(sub_block, told):
    with pytest.raises(ReproError, match=told):
        Fixed(8, 4, sub_block)


def test_a_sub_block_is_counted_from_the_end():
    assert Summary(8, 2).columns == range(6, 8) and Summary(8, 2, 3).columns == range(0, 2)
    union = Summary(8, 4).mask(20) | Summary(8, 4, 1).mask(20)
    assert union.equal(torch.ones(20, 20).tril().bool())
