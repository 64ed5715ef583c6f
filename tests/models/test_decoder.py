"""The decoder against Dai et al. (2019) written out pair by pair, under every kind of pattern and implementation."""

import math

import pytest
import torch
from torch.nn import functional as F

from repro.attention import BlockLocal, Causal, Fixed, Full, Global, SlidingWindow, Strided
from repro.attention.implementations import IMPLEMENTATIONS, Case, refusal
from repro.errors import ReproError
from repro.models import Decoder, DecoderConfig, decoder, longformer_patterns
from repro.models.decoder import DETAILS, POSITIONS, RelativeAttention, rotated, sinusoids

N = 13
PATTERNS = {
    "causal": (Causal(),) * 3,
    "window": (SlidingWindow(4),) * 3,
    "itself only": (SlidingWindow(1),) * 3,
    "wider than the text": (SlidingWindow(40),) * 3,
    "dilated": (SlidingWindow(3, 4),) * 3,
    "each head its own": (SlidingWindow(3, 2), Causal(), SlidingWindow(5)),
    "union": (SlidingWindow(2) | SlidingWindow(3, 5), Strided(4), SlidingWindow(1)),
}


def randomised(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return module.double()


def attention(patterns, position_size=6, n_embd=12):
    return randomised(RelativeAttention(DecoderConfig(7, n_embd, 3, (patterns,), position_size=position_size),
                                        patterns))


def pair_by_pair(module, x):
    """Equation 3.3 of Dai et al., one query and one key at a time; r_t has the sines of t first, then the cosines.
    Without relative positions the products of queries and keys alone."""
    heads, width = len(module.patterns), module.out.weight.shape[0]
    size, relative = width // heads, hasattr(module, "position")
    waves = module.position.shape[2] if relative else 0
    rates = [10_000 ** (-2 * k / waves) for k in range(waves // 2)]
    out = []
    for sequence in x:
        query, key, value = (sequence @ part.T for part in module.project.weight.split(width))
        rows = []
        for i in range(len(sequence)):
            mixed = []
            for head in range(heads):
                part, scores, values = slice(head * size, (head + 1) * size), [], []
                for j in range(len(sequence)):
                    if module.patterns[head](i, j):
                        t = i - j
                        r = torch.tensor([math.sin(t * rate) for rate in rates]
                                         + [math.cos(t * rate) for rate in rates], dtype=torch.float64)
                        content = (query[i, part] + (module.u[head] if relative else 0)) @ key[j, part]
                        where = (query[i, part] + module.v[head]) @ (module.position[head] @ r) if relative else 0
                        scores.append((content + where) / math.sqrt(size))
                        values.append(value[j, part])
                mixed.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            rows.append(torch.cat(mixed))
        out.append(torch.stack(rows) @ module.out.weight.T)
    return torch.stack(out)


@pytest.mark.parametrize("name", PATTERNS)
def test_attention_is_that_of_dai_pair_by_pair(name):
    module = attention(PATTERNS[name])
    x = torch.randn(2, N, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weights = torch.randn(2, N, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    told = dict(module.named_parameters()) | {"x": x}

    def output_and_gradients(out):
        return {"output": out.detach()} | dict(zip(told, torch.autograd.grad((out * weights).sum(), told.values()),
                                                   strict=True))

    wanted = output_and_gradients(pair_by_pair(module, x))
    assert name == "itself only" or min(gradient.abs().max() for gradient in wanted.values()) > 1e-3
    case = Case(module.patterns[1], N, "cpu", x.dtype, gradients=True)
    able = ["auto", *(one for one in IMPLEMENTATIONS if not refusal(one, case))]
    plain = name in ("window", "itself only", "wider than the text")  # what chunks can compute
    assert able == ["auto", "dense", "loop"] + ["chunks"] * plain + ["blocked"] * (Causal() not in module.patterns)
    for implementation in (*able, "products", "rows"):
        found = output_and_gradients(module(x, sinusoids(N, 6), implementation))
        torch.testing.assert_close(found, wanted, msg=lambda text, name=implementation: f"{name}: {text}")
    with torch.no_grad():  # flex has no gradients on a CPU
        torch.testing.assert_close(module(x, sinusoids(N, 6), "flex"), wanted["output"])


def test_relative_scores_stay_exact_far_into_a_text():
    """In single precision too, and they depend on i - j alone."""
    n, size = 32_256, 64
    waves = sinusoids(n, size)
    weights = torch.randn(1, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = rotated(weights.float().expand(n, -1), waves.float())
    for i, j in ((5, 5), (n - 1, n - 1), (n - 1, n - 400), (n - 1, 3), (400, 1)):
        torch.testing.assert_close((features[i] @ waves[j].float()).double(), weights[0] @ waves[i - j], atol=1e-4,
                                   rtol=0)


def model(patterns, **changes):
    settings = {"vocab_size": 11, "n_embd": 12, "n_head": 3, "position_size": 6} | changes
    return randomised(Decoder(DecoderConfig(patterns=patterns, **settings)))


@pytest.mark.parametrize(("positions", "details"), [
    ("relative", ()), ("none", ()), ("absolute", ()), ("absolute", ("scaled",)), *(
        ("relative", (detail,)) for detail in DETAILS), ("relative", tuple(DETAILS))])
def test_the_layers_are_put_together_as_written(positions, details):
    """Pre-layernorm, GELU, residual connections, tied embeddings; and what is chosen instead."""
    built = model((SlidingWindow(3), Causal()), positions=positions, details=details, dropout=0.5).eval()
    ids = torch.arange(2 * N).view(2, N) % 11

    def norm(x, layer):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias

    x = built.embed.weight[ids] * (math.sqrt(12) if "scaled" in details else 1)
    if positions == "absolute":
        rates = [10_000 ** (-2 * k / 6) for k in range(3)]
        waves = [[wave(i * rate) for wave in (math.sin, math.cos) for rate in rates] for i in range(N)]
        x = x + torch.tensor(waves, dtype=torch.float64) @ built.place.weight.T
    one, other = (layer.attention for layer in built.layers)
    if positions == "relative":
        assert all(torch.equal(getattr(one, name), getattr(other, name)) is ("shared" in details) for name in "uv")
    for layer in built.layers:
        x = x + pair_by_pair(layer.attention, norm(x, layer.norm_1))
        inner = norm(x, layer.norm_2) @ layer.inner.weight.T + layer.inner.bias
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + inner @ layer.outer.weight.T + layer.outer.bias
    wanted = (x if "bare" in details else norm(x, built.norm)) @ built.embed.weight.T + built.bias
    torch.testing.assert_close(built(ids), wanted)


def test_no_position_sees_a_later_one():
    built, ids = model(longformer_patterns((2, 5), 3, (1, 2))), torch.arange(N)[None] % 11
    before = built(ids)
    ids[0, 8] = 10
    changed = (built(ids) - before).abs().amax((0, 2)) > 0
    assert changed.nonzero().flatten().tolist() == list(range(8, N))


def test_size_of_the_papers_models():
    """Tables 2 and 3 print 41 and 102 million weights; W of the positions in each layer counts."""
    for layers, printed in ((12, 41), (30, 102)):
        config = DecoderConfig(205, 512, 8, (Causal(),) * layers)
        assert int(config.parameters / 1e6) == printed


@pytest.mark.parametrize(("positions", "details"), [
    ("relative", ()), ("none", ()), ("absolute", ("bare",)), ("relative", ("shared", "scaled")),
    ("relative", tuple(DETAILS))])
def test_counts_are_those_of_the_model(positions, details):
    config = DecoderConfig(11, 12, 3, longformer_patterns((2, 5), 3, (1, 2), 1), position_size=6, positions=positions,
                           details=details)
    assert config.parameters == sum(weight.numel() for weight in Decoder(config).parameters())
    pairs = sum(int(pattern.mask(N).sum()) for layer in config.patterns for pattern in layer)
    assert config.pairs_per_token(N) == pairs / N
    in_layers = sum(weight.numel() for name, weight in Decoder(config).named_parameters()
                    if "layers" in name and weight.ndim > 1 and not name.endswith((".u", ".v")))
    assert config.matrices == in_layers
    waves = 6 if positions == "relative" else 0
    by_hand = 2 * in_layers + 2 * 12 * 11 + pairs / N * (2 * (4 + waves) + 2 * 4)
    by_hand += 2 * 6 * 12 * (positions == "absolute")
    assert config.flops_per_token(N) == pytest.approx(by_hand)


def test_attention_is_single_precision_under_mixed_precision(monkeypatch):
    seen = []
    plain = decoder.attend
    monkeypatch.setattr(decoder, "attend", lambda query, *rest, **more: seen.append(query.dtype)
                        or plain(query, *rest, **more))
    built = Decoder(DecoderConfig(11, 12, 3, (Causal(),)))
    with torch.autocast("cpu", torch.bfloat16):
        logits = built(torch.arange(N)[None] % 11)
    assert seen == [torch.float32] and logits.dtype == torch.bfloat16


def test_products_take_the_precision_that_autocast_gives(monkeypatch):
    seen = []
    plain = decoder.products
    monkeypatch.setattr(decoder, "products", lambda query, key, value, *rest: seen.append(
        {query.dtype, key.dtype, value.dtype}) or plain(query, key, value, *rest))
    built, ids = Decoder(DecoderConfig(11, 12, 3, (SlidingWindow(4), Causal()))), torch.arange(2 * N).view(2, N) % 11
    want = built(ids)
    built.implementation = "products"
    torch.testing.assert_close(built(ids), want)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = built(ids)
    assert seen == [{torch.float32}] * 2 + [{torch.bfloat16}] * 2
    torch.testing.assert_close(rounded.float(), want, atol=2e-2, rtol=2e-2)
    assert not torch.equal(rounded.float(), want)


def test_scores_of_positions_are_single_precision_under_mixed_precision(monkeypatch):
    """Whole numbers pass through the projections exactly in bfloat16, so nothing else may differ."""
    seen = []
    monkeypatch.setattr(decoder, "attend", lambda query, key, value, *rest, **more: seen.append((query, key)) or value)
    module, x = attention((SlidingWindow(4),) * 3).float(), torch.arange(N * 12).view(1, N, 12) % 3 - 1.0
    module.project.weight.data.sign_()
    for mixed in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            module(x, sinusoids(N, 6), "auto")
    for plain, other in zip(*seen, strict=True):
        assert torch.equal(plain, other)


def test_recomputation_changes_nothing():
    ids, gradients = torch.arange(2 * N).view(2, N) % 11, []
    for recompute in (False, True):
        built = model(longformer_patterns((2, 5), 3), dropout=0.3)
        built.recompute = recompute
        torch.manual_seed(3)
        loss = F.cross_entropy(built(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        gradients.append(torch.autograd.grad(loss, list(built.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_dropout_only_in_training():
    built, ids = model((Causal(),), dropout=0.5), torch.arange(N)[None] % 11
    assert not torch.equal(built(ids), built(ids))
    built.eval()
    assert torch.equal(built(ids), built(ids))


@pytest.mark.parametrize("details", [(), ("dropout",)])
def test_transformer_xl_drops_inside_the_feedforward_network_and_before_the_output(details):
    built, seen = model((Causal(),), dropout=0.5, details=details), []
    built.layers[0].outer.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    built.last_dropout.register_forward_hook(lambda module, given, out: seen.append(out))
    for training in (True, False):
        built.train(training)(torch.arange(N)[None] % 11)
    dropped = [bool((one == 0).float().mean() > 0.2) for one in seen]
    assert dropped == [bool(details), bool(details), False, False]


def test_what_is_added_to_embeddings_is_of_their_size_at_first():
    torch.manual_seed(0)
    built = Decoder(DecoderConfig(500, 64, 4, (Causal(),), position_size=32, positions="absolute"))
    added = built.place(sinusoids(200, 32).float())
    assert added.std().item() == pytest.approx(built.embed.weight.std().item(), rel=0.15)


def test_longformers_patterns():
    patterns = longformer_patterns((32, 64), 4, (1, 3))
    assert patterns[0] == (SlidingWindow(32),) * 4
    assert patterns[1] == (SlidingWindow(64, 3),) * 2 + (SlidingWindow(64),) * 2
    assert longformer_patterns((32,), 4) == longformer_patterns((32,), 4, (7,), dilated_heads=0)


@pytest.mark.parametrize(("make", "told"), [
    (lambda: longformer_patterns((32, 64), 4, (1,)), "dilation names 1 layers and windows 2"),
    (lambda: longformer_patterns((32,), 4, (2,), 5), "dilated_heads is 5; it must be between 0 and n_head .4."),
    (lambda: longformer_patterns((0,), 4), "window is 0 keys; it must be at least 1"),
    (lambda: longformer_patterns((4,), 4, (0,)), "dilation is 0 positions; it must be at least 1"),
    (lambda: DecoderConfig(7, 10, 3, (Causal(),)), "n_embd is 10 and n_head 3"),
    (lambda: DecoderConfig(7, 12, 3, ()), r"patterns is \(\); it must be at least 1 long"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(), (Causal(),) * 2)), "patterns names 2 heads in layer 1.*n_head is 3"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(),), position_size=5), "position_size is 5; it must be even"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(),), dropout=1.0), "dropout is 1.0"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(), Full())), "patterns has Full.. in layer 1, which sees later"),
    (lambda: DecoderConfig(7, 12, 3, ((Causal(), Causal(), Causal() | Global([70])),)), "which sees later positions"),
    (lambda: DecoderConfig(7, 12, 3, (SlidingWindow(2, causal=False),)), "which sees later positions"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(),), positions="absolut"), "positions 'absolut'. Did you mean 'absolute'"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(),), details=("scale",)), "details 'scale'. Did you mean 'scaled'"),
    (lambda: DecoderConfig(7, 12, 3, (Causal(),), positions="none", details=("shared",)), "only relative ones have u"),
])
def test_settings_that_cannot_be(make, told):
    with pytest.raises(ReproError, match=told):
        make()


def test_causal_patterns_of_every_kind_are_taken():
    narrowed = SlidingWindow(4, causal=False) & Causal()
    assert DecoderConfig(7, 12, 3, (narrowed, Strided(4), SlidingWindow(0, causal=False))).n_layer == 3


@pytest.mark.parametrize("patterns", [*PATTERNS.values(), (BlockLocal(4), *Fixed(4, 1).heads)], ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_text_read_in_parts_gives_the_logits_of_the_whole_text(patterns, positions, monkeypatch):
    """Also for a head whose first queries see no key: the last of `patterns`."""
    monkeypatch.setattr(decoder, "ROWS", 5)
    model = randomised(Decoder(DecoderConfig(7, 12, 3, (patterns,) * 2, positions=positions)))
    ids = torch.randint(7, (2, N), generator=torch.Generator().manual_seed(1))
    want = model(ids)
    for first in 1, 4, 7:
        logits, past = model.extend(ids[:, :first])
        torch.testing.assert_close(logits, want[:, first - 1])
        for k in range(first, N):
            logits, past = model.extend(ids[:, k:k + 1], past)
            torch.testing.assert_close(logits, want[:, k])
    weights = [torch.autograd.grad(out.square().sum(), list(model.parameters()), allow_unused=True)
               for out in (model.extend(ids)[0], model(ids)[:, -1])]
    for grad, other in zip(*weights, strict=True):
        torch.testing.assert_close(grad, other)
