"""Every memory in decoders with rotary positions, grouped heads, sliding layers and an opening token."""

import pickle

import pytest
import tiny_decoders
import torch
from tiny_decoders import FAMILIES, config, plain_class, shaken, text
from torch import nn

from repro.errors import ReproError
from repro.models import load_causal_lm, load_model, save_model
from repro.recompute import flops
from repro.recurrence import MEMORIES, MaskedOut, RecurrenceConfig, with_memory
from repro.recurrence.decoders import memory_class, recurrent_class
from repro.recurrence.memories import complete
from repro.windows import windows

SMALL = {"yoshida": {"hidden_size": 12, "hidden_layers": 2}, "yoshida-first": {"hidden_size": 12},
         "embeddings-4": {"hidden_size": 12, "hidden_layers": 1}, "gated": {"hidden_size": 12, "hidden_layers": 1},
         "rmt": {"n_tokens": 2}, "block-recurrent": {"n_states": 3}, "compressed": {"rate": 2, "windows": 2},
         "knn": {"layer": 1, "k": 2, "n_tokens": 6}}
every_family = pytest.mark.parametrize("family", FAMILIES)
every_memory = pytest.mark.parametrize("name", MEMORIES)


@pytest.fixture
def made():
    """A tiny decoder with a memory: (family, memory, opening token, dtype)."""
    def make(family, name, opening=1, dtype=torch.float64, **changes):
        changes |= {} if opening is None else {"opening_token": opening}
        torch.manual_seed(0)
        cls = memory_class(plain_class(family))
        return shaken(cls(config(family, **changes), complete(name, **SMALL.get(name, {}))), dtype)
    return make


@pytest.mark.parametrize(("family", "opening"), [(family, 1) for family in FAMILIES] + [("gemma3_text", None)])
@every_memory
def test_logits_and_gradients_equal_layers_written_out(made, family, name, opening):
    model, ids = made(family, name, opening), text(17, seed=2)  # no token twice at a start: knn would find equal keys
    aim = torch.randn(2, 17, 29, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, state, expected = model(ids, window=8, overlap=2).logits, None, []
    for span in windows(18, 8, 2):
        part = ids[:, span.start:span.stop]
        hidden, state = tiny_decoders.window_by_hand(model, part, state, 6)
        expected.append(model.lm_head(hidden[:, -part.shape[1]:][:, span.offset:]))
    expected = torch.cat(expected, 1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    weights = list(model.parameters())
    a, b = (torch.autograd.grad((one * aim).sum(), weights) for one in (found, expected))
    for (key, _), one, other in zip(model.named_parameters(), a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * other.abs().max().item() + 1e-9)
        assert other.abs().max() > 1e-9, key


@every_memory
@every_family
def test_without_a_state_a_window_is_the_plain_models(made, family, name):
    model, ids = made(family, name), text(16)
    plain = plain_class(family)(config(family)).double().eval()
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if "memory." not in key})
    with torch.no_grad():
        carried, masked = model(ids, window=8).logits, MaskedOut(model)(ids[:, 8:])
        first, second = (plain(nn.functional.pad(part, (1, 0), value=1)).logits[:, 1:] for part in ids.split(8, 1))
    assert torch.allclose(carried[:, :8], first, rtol=1e-6, atol=1e-6) == model.memory.plain_start
    assert torch.allclose(masked, second, rtol=1e-6, atol=1e-6) == model.memory.plain_start
    assert (carried[:, 8:] - masked).abs().amax(-1).min() > 1e-6  # every later position sees the state


@every_memory
@every_family
def test_later_tokens_change_nothing_before_them(made, family, name):
    model, ids = made(family, name), text(20)
    other = ids.clone()
    other[:, 13] = (other[:, 13] - 2) % 26 + 3
    with torch.no_grad():
        a, b = (model(one, window=8, overlap=3).logits for one in (ids, other))
    torch.testing.assert_close(a[:, :13], b[:, :13], rtol=0, atol=1e-12)
    assert (a[:, 13:] - b[:, 13:]).abs().amax(-1).min() > 1e-9


@pytest.mark.parametrize("insert", ["one", "every"])
@every_family
def test_yoshidas_is_the_recurrence_module(made, family, insert):
    name = {"one": "yoshida", "every": "embeddings-4"}[insert]
    model, ids = made(family, name), text(17)
    settings = RecurrenceConfig(**{"hidden_size": 12, "insert": insert} | (
        {"hidden_layers": 2} if insert == "one" else {"hidden_layers": 1, "n_embeddings": 4}))
    other = recurrent_class(plain_class(family))(config(family, opening_token=1), settings).double().eval()
    other.load_state_dict({key.removeprefix("memory."): value for key, value in model.state_dict().items()})
    with torch.no_grad():
        a, b = (one(ids, window=6, overlap=2).logits for one in (model, other))
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in MEMORIES if name not in ("infini", "knn", "cache")])
@pytest.mark.parametrize("family", ["olmo2", "stablelm"])  # norms behind, and keys and values that turn in part
def test_vectors_before_a_window_of_another_family_are_earlier_tokens(made, family, name):
    """A vector that equals an embedding has the keys and values of that token at the positions before."""
    model, ids = made(family, name, opening=None), text(9)
    base, plain = model.base_model, plain_class(family)(config(family)).double().eval()
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if "memory." not in key})
    with torch.no_grad():
        before, hidden = base.embed_tokens(ids[:, :3]), base.embed_tokens(ids[:, 3:])
        layer, n = plain.base_model.layers[0], len(ids[0])
        rotated = plain.base_model.rotary_emb(hidden, torch.arange(-3, n - 3)[None])
        causal = torch.ones(n, n, dtype=torch.bool).tril()[None, None]
        expected = layer(torch.cat([before, hidden], 1), attention_mask=causal, position_embeddings=rotated)
        expected = (expected if isinstance(expected, torch.Tensor) else expected[0])[:, 3:]
        torch.testing.assert_close(model._layer(0, hidden, before), expected, rtol=1e-6, atol=1e-6)
        carried, masked = model(text(16), window=8).logits, MaskedOut(model)(text(16)[:, 8:])
        first = plain(text(16)[:, :8]).logits
    assert torch.allclose(carried[:, :8], first, rtol=1e-6, atol=1e-6) == model.memory.plain_start
    assert (carried[:, 8:] - masked).abs().amax(-1).min() > 1e-6  # every later position sees the state


def test_opt_names_the_spread_of_its_embeddings_in_another_way(tmp_path):
    changes = {"ffn_dim": 24, "word_embed_proj_dim": 16}
    plain_class("opt")(config("opt", init_std=0.5, **changes)).save_pretrained(tmp_path)
    model = with_memory(tmp_path, "rmt", n_tokens=100)
    assert 0.4 < model.memory.first.std() < 0.6 and model(text(9), window=4).logits.isfinite().all()


@pytest.mark.parametrize("name", ["infini", "knn"])
def test_a_memory_inside_the_attention_is_refused_in_another_family(made, name, tmp_path):
    plain_class("stablelm")(config("stablelm")).save_pretrained(tmp_path)
    model = made("stablelm", name, opening=None)
    for read in (lambda: model(text(9), window=4), lambda: with_memory(tmp_path, name)):
        with pytest.raises(ReproError, match=f"memory '{name}' changes the attention inside a layer, and is not "
                                             "possible in a model of type stablelm; choose another, or give GPT-2, L"):
            read()


def test_layers_with_a_mask_of_their_own_are_refused(made):
    model = made("doge", "yoshida", opening=None)
    with pytest.raises(ReproError, match="this model's attention uses attention_mask, which is not possible with a"):
        model(text(9), window=4)


@every_family
def test_a_cache_scores_as_the_plain_model_with_windows_that_overlap(made, family):
    model, ids = made(family, "cache"), text(22)
    plain = plain_class(family)(config(family)).double().eval()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        found = model(ids, window=8, overlap=1).logits
        for start, stop, first in [(0, 8, 0), (0, 15, 8), (7, 22, 15)]:
            part = nn.functional.pad(ids[:, start:stop], (1, 0), value=1)
            expected = plain(part).logits[:, first - stop:]
            torch.testing.assert_close(found[:, first:stop], expected, rtol=1e-4, atol=1e-5)  # rotations are float32
    with pytest.raises(ReproError, match="a cache of 40 tokens and a window of 40 need 81 positions, .* ends at 64"):
        model(text(90), window=40)


@every_memory
@pytest.mark.parametrize("together", [1, 2048], ids=["one by one", "in groups"])
def test_recomputation_changes_no_gradient(made, monkeypatch, name, together):
    model, ids, found = made("gemma3_text", name).train(), text(19), {}
    monkeypatch.setattr(type(model), "together", together)
    for how in ("none", "layer", "window+layer"):
        model.zero_grad()
        model(ids, window=8, overlap=2, labels=ids, recompute=how, return_logits=False).loss.backward()
        found[how] = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    for key, gradient in found["none"].items():
        torch.testing.assert_close(found["layer"][key], gradient, rtol=1e-8, atol=1e-10)
        # Read one by one: Gemma's norms, in single precision, round groups of windows otherwise.
        within = {"rtol": 1e-8, "atol": 1e-10} if together == 1 else {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(found["window+layer"][key], gradient, **within)


@every_memory
@every_family
def test_bf16_autocast_computes_the_same_to_its_precision(made, family, name):
    model, ids = made(family, name, dtype=torch.float32), text(19)
    exact = model(ids, window=8, labels=ids).loss.item()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, window=8, labels=ids).loss
    loss.backward()
    assert loss.item() == pytest.approx(exact, rel=0.05)
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize(("family", "name"), [("gemma3_text", name) for name in MEMORIES] + [
    (family, "infini") for family in FAMILIES if family != "gemma3_text"])
def test_it_saves_loads_is_pickled_and_generates(made, family, name, tmp_path):
    model, ids = made(family, name, dtype=torch.float32), text(9)
    save_model(model, tmp_path / "saved")
    with torch.no_grad():
        expected = model(ids, window=4).logits
        for again in (with_memory(tmp_path / "saved"), load_causal_lm(tmp_path / "saved"),
                      load_model(tmp_path / "saved"), pickle.loads(pickle.dumps(model))):
            assert type(again) is type(model) and again.config.memory == model.config.memory
            torch.testing.assert_close(again(ids, window=4).logits, expected, rtol=0, atol=0)
        made_up, used = model.generate(ids, 5, window=6, overlap=2), ids
        for _ in range(5):
            new = model(used, window=6, overlap=2).logits[:, -1].argmax(-1, keepdim=True)
            used = torch.cat([used, new], 1)
    assert made_up.tolist() == used.tolist()


@every_memory
@pytest.mark.parametrize("window", [6, 8])
def test_the_state_and_the_flops_are_as_declared(made, name, window):
    model, state = made("llama", name, None, torch.float32, hidden_size=32, head_dim=12, num_hidden_layers=2), None
    ids, memory = text(window, 1), model.memory
    with torch.no_grad():
        for _ in range(5):
            _, state = model._read_window(ids, state)
        parts = state if isinstance(state, tuple) else (state,)
        assert sum(part.numel() for part in parts) == memory.state_numbers(window)
        found = flops(lambda: model._read_window(ids, state)) - flops(
            lambda: MaskedOut(model).model.base_model(ids, use_cache=False))
    pairs, width, n_layer = 0, 4 * 12, 2  # torch counts all pairs of a window, we half of them
    if name == "rmt":
        pairs = n_layer * 4 * width * ((window + 4)**2 - window**2) / 2
    elif name in (before := {"yoshida": 1, "yoshida-first": 1, "embeddings-4": 4, "compressed": 2 * (window // 2),
                             "cache": window}):  # queries put in front as padding
        n = before[name]
        layers = 1 if name.startswith("yoshida") else n_layer
        pairs = layers * 4 * width * n * (window + n)
    if name == "cache":
        pairs += (n_layer - 1) * 2 * width * window**2
    assert found - pairs == pytest.approx(memory.flops_per_window(window), rel=0.001 if name == "cache" else 0.02)


@pytest.mark.parametrize("name", ["rmt", "compressed", "infini"])
def test_a_memory_is_put_into_a_checkpoint(tmp_path, name):
    torch.manual_seed(0)
    plain = plain_class("qwen3")(config("qwen3"))
    plain.save_pretrained(tmp_path)
    model = with_memory(tmp_path, name)
    for key, weight in plain.state_dict().items():
        assert torch.equal(model.state_dict()[key], weight), key
    assert all(key.startswith("memory.") for key in set(model.state_dict()) - set(plain.state_dict()))
    assert not model.training and model(text(9), window=4, labels=text(9)).loss.isfinite()


def test_what_cannot_be_is_refused_in_one_line(made, tmp_path):
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    GPTNeoForCausalLM(GPTNeoConfig(vocab_size=9, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=8,
                                   attention_types=[[["global"], 2]])).save_pretrained(tmp_path / "neo")
    with pytest.raises(ReproError, match="layers of MemoryGPTNeoForCausalLM do not get the .* own, .*; give GPT-2, Ll"):
        with_memory(tmp_path / "neo", "rmt")
    plain_class("bloom")(config("bloom")).save_pretrained(tmp_path / "bloom")
    with pytest.raises(ReproError, match="MemoryBloomForCausalLM has no list of decoder layers .*; give GPT-2, Llama"):
        with_memory(tmp_path / "bloom", "rmt")
    plain_class("llama")(config("llama")).save_pretrained(tmp_path / "llama")
    with pytest.raises(ReproError, match="was saved without a memory; give one"):
        with_memory(tmp_path / "llama")
    with pytest.raises(ReproError, match="layers 0 to 2"):
        with_memory(tmp_path / "llama", "gated", layer=3)
    model = made("llama", "rmt", dtype=torch.float32)
    save_model(model, tmp_path / "saved")
    with pytest.raises(ReproError, match="was saved with memory"):
        with_memory(tmp_path / "saved", "rmt", n_tokens=5)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ReproError, match="a MemoryLlamaForCausalLM needs repro_memory, which"):
        model(text(9), window=4)


def test_attention_that_would_change_the_scores_is_refused(made):
    from repro.recurrence.causal import attention_with_memory, attention_with_previous

    layer = made("llama", "gated").base_model.layers[0].self_attn
    keys = torch.ones(1, 2, 3, 4)
    plain = attention_with_memory(layer, keys.repeat(1, 2, 1, 1), keys, keys, softcap=None, position_ids=keys)[0]
    assert plain.shape == (1, 3, 4, 4)
    for attend in (attention_with_memory, attention_with_previous):
        with pytest.raises(ReproError, match="attention uses softcap, which is not possible with a carried state"):
            attend(layer, keys.repeat(1, 2, 1, 1), keys, keys, softcap=50.0)


@pytest.mark.parametrize("name", ["gated", "infini", "knn", "cache"])  # a vector, a mix, another mix, earlier tokens
def test_compiled_it_has_the_same_loss_and_gradients(made, name):
    model, ids = made("gemma3_text", name, dtype=torch.float32).train(), text(20)

    def gradients(call):
        loss = call(ids, window=8, overlap=2, labels=ids).loss
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    for a, b in zip(gradients(model), gradients(torch.compile(model, backend="eager")), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
