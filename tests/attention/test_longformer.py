"""Our Longformer layer against transformers' own, alone and inside its models."""

import copy

import pytest
import torch
from transformers import BertConfig, LEDConfig, LEDModel, LongformerConfig, LongformerForMaskedLM
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention as Theirs

from repro.attention import LongformerSelfAttention, SlidingWindow
from repro.errors import ReproError
from repro.models import Longformer


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
                                  "both that differ", "many globals"])  # as many as numbers in a head: projected
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
    if case == "many globals":
        chosen[0, 7:16], chosen[1, 30:33], real[0, 44:] = True, True, False
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


def replaced(model):
    """A copy of a Longformer whose layers attend by ours."""
    model = copy.deepcopy(model)
    for layer in model.longformer.encoder.layer:
        layer.attention.self = LongformerSelfAttention.from_transformers(layer.attention.self)
    return model


@pytest.mark.parametrize("n", [24, 1, 19])
@pytest.mark.parametrize("case", ["plain", "padding", "globals", "both"])
def test_inside_their_model(case, n, shake, tmp_path):
    """Logits, loss and every gradient of a whole LongformerForMaskedLM; what ours saves, theirs loads."""
    config = LongformerConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=3, intermediate_size=24,
                              attention_window=[4, 8, 8], vocab_size=31, max_position_embeddings=64, pad_token_id=1,
                              attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    theirs = shake(LongformerForMaskedLM(config)).train()
    ours = replaced(theirs)
    ids = torch.randint(2, 31, (2, n), generator=torch.Generator().manual_seed(0))
    masks = {"attention_mask": torch.ones_like(ids), "global_attention_mask": torch.zeros_like(ids)}
    if case in ("padding", "both"):
        masks["attention_mask"][1, n // 2 + 1:] = 0
    if case in ("globals", "both"):
        masks["global_attention_mask"][0, [0, n // 3, n - 1]] = masks["global_attention_mask"][1, n // 2] = 1
    labels = ids.masked_fill(masks["attention_mask"] == 0, -100)
    found, want = (model(ids, **masks, labels=labels) for model in (ours, theirs))
    torch.testing.assert_close(found.logits, want.logits, atol=1e-4, rtol=1e-4)
    found.loss.backward()
    want.loss.backward()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        grads = [torch.zeros_like(part) if part.grad is None else part.grad for part in (one, other)]
        torch.testing.assert_close(*grads, atol=1e-4, rtol=1e-3, msg=lambda said, name=name: f"{name}: {said}")
    if case == "both":
        ours.save_pretrained(tmp_path)
        again = LongformerForMaskedLM.from_pretrained(tmp_path).train()
        torch.testing.assert_close(again(ids, **masks).logits, want.logits)


def test_a_replaced_layer_keeps_its_window_dropout_and_mode():
    layer = theirs(window=6)
    layer.dropout = 0.3
    ours = LongformerSelfAttention.from_transformers(layer.train())
    assert ours.pattern == SlidingWindow(6, causal=False) and ours.dropout == 0.3 and ours.training
    with pytest.raises(ReproError, match="this layer does not store probabilities"):
        ours(torch.ones(1, 9, 32), is_index_masked=torch.zeros(1, 9) > 0, output_attentions=True)


def test_a_batch_with_global_tokens_of_its_own_is_one_call(monkeypatch):
    calls = []
    monkeypatch.setattr("repro.attention.longformer.attend", lambda q, *rest, **more: calls.append(q.shape) or q)
    chosen = torch.zeros(3, 20)
    chosen[0, 0] = chosen[1, 5] = chosen[1, 19] = 1
    LongformerSelfAttention(16, 2, window=4)(torch.ones(3, 20, 16), global_attention_mask=chosen)
    assert calls == [(3, 2, 20, 8)]


@pytest.mark.parametrize("n", [1, 7, 45])
def test_any_length(n):
    """transformers' layer wants a multiple of its window, so it gets padding; ours needs none."""
    layer, hidden = theirs(), torch.randn(2, 48, 32)
    real, chosen = torch.arange(48).expand(2, -1) < n, torch.arange(48).expand(2, -1) == torch.tensor([[0], [n - 1]])
    want = ask_theirs(layer, hidden, real, chosen)[:, :n]
    found = LongformerSelfAttention.from_transformers(layer)(hidden[:, :n], global_attention_mask=chosen[:, :n])
    torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-5)


def test_few_global_tokens_need_no_projection_of_all(monkeypatch):
    layer, projected = LongformerSelfAttention(16, 2, window=4), []
    monkeypatch.setattr(layer.key_global, "forward", lambda x: projected.append(x.shape) or x)
    for number in 1, 7, 8:
        layer(torch.ones(1, 20, 16), global_attention_mask=torch.arange(20)[None] < number)
        assert len(projected) == (number == 8)


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


@pytest.mark.parametrize("number", [0, 1, 3, 24])
@pytest.mark.parametrize(("dtype", "amp"), [(torch.float32, torch.bfloat16), (torch.float32, torch.float16),
                                            (torch.bfloat16, None), (torch.float16, None)])
def test_16_bits(number, dtype, amp, shake):
    """Training and evaluation, under autocast or in 16 bits throughout, with few global tokens and many."""
    config = LongformerConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=2, intermediate_size=24,
                              attention_window=[4, 8], vocab_size=31, max_position_embeddings=64, pad_token_id=1,
                              attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    theirs, ours = shake(LongformerForMaskedLM(config)).to(dtype), Longformer(config).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    ids = torch.randint(2, 31, (2, 40), generator=torch.Generator().manual_seed(0))
    masks = {"attention_mask": torch.ones_like(ids), "global_attention_mask": torch.zeros_like(ids)}
    masks["attention_mask"][1, 33:] = 0
    masks["global_attention_mask"][0, 2:2 + number] = masks["global_attention_mask"][1, 5:5 + number] = 1
    labels, found = ids.masked_fill(masks["attention_mask"] == 0, -100), []
    for model in ours, theirs:
        with torch.autocast("cpu", amp or torch.bfloat16, enabled=amp is not None):
            with torch.no_grad():
                read = model.eval()(ids, **masks).logits
            out = model.train()(ids, **masks, labels=labels)
        out.loss.backward()
        grads = [torch.zeros_like(part) if part.grad is None else part.grad for part in model.parameters()]
        found.append([read.float(), out.logits.detach().float(), torch.cat([part.float().flatten() for part in grads])])
    limit = 0.03 if torch.bfloat16 in (dtype, amp) else 0.004  # a few times what rounding changes
    for one, other in zip(*found, strict=True):
        assert one.isfinite().all() and (one - other).norm() < limit * other.norm()


def test_validation_after_training_with_dropout_under_autocast():
    """Dropout takes another way than evaluation, for few global tokens; both give the dtype of autocast."""
    layer, hidden = LongformerSelfAttention(16, 2, window=4, dropout=0.1), torch.randn(1, 20, 16)
    for training in True, False:
        with torch.autocast("cpu", torch.bfloat16):
            found = layer.train(training)(hidden, global_attention_mask=torch.arange(20)[None] < 3)
        assert found.dtype == torch.bfloat16
        want = layer.eval()(hidden, global_attention_mask=torch.arange(20)[None] < 3)
        assert training or (found.float() - want).norm() < 0.02 * want.norm()


def test_compiled_under_autocast():
    torch.compiler.reset()
    layer, hidden = LongformerSelfAttention(16, 2, window=4), torch.randn(1, 20, 16)
    chosen, found = torch.arange(20)[None] < 3, []
    for read in layer, torch.compile(layer, backend="eager"):
        with torch.autocast("cpu", torch.bfloat16):
            states = read(hidden, global_attention_mask=chosen)
        states.float().square().mean().backward()
        found.append((states.detach(), layer.query.weight.grad.clone()))
        layer.zero_grad()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("number", [0, 2])
def test_in_an_encoder_of_led(amp, number, shake):
    """Ours in the place of LED's own layer: states and gradients of the whole encoder."""
    config = LEDConfig(d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=24,
                       decoder_attention_heads=2, decoder_ffn_dim=8, attention_window=[4, 8], vocab_size=31,
                       max_encoder_position_embeddings=64, max_decoder_position_embeddings=8, dropout=0.0)
    theirs = shake(LEDModel(config)).get_encoder().train()
    ours = copy.deepcopy(theirs)
    for layer in ours.layers:
        own = layer.self_attn
        own.longformer_self_attn = LongformerSelfAttention.from_transformers(own.longformer_self_attn)
    ids = torch.randint(3, 31, (2, 24), generator=torch.Generator().manual_seed(0))
    real, chosen, found = torch.ones_like(ids), torch.zeros_like(ids), []
    real[1, 19:], chosen[:, :number] = 0, 1
    for model in ours, theirs:
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            states = model(ids, attention_mask=real, global_attention_mask=chosen).last_hidden_state[real.bool()]
        states.float().square().mean().backward()
        grads = [part.grad.flatten() for part in model.parameters() if part.grad is not None]
        found.append([states.detach().float(), torch.cat(grads)])
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and (one - other).norm() < (0.03 if amp else 1e-5) * other.norm()
