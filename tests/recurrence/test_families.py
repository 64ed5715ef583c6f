"""The promises of a RecurrentLM in every family of decoders, on tiny random models.

Besides the tests here, for GPT-2 and for the families with rotary positions:
- no later token is seen: test_causal, test_decoders
- recomputation changes neither loss nor gradient: test_recompute, test_decoders
- saving, loading: test_causal, test_decoders; copies and pickles: here, test_decoders, test_loading
- generation equals the model's own windows: test_generate, test_cached_generation, test_decoders
- logits and gradients equal a reading by hand: test_causal, test_decoders
"""

import copy
import pickle

import pytest
import torch
from tiny_decoders import FAMILIES, config, plain_class, shaken, text
from torch.nn import functional as F

from repro.recurrence import RecurrenceConfig
from repro.recurrence.decoders import recurrent_class

GRID = [("gpt2", None), *((family, opening) for family in FAMILIES for opening in (None, 1))]  # and its opening token
SETTINGS = [{}, {"insert_layer": 2, "residual": True, "normalize": True}, {"insert": "every", "n_embeddings": 2},
            {"insert_layer": 0, "pool": "max", "positions": "passed"}]
every_family = pytest.mark.parametrize(("family", "opening"), GRID, ids=lambda one: str(one or "plain"))
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


@pytest.fixture
def made(tiny_recurrent):
    """A tiny decoder with a module, every weight random: (family, opening token, dtype, **settings)."""
    def make(family, opening=None, dtype=torch.float64, **settings):
        if family == "gpt2":
            return tiny_recurrent(dtype=dtype, changes={"n_positions": 64}, **settings)
        given = {"opening_token": opening} if opening else {}
        return shaken(recurrent_class(plain_class(family))(config(family, **given), RecurrenceConfig(
            **{"hidden_size": 8} | settings)), dtype)
    return make


def plain_of(model):
    """The same base in transformers' own class, with its eager attention."""
    from transformers import GPT2LMHeadModel

    own = model.config.model_type
    kind = GPT2LMHeadModel if own == "gpt2" else plain_class(own)
    settings = copy.deepcopy(model.config)
    settings._attn_implementation = "eager"
    plain = kind(settings).to(model.dtype).eval()
    strange = plain.load_state_dict(model.state_dict(), strict=False).unexpected_keys
    assert all(name.startswith("recurrence.") for name in strange)
    return plain


def loss_and_gradients(model, loss):
    """The loss, and the gradients of the weights of the base by name."""
    model.zero_grad()
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters() if "recurrence." not in name}


@every_setting
@every_family
def test_one_window_is_the_plain_model_in_logits_loss_and_gradients(made, family, opening, settings):
    model, ids = made(family, opening, **settings), text(23)
    plain = plain_of(model)
    for window in (23, 40):
        out = model(ids, window=window, overlap=3, labels=ids)
        logits = plain(F.pad(ids, (1, 0), value=1)).logits[:, 1:] if opening else plain(ids).logits
        own = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        torch.testing.assert_close(out.logits, logits, rtol=1e-5, atol=1e-5)  # eager attention is in float32
        (loss, found), (wanted, others) = loss_and_gradients(model, out.loss), loss_and_gradients(plain, own)
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-5) and found.keys() == others.keys()
        for name, gradient in others.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: n + m)
        assert all(weight.grad is None for weight in model.recurrence.parameters())  # nothing was carried


@pytest.mark.parametrize("overlap", [0, 3])
@every_setting
@every_family
def test_only_h_prev_crosses_from_a_window_to_the_next(made, family, opening, settings, overlap):
    """Three windows of 8; the second one's text is changed, but for what the third one reads itself."""
    model, stride = made(family, opening, **settings), 8 - overlap
    ids = text(8 + 2 * stride)
    changed = ids.clone()
    changed[:, 8:2 * stride] = (changed[:, 8:2 * stride] - 2) % 26 + 3
    third = slice(stride + 8, None)
    held = []

    def read(one, **how):
        return model(one, window=8, overlap=overlap, **how).logits

    def hold(module, args, out):
        held.append(out)
        return held[(len(held) - 1) % 2]  # two vectors a text: always those of the first one

    with torch.no_grad():
        before, after = read(ids), read(changed)
        assert torch.equal(before[:, :8], after[:, :8])  # the first window was the same
        assert (before[:, third] - after[:, third]).abs().amax(-1).min() > 1e-5  # every position of the third knows
        alone, other = (read(one, recurrent=False)[:, third] for one in (ids, changed))
        assert torch.equal(alone, other) and (alone - before[:, third]).abs().amax(-1).min() > 1e-5
        hook = model.recurrence.register_forward_hook(hold)
        assert torch.equal(read(ids), before)
        assert torch.equal(read(changed)[:, third], before[:, third])  # with its own h_prev, nothing arrives
        hook.remove()
        assert torch.equal(read(changed), after) and len(held) == 4


@every_setting
@every_family
def test_bf16_autocast_has_nearly_the_same_loss_and_gradients(made, family, opening, settings):
    model, ids, found = made(family, opening, torch.float32, **settings).train(), text(25), []
    model.recurrence.feedforward[-1].weight.data *= 0.1  # huge vectors would amplify what is rounded
    for half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = model(ids, window=8, overlap=2, labels=ids)
        out.loss.backward()
        gradients = [weight.grad for weight in model.parameters()]
        assert all(one.dtype == torch.float32 and one.isfinite().all() for one in gradients)
        module = torch.cat([weight.grad.flatten() for weight in model.recurrence.parameters()])
        found.append((out, torch.cat([one.flatten() for one in gradients]), module))
    (single, whole, module), (half, whole_half, module_half) = found
    assert half.logits.dtype == torch.bfloat16 and single.logits.dtype == half.loss.dtype == torch.float32
    assert half.loss.item() == pytest.approx(single.loss.item(), rel=0.02) and half.loss != single.loss
    assert F.cosine_similarity(whole, whole_half, dim=0) > 0.9
    assert F.cosine_similarity(module, module_half, dim=0) > 0.9 and module.norm() > 1e-6


@every_family
def test_copies_and_pickles_are_models_of_their_own(made, family, opening):
    model, ids = made(family, opening, residual=True), text(20)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        before = model(ids, window=8).logits
        for weight in model.parameters():
            weight.zero_()
        for other in copies:
            assert type(other) is type(model) and torch.equal(other(ids, window=8).logits, before)
            assert other.generate(ids, 4, window=8).shape == (2, 24)
