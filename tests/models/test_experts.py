"""The mixture of experts against its formulas written out token by token, and its balance by simulation."""

import copy

import pytest
import torch
from torch.nn import functional as F

from repro.errors import ReproError
from repro.models.experts import Experts, chances, kept, unequal


def mixture(n_experts=4, k=2):
    module = Experts(6, n_experts, k, size=5).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return module


def test_each_token_gets_its_best_experts_weighted():
    module = mixture().eval()
    x = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    told, _, use = module(x)
    counted = [0] * 4
    for row, found in zip(x, told, strict=True):
        scores = row @ module.gate
        best = sorted(range(4), key=lambda e: -scores[e])[:2]
        shares = torch.stack([scores[e] for e in best]).softmax(0)
        wanted = 0
        for share, e in zip(shares, best, strict=True):
            counted[e] += 1
            wanted = wanted + share * (F.gelu(row @ module.inner[e] + module.inner_bias[e]) @ module.outer[e]
                                       + module.outer_bias[e])
        torch.testing.assert_close(found, wanted)
    assert use.tolist() == counted and sum(counted) == 18


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_in_16_bits_are_the_rounded_experts(dtype, training):
    """The gate's products are in float32, so the same experts are chosen; gradients reach all weights."""
    module = mixture().to(dtype).train(training)
    wide = copy.deepcopy(module).float()
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = []
    for one, tokens in ((module, x), (wide, x.float())):
        torch.manual_seed(2)
        out, balance, use = one(tokens)
        (out.float().square().sum() + balance).backward()
        found.append((out, balance, use))
    assert found[0][0].dtype == dtype and found[0][1].dtype == torch.float32 and torch.equal(found[0][2], found[1][2])
    torch.testing.assert_close(found[0][0].float(), found[1][0], rtol=0.03, atol=0.15)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=0)
    for (name, weight), other in zip(module.named_parameters(), wide.parameters(), strict=True):
        if other.grad is not None:
            assert torch.linalg.norm(weight.grad.float() - other.grad) < 0.03 * torch.linalg.norm(other.grad), name


def test_noise_is_for_training_alone():
    module = mixture()
    x = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert (module.train().weights(x)[0] != module.weights(x)[0]).any()
    assert (module.eval().weights(x)[0] == module.weights(x)[0]).all()
    assert ((module.weights(x)[0] > 0).sum(1) == 2).all()


def test_the_load_is_the_chance_of_being_chosen_when_one_noise_is_drawn_anew():
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(1, 4, generator=generator)
    scale = torch.tensor([[0.5, 1.0, 0.3, 2.0]])
    noisy = clean + scale * torch.randn(1, 4, generator=generator)
    found = chances(clean, noisy, scale, 2)[0]
    for expert in range(4):
        again = noisy.repeat(40_000, 1)
        again[:, expert] = clean[0, expert] + scale[0, expert] * torch.randn(40_000, generator=generator)
        share = (again.topk(2).indices == expert).any(1).float().mean()
        assert abs(share - found[expert]) < 0.01
    assert chances(clean, noisy, scale, 4).tolist() == [[1, 1, 1, 1]]


def test_inequality_is_that_of_the_paper():
    assert unequal(torch.tensor([2.0, 2.0, 2.0])) == 0
    torch.testing.assert_close(unequal(torch.tensor([1.0, 3.0])), torch.tensor(0.25))
    assert kept(torch.tensor([[1.0, 3.0, 3.0]]), 2).tolist() == [[0, 0.5, 0.5]]


def test_the_loss_brings_a_lone_expert_company():
    module = mixture(4, 1).train()
    module.gate.data = torch.tensor([[3.0, 0, 0, 0]] * 6, dtype=torch.float64) / 6
    module.noise.data.zero_()
    x = torch.ones(64, 6, dtype=torch.float64)
    optimizer = torch.optim.Adam([module.gate], lr=0.05)
    torch.manual_seed(0)
    first = module(x)[2]
    for _ in range(80):
        optimizer.zero_grad()
        module(x)[1].backward()
        optimizer.step()
    assert first.max() > 60 and module(x)[2].max() < 32


@pytest.mark.parametrize("n,k,told", [(0, 1, "n_experts is 0"), (3, 4, "k is 4"), (3, 0, "k is 0")])
def test_bad_numbers_are_told(n, k, told):
    with pytest.raises(ReproError, match=told):
        Experts(6, n, k)
