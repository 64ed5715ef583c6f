"""Decoders with a recurrence module generate with a key/value cache what they generate without one."""

import pytest
import torch
from tiny_decoders import FAMILIES, SIZES, config, plain_class, shaken, text
from torch import nn

from repro.errors import ReproError
from repro.models import load_causal_lm
from repro.recurrence import RecurrenceConfig
from repro.recurrence.decoders import memory_class, recurrent_class
from repro.recurrence.memories import complete
from repro.recurrence.windowed import WindowByWindow

SETTINGS = [{}, {"insert_layer": 0, "pool": "max"}, {"insert_layer": 2, "residual": True, "normalize": True},
            {"insert": "every", "n_embeddings": 2}]
CASES = [(3, 8, 8, 0), (9, 8, 8, 3), (1, 9, 4, 1)]  # prompt, new tokens, window, overlap
every_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def made():
    """A tiny decoder with a module: (family, opening token, dtype, **settings)."""
    def make(family, opening=1, dtype=torch.float64, **settings):
        given = {"opening_token": opening} if opening else {}
        cls = recurrent_class(plain_class(family))
        return shaken(cls(config(family, **given), RecurrenceConfig(**{"hidden_size": 8} | settings)), dtype)
    return make


def kept(model):
    """The hidden states that each new token is chosen by, in order."""
    found = []
    model.lm_head.register_forward_hook(lambda module, args, out: found.append(args[0]))
    return found


@torch.no_grad()
def again_for_every_token(model, ids, n, window, overlap):
    for _ in range(n):
        new = model(ids, window=window, overlap=overlap).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids


@pytest.mark.parametrize(("family", "settings"), [("gemma3_text", one) for one in SETTINGS] + list(zip(
    ["llama", "mistral", "qwen2", "qwen3"], [SETTINGS[k] for k in (0, 2, 1, 3)], strict=True)), ids=str)
def test_greedy_generation_equals_reading_everything_again(made, family, settings):
    model = made(family, **settings)
    for given, new, window, overlap in CASES:
        ids = text(given)
        expected = again_for_every_token(model, ids, new, window, overlap)
        found = model.generate(ids, new, window=window, overlap=overlap)
        assert found.tolist() == expected.tolist(), (given, new, window, overlap)
        assert len(set(found[0, given:].tolist())) > 1


def test_a_rotation_that_depends_on_the_length_generates_as_if_everything_were_read_again():
    """Phi-3's keys are turned in another way once a text is longer than 4 tokens."""
    from transformers import Phi3Config, Phi3ForCausalLM

    rope = {"rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [3.0, 5.0], "rope_theta": 10_000.0,
            "original_max_position_embeddings": 4}
    model = shaken(recurrent_class(Phi3ForCausalLM)(Phi3Config(**SIZES, rope_parameters=rope), RecurrenceConfig(
        hidden_size=8)))
    for given, window in ((2, 3), (2, 8), (9, 8)):
        ids = text(given)
        assert model.generate(ids, 8, window=window).tolist() == again_for_every_token(
            model, ids, 8, window, 0).tolist()


@pytest.mark.parametrize("opening", [None, 1])
@every_family
def test_hidden_states_equal_those_without_a_cache(made, family, opening, monkeypatch):
    model, ids = made(family, opening), text(5)
    used = kept(model)
    found = model.generate(ids, 12, window=8, overlap=2)
    cached, used[:] = list(used), []
    monkeypatch.setattr(type(model), "_reader", WindowByWindow._reader)
    assert model.generate(ids, 12, window=8, overlap=2).tolist() == found.tolist()
    torch.testing.assert_close(torch.stack(cached), torch.stack(used), rtol=1e-6, atol=1e-6)


@every_family
def test_sampling_draws_the_same_tokens_as_without_a_cache(made, family, monkeypatch):
    model, ids = made(family), text(6)

    def sample(seed):
        return model.generate(ids, 15, window=7, overlap=2, do_sample=True, temperature=1.5,
                              generator=torch.Generator().manual_seed(seed)).tolist()

    cached = [sample(seed) for seed in range(3)]
    monkeypatch.setattr(type(model), "_reader", WindowByWindow._reader)
    assert cached == [sample(seed) for seed in range(3)]
    assert cached[0] != cached[1]


@every_family
def test_a_token_is_read_once_in_its_window_and_once_more_for_the_state(made, family):
    model, read = made(family, opening=None), []
    model.base_model.layers[0].register_forward_hook(
        lambda module, args, out: read.append((out if isinstance(out, torch.Tensor) else out[0]).shape[1]))
    model.generate(text(1, batch=1), 40, window=8, overlap=2)
    assert read[:10] == [1] * 8 + [8, 3]  # the next window begins with two old tokens and a new one
    assert set(read[10:15]) == {1} and sum(read) <= 2 * 8 * (1 + -(-(40 - 8) // 6))


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_the_window_before_changes_what_follows_in_a_sliding_layer_too(made, family):
    model, ids = made(family, insert_layer=0), text(24)
    other = ids.clone()
    other[:, :8] = (other[:, :8] - 2) % 26 + 3  # only the first window reads these
    used = kept(model)
    with torch.no_grad():
        model.generate(ids, 1, window=16), model.generate(other, 1, window=16)
    assert (used[0] - used[1]).abs().max() > 1e-3


@every_family
def test_bf16_autocast_generates(made, family):
    model, ids = made(family, dtype=torch.float32), text(9)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.generate(ids, 9, window=6, overlap=1).shape == (2, 18)


def test_an_opened_plain_model_takes_a_cache(tmp_path):
    from transformers import DynamicCache

    shaken(plain_class("qwen3")(config("qwen3", opening_token=1)), torch.float32).save_pretrained(tmp_path)
    model, ids, cache = load_causal_lm(tmp_path), text(9), DynamicCache()
    with torch.no_grad():
        parts = [model(part, past_key_values=cache).logits for part in (ids[:, :4], ids[:, 4:5], ids[:, 5:])]
        torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, rtol=1e-4, atol=1e-4)
        whole = model.base_model(nn.functional.pad(ids, (0, 0))).last_hidden_state
    assert whole.shape[1] == 9
    with pytest.raises(ReproError, match="give it input_ids alone, without a mask"):
        model(ids, attention_mask=torch.ones_like(ids))


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "olmo2"])
@pytest.mark.parametrize(("window", "overlap", "seen"), [(8, 1, 0), (6, 0, 0), (8, 0, 1)])
def test_windows_too_short_to_be_compressed_leave_no_vectors(family, window, overlap, seen):
    given = complete("compressed", rate=8, windows=2)
    model, ids = shaken(memory_class(plain_class(family))(config(family), given)), text(9)
    _, state = model._read_window(ids[:, :window], None, window - overlap)
    assert model.memory.before(state)[0].shape[1] == seen
    used = kept(model)
    found = model.generate(ids, 9, window=window, overlap=overlap)
    cached, used[:] = list(used), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_reader", WindowByWindow._reader)
        assert model.generate(ids, 9, window=window, overlap=overlap).tolist() == found.tolist()
    torch.testing.assert_close(torch.stack(cached), torch.stack(used), rtol=1e-6, atol=1e-6)
