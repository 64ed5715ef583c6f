"""The memory-compressed decoder: what it may see, position by position, and its attention written out key by key."""

import math

import pytest
import torch
from torch.nn import functional as F

from repro.attention import BlockLocal
from repro.errors import ReproError
from repro.models import TDMCA, TDMCAConfig, tdmca
from repro.models.decoder import LayersConfig, RelativeAttention, sinusoids
from repro.models.experts import Experts, chances
from repro.models.tdmca import CompressedAttention


def randomised(module, seed=0, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return module.double()


def built(**changes):
    settings = {"vocab_size": 11, "n_embd": 12, "n_head": 3, "block": 4, "position_size": 6} | changes
    return randomised(TDMCA(TDMCAConfig(**settings)), size=0.5).eval()


def attention(stride=3):
    return randomised(CompressedAttention(TDMCAConfig(7, 12, 3, position_size=6).stack, stride))


def key_by_key(module, x, waves):
    """Query i: convolutions over the keys and values up to i, padded with zeros to whole groups, then plain attention.
    """
    heads, size = module.u.shape
    width, stride, out = heads * size, module.stride, []
    rates = [10_000 ** (-2 * k / waves) for k in range(waves // 2)]
    for sequence in x:
        query, key, value = (sequence @ part.T for part in module.project.weight.split(width))
        rows = []
        for i in range(len(sequence)):
            padded = (F.pad(part[:i + 1], (0, 0, 0, -(i + 1) % stride)) for part in (key, value))
            keys, values = (F.conv1d(part.T[None], layer.weight, layer.bias, stride)[0].T
                            for part, layer in zip(padded, (module.key_convolution, module.value_convolution),
                                                   strict=True))
            assert len(keys) == i // stride + 1
            mixed = []
            for head in range(heads):
                part, scores = slice(head * size, (head + 1) * size), []
                for group in range(len(keys)):
                    t = i - group * stride
                    r = torch.tensor([math.sin(t * w) for w in rates] + [math.cos(t * w) for w in rates],
                                     dtype=torch.float64)
                    scores.append(((query[i, part] + module.u[head]) @ keys[group, part]
                                   + (query[i, part] + module.v[head]) @ (module.position[head] @ r)) / size**0.5)
                mixed.append(torch.stack(scores).softmax(0) @ values[:, part])
            rows.append(torch.cat(mixed))
        out.append(torch.stack(rows) @ module.out.weight.T)
    return torch.stack(out)


@pytest.mark.parametrize("n,stride,rows", [(13, 3, 512), (12, 3, 5), (11, 3, 4), (9, 2, 2), (5, 1, 512), (2, 3, 512)])
def test_compressed_attention_key_by_key_in_outputs_and_gradients(n, stride, rows, monkeypatch):
    monkeypatch.setattr(tdmca, "ROWS", rows)
    module = attention(stride)
    x, weights = (torch.randn(2, n, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
                  for seed in (1, 2))
    x.requires_grad_()
    told = dict(module.named_parameters()) | {"x": x}

    def output_and_gradients(out):
        return {"output": out.detach()} | dict(zip(told, torch.autograd.grad((out * weights).sum(), told.values()),
                                                   strict=True))

    wanted = output_and_gradients(key_by_key(module, x, 6))
    for implementation in ("auto", "products", "rows"):
        torch.testing.assert_close(output_and_gradients(module(x, sinusoids(n, 6), implementation)), wanted)


@pytest.mark.parametrize("changes", [{}, {"layers": "MLM"}, {"n_experts": 3, "expert_layers": (1, 2)}])
def test_no_later_token_changes_anything_and_every_earlier_one_does(changes):
    """Also across the edges of blocks, where the last group is not whole."""
    model, n = built(**changes), 26
    ids = torch.randint(11, (1, n), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        before = model(ids)[0]
        for j in range(n):
            changed = ids.clone()
            changed[0, j] = (ids[0, j] + 1) % 11
            moved = (model(changed)[0] - before).abs().amax(-1)
            assert not moved[:j].any(), j
            assert (moved[j:] > 1e-12).all(), (j, moved)


@pytest.mark.parametrize("changes", [{}, {"layers": "MLM", "block": 5}, {"n_experts": 3, "expert_layers": (1, 2)}])
def test_reading_on_says_what_reading_all_says(changes):
    """From wherever the text was cut: inside a block and a group, and at the end of either."""
    model, n = built(**changes), 26
    ids = torch.randint(11, (2, n), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = model(ids)
        for first in (1, 2, 3, 4, 5, 6, 13):
            told, past = model.extend(ids[:, :first])
            torch.testing.assert_close(told, wanted[:, first - 1])
            for k in range(first, n, 1 + first % 2):  # one token after the other, or two together
                k = min(k + first % 2, n - 1)
                told, past = model.extend(ids[:, past.n:k + 1], past)
                torch.testing.assert_close(told, wanted[:, k])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_in_16_bits_are_near_those_in_double(dtype):
    model = built(n_experts=3, expert_layers=(1, 2))
    ids = torch.randint(11, (2, 14), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        model.to(dtype).double()  # the same rounded weights
        wanted = model(ids)
        found = model.to(dtype)(ids)
        read, past = model.extend(ids[:, :9])
        last, _ = model.extend(ids[:, 9:], past)
    assert found.dtype == read.dtype == dtype
    for one, other in ((found, wanted), (read, wanted[:, 8]), (last, wanted[:, -1])):
        assert torch.linalg.norm(one.double() - other) < 0.1 * torch.linalg.norm(other)


def test_of_the_past_no_more_is_kept_than_later_tokens_see():
    with torch.no_grad():
        _, past = built().extend(torch.zeros(1, 26, dtype=torch.int64))  # blocks of 4, groups of 3
    assert past.n == 26
    assert [[part.shape[-2] for part in kept] for kept in past.layers] == [[2, 2], [8, 8, 2, 2]] * 2 + [[2, 2]]
    twice = past.select([0, 0])
    assert all(part.shape[0] == 2 for kept in twice.layers for part in kept)


def test_local_layers_attend_inside_their_blocks():
    model = built(layers="L")
    pattern = (BlockLocal(4),) * 3
    wanted = RelativeAttention(LayersConfig(11, 12, 3, (pattern,), position_size=6), pattern)
    wanted.double().load_state_dict(model.layers[0].attention.state_dict())
    for n in (3, 4, 10, 12):
        x = torch.randn(2, n, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
        waves = sinusoids(n, 6)
        torch.testing.assert_close(model.layers[0].local(x, waves, "auto"), wanted(x, waves, "dense"))


def test_sizes_are_counted():
    for changes in ({}, {"n_experts": 4, "expert_layers": (0, 3)}):
        model = built(**changes)
        assert model.config.parameters == sum(weight.numel() for weight in model.parameters())
    config = TDMCAConfig(11, 12, 3, block=4, position_size=6)
    seen = sum(3 * sum(1 for j in range(i + 1) if j // 4 == i // 4) + 2 * len({j // 3 for j in range(i + 1)})
               for i in range(10))
    assert config.pairs_per_token(10) == 3 * seen / 10
    one, two = (TDMCAConfig(11, 12, 3, n_experts=8, k=k).flops_per_token(10) for k in (1, 2))
    assert two - one == 2 * 8 * 12**2  # the second expert of the one layer
    assert one == TDMCAConfig(11, 12, 3).flops_per_token(10)


def test_recomputation_changes_no_gradient():
    ids = torch.randint(11, (2, 14), generator=torch.Generator().manual_seed(0))
    found = []
    for recompute in (False, True):
        model = built(n_experts=3).train()
        model.recompute = recompute
        torch.manual_seed(0)  # of the gate's noise
        (model(ids).square().mean() + model.balance).backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    torch.testing.assert_close(found[0], found[1])
    assert found[0]["layers.2.experts.gate"].abs().max() > 0


@pytest.mark.parametrize("changes,told", [
    ({"kernel": 4}, "a key would see 1 tokens ahead"), ({"kernel": 2}, "1 of 3 tokens would never be seen"),
    ({"layers": "LXM"}, "has 'X'"), ({"block": 0}, "block is 0"), ({"n_experts": -1}, "n_experts is -1"),
    ({"n_experts": 2, "k": 3}, "k is 3; with 2 experts"), ({"n_experts": 2, "k": 0}, "k is 0"),
    ({"n_experts": 2, "expert_layers": (5,)}, "layers 0 to 4"), ({"n_head": 5}, "multiple of the heads"),
    ({"layers": ""}, "layers is ''; it must be at least 1 long")])
def test_bad_sizes_are_told_in_one_line(changes, told):
    with pytest.raises(ReproError, match=told) as error:
        TDMCAConfig(**{"vocab_size": 11, "n_embd": 12, "n_head": 3} | changes)
    assert "\n" not in str(error.value)


def test_without_experts_their_k_changes_nothing():
    one, other = (TDMCAConfig(11, 12, 3, k=k) for k in (1, 3))
    assert one.parameters == other.parameters and one.flops_per_token(10) == other.flops_per_token(10)


@pytest.mark.parametrize("experts", [{"n_experts": 3}, {"n_experts": 4, "k": 1}])
def test_padding_counts_neither_in_the_balance_nor_in_the_use_of_experts(experts):
    """A text of 20 tokens with 200 zeros behind it is balanced as the text alone."""
    model, generator = built(**experts), torch.Generator().manual_seed(4)
    ids = torch.randint(1, 11, (1, 20), generator=generator)
    there = torch.arange(220)[None] < 20
    with torch.no_grad():
        logits = model(ids)
        alone, use = model.balance, model.use[2]
        torch.testing.assert_close(model(F.pad(ids, (0, 200)), there)[:, :20], logits)
        torch.testing.assert_close(model.balance, alone)
        assert model.use[2].equal(use)
        model(F.pad(ids, (0, 200)))
        assert (model.balance - alone).abs() > 1e-3 and model.use[2].sum() == 220 * model.config.k


def test_the_load_of_experts_in_training_is_that_of_the_tokens_that_count():
    """The same noise is drawn for the text whatever stands behind it, so its load can be told apart."""
    experts = randomised(Experts(6, 4, 2))
    x, counted = torch.randn(9, 6, dtype=torch.float64), torch.arange(9) < 5
    torch.manual_seed(0)
    weights, load = experts.weights(x, counted)
    torch.manual_seed(0)
    clean, scale = x @ experts.gate, F.softplus(x @ experts.noise) + 1e-2
    noisy = clean + torch.randn_like(clean) * scale
    torch.testing.assert_close(load, chances(clean[:5], noisy[:5], scale[:5], 2).sum(0))
    assert weights.shape == (9, 4)
