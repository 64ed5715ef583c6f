"""Our Longformer layer against transformers' own."""

import pytest
import torch
from transformers import BertConfig, LongformerConfig
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention as Theirs

from repro.attention import LongformerSelfAttention, SlidingWindow
from repro.errors import ReproError


def theirs(window=8, heads=4, width=32):
    torch.manual_seed(0)
    config = LongformerConfig(hidden_size=width, num_attention_heads=heads, attention_window=[4, window],
                              num_hidden_layers=2, attention_probs_dropout_prob=0.0)
    layer = Theirs(config, layer_id=1).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def ask_theirs(layer, hidden, real, chosen):
    """transformers' layer wants -10000 for padding, 10000 for global tokens."""
    mask = torch.zeros(hidden.shape[:2]).masked_fill(~real, -10000.0).masked_fill(chosen & real, 10000.0)
    return layer(hidden, mask, mask < 0, mask > 0, bool((mask > 0).any()))[0]


@pytest.mark.parametrize("case", ["plain", "padding", "globals", "both", "globals that differ", "one without globals",
                                  "both that differ"])
@pytest.mark.parametrize("implementation", ["auto", "blocked", "dense"])
def test_parity(case, implementation):
    layer, n = theirs(), 48
    hidden = torch.randn(2, n, 32)
    real, chosen = torch.ones(2, n, dtype=torch.bool), torch.zeros(2, n, dtype=torch.bool)
    if case in ("padding", "both"):
        real[1, 37:] = False
    if case in ("globals", "both"):
        chosen[:, [0, 20]] = True
        chosen[:, n - 1] = case == "globals"
    if case == "both that differ":
        real[0, 29:], real[1, :3] = False, False  # the last token of the first sequence is global, but padding
    if "differ" in case or "without" in case:
        chosen[0, [0, 1, n - 1]] = True
        chosen[1, 5] = "differ" in case
    ours = LongformerSelfAttention.from_transformers(layer, implementation=implementation)
    x, y = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    found, want = ours(x, real.long(), chosen.long()), ask_theirs(layer, y, real, chosen)
    torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(want)
    (found * weights).sum().backward()
    (want * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=2e-5, rtol=1e-4)
    for name, parameter in layer.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(dict(ours.named_parameters())[name].grad, parameter.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 7, 45])
def test_any_length(n):
    """transformers' layer wants a multiple of its window, so it gets padding; ours needs none."""
    layer, hidden = theirs(), torch.randn(2, 48, 32)
    real, chosen = torch.arange(48).expand(2, -1) < n, torch.arange(48).expand(2, -1) == torch.tensor([[0], [n - 1]])
    want = ask_theirs(layer, hidden, real, chosen)[:, :n]
    found = LongformerSelfAttention.from_transformers(layer)(hidden[:, :n], global_attention_mask=chosen[:, :n])
    torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-5)


def test_a_window_one_off_is_another_layer():
    layer, hidden = theirs(), torch.randn(1, 48, 32)
    everything = torch.ones(1, 48, dtype=torch.bool)
    want = ask_theirs(layer, hidden, everything, ~everything)
    for window, same in ((6, False), (8, True), (10, False)):
        found = LongformerSelfAttention.from_transformers(layer, window=window)(hidden)
        assert torch.allclose(found, want, atol=1e-5) == same
    assert LongformerSelfAttention.from_transformers(layer, dilation=3).pattern == SlidingWindow(8, 3, causal=False)


def test_global_projections_start_as_the_local_ones():
    ours = LongformerSelfAttention(16, 2, window=4)
    for name in "query", "key", "value":
        local, other = getattr(ours, name), getattr(ours, f"{name}_global")
        assert torch.equal(local.weight, other.weight) and torch.equal(local.bias, other.bias)
        assert local.weight is not other.weight
    hidden = torch.randn(1, 9, 16)
    everything = torch.ones(1, 9)
    wide = LongformerSelfAttention.from_transformers(ours, window=18)
    torch.testing.assert_close(ours(hidden, global_attention_mask=everything), wide(hidden))  # all global: full


def test_from_an_encoder_without_globals():
    config = BertConfig(hidden_size=16, num_attention_heads=2, attention_probs_dropout_prob=0.0,
                        attn_implementation="eager")
    layer, hidden = BertSelfAttention(config).eval(), torch.randn(2, 11, 16)
    ours = LongformerSelfAttention.from_transformers(layer, window=22)
    assert not ours.training
    torch.testing.assert_close(ours(hidden), layer(hidden)[0])
    assert torch.equal(ours.value_global.weight, layer.value.weight)


@pytest.mark.parametrize("with_globals", [False, True])
def test_dropout(with_globals):
    """Brought along from transformers, seeded, off in eval, and on average without effect."""
    theirs = BertSelfAttention(BertConfig(hidden_size=16, num_attention_heads=2, attention_probs_dropout_prob=0.2))
    ours, hidden = LongformerSelfAttention.from_transformers(theirs.double(), window=4), torch.randn(2, 9, 16).double()
    assert ours.training and ours.dropout == 0.2
    assert LongformerSelfAttention.from_transformers(ours, window=4).dropout == 0.2
    chosen = torch.arange(9).expand(2, -1) == 3 if with_globals else None
    found = []
    for seed in 0, 0, *range(300):
        torch.manual_seed(seed)
        found.append(ours(hidden, global_attention_mask=chosen).detach())
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[3])
    trained, read = torch.stack(found[2:]), ours.eval()(hidden, global_attention_mask=chosen)
    error = trained.std(0) / 300**0.5
    assert (error > 0).all() and ((trained.mean(0) - read).abs() < 5 * error).all()


@pytest.mark.parametrize(("make", "said"), [
    (lambda: LongformerSelfAttention(16, 3, 4), "num_heads is 3; it must divide the hidden size"),
    (lambda: LongformerSelfAttention(16, 2, 5), "window is 5; .* must be even"),
    (lambda: LongformerSelfAttention(16, 2, 4, dilation=0), "dilation is 0"),
    (lambda: LongformerSelfAttention.from_transformers(BertSelfAttention(BertConfig())), "window is None"),
    (lambda: LongformerSelfAttention.from_transformers(torch.nn.Linear(2, 2)), "layer is a Linear"),
    (lambda: LongformerSelfAttention(16, 2, 4)(torch.ones(2, 9, 16), torch.ones(2, 1, 1, 9)),
     r"^attention_mask is \(2, 1, 1, 9\); it must be \(B, N\), here \(2, 9\)"),
    (lambda: LongformerSelfAttention(16, 2, 4)(torch.ones(2, 9, 16), None, torch.ones(2, 8)),
     r"global_attention_mask is \(2, 8\)"),
])
def test_bad_input(make, said):
    with pytest.raises(ReproError, match=said):
        make()
