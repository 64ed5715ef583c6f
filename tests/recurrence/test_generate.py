"""Generation across windows against running the whole model again for every token."""

import pytest
import torch
from transformers import GenerationConfig, GPT2LMHeadModel

from repro.errors import ReproError

CASES = [(3, 12, 4, 0), (5, 13, 4, 0), (4, 10, 4, 1), (8, 9, 4, 0), (7, 12, 5, 4), (13, 7, 5, 2), (1, 9, 4, 3),
         (2, 6, 1, 0), (20, 20, 16, 5)]  # prompt, new tokens, window, overlap


def text(n, batch=2, seed=0):
    return torch.randint(29, (batch, n), generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def talkative(tiny_recurrent):
    """A model that does not always repeat the last token, as tied random embeddings otherwise make it do."""
    def make(**arguments):
        model = tiny_recurrent(dtype=torch.float64, **arguments)
        model.transformer.ln_f.bias.data.zero_()
        for block in model.transformer.h:
            block.attn.c_proj.weight.data *= 3
            block.mlp.c_proj.weight.data *= 3
        return model
    return make


def logits_used(model):
    """The logits (B, V) that each new token is chosen by, in order."""
    used = []
    model.lm_head.register_forward_hook(lambda module, args, out: used.append(out))
    return used


@torch.no_grad()
def again_for_every_token(model, dense, ids, n, window, overlap):
    for _ in range(n):
        logits = dense(model, ids, window, overlap)[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return ids


@pytest.mark.parametrize("settings", [{}, {"insert": "every", "n_embeddings": 2}], ids=["one", "every"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy_generation_equals_running_everything_again(talkative, dense, case, settings):
    n, new, window, overlap = case
    model, ids = talkative(**settings), text(n)
    expected = again_for_every_token(model, dense, ids, new, window, overlap)
    used = logits_used(model)
    found = model.generate(ids, new, window=window, overlap=overlap)
    assert found.tolist() == expected.tolist()
    assert found.shape == (2, n + new)
    with torch.no_grad():
        logits = dense(model, expected[:, :-1], window, overlap)[:, n - 1:]
    torch.testing.assert_close(torch.stack(used, 1), logits, rtol=1e-9, atol=1e-9)


def test_what_is_generated_depends_on_windows_before(talkative):
    model = talkative()
    ids, other = text(9), text(9)
    other[:, :4] = (other[:, :4] + 1) % 29  # only the first window reads these
    used = logits_used(model)
    model.generate(ids, 1, window=4)
    model.generate(other, 1, window=4)
    assert (used[0] - used[1]).abs().max() > 1e-3


def test_without_a_window_the_context_is_one(talkative):
    model = talkative()
    ids = text(10)
    assert model.generate(ids, 14).tolist() == model.generate(ids, 14, window=16, overlap=0).tolist()
    assert model.generate(ids, 14).tolist() != model.generate(ids, 14, window=15).tolist()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_while_generating_and_the_mode_put_back(talkative, training):
    dropout = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    model, ids = talkative(changes=dropout), text(6)
    expected = model.eval().generate(ids, 12, window=4, overlap=1)
    model.train(training)
    found = model.generate(ids, 12, window=4, overlap=1)
    assert found.tolist() == expected.tolist()
    assert all(module.training == training for module in model.modules())
    assert (model.config.resid_pdrop, model.transformer.h[0].attn.attn_dropout.p) == (0.5, 0.5)
    assert all(p.grad is None for p in model.parameters())


def test_the_cost_of_a_token_does_not_grow_with_the_text(tiny_recurrent):
    model, read = tiny_recurrent(), []
    model.transformer.h[0].register_forward_hook(lambda module, args, out: read.append(out.shape[1]))
    model.generate(text(1, batch=1), 40, window=8, overlap=2)
    n_windows = 1 + -(-(40 - 8) // 6)
    assert sum(read) <= 2 * 8 * n_windows  # each window is read once token by token and once more for its z
    assert read[:10] == [1] * 8 + [8, 3]  # then the next window begins with two old tokens and a new one


def test_sampling_follows_the_models_distribution(tiny_recurrent):
    model, ids = tiny_recurrent(), text(7, batch=1)
    many, temperature = 20_000, 1.7
    generator = torch.Generator().manual_seed(0)
    drawn = model.generate(ids.expand(many, -1), 1, window=4, do_sample=True, temperature=temperature,
                           generator=generator)[:, -1]
    with torch.no_grad():
        p = (model(ids, window=4).logits[0, -1].double() / temperature).softmax(-1)
    counts = torch.bincount(drawn, minlength=29)
    assert ((counts - many * p).abs() <= 5 * (many * p * (1 - p)).sqrt() + 1).all()


def test_sampling_is_repeatable_and_cold_sampling_is_greedy(talkative):
    model, ids = talkative(), text(6)

    def sample(seed, temperature=1.0):
        generator = torch.Generator().manual_seed(seed)
        return model.generate(ids, 20, window=4, overlap=1, do_sample=True, temperature=temperature,
                              generator=generator).tolist()

    assert sample(1) == sample(1) != sample(2)
    assert sample(1, temperature=1e-4) == model.generate(ids, 20, window=4, overlap=1).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_text_ends_where_it_ends_in_transformers(talkative, dtype):
    """Inside one window the model is plain GPT-2, so all tokens are those of transformers' greedy search."""
    model = talkative().to(dtype)
    plain = GPT2LMHeadModel(model.config).eval().to(dtype)
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if "recurrence" not in name})
    ids = text(4, batch=6)
    mask, free = torch.ones_like(ids), model.generate(ids, 12)
    counts = torch.bincount(free[:, 4:].flatten(), minlength=29)
    ends = counts.argsort(descending=True)[:4].tolist()
    early = False
    for eos, pad in [(end, pad) for end in ends for pad in (None, 3)] + [(ends[:2], None), (ends[1:3], 0)]:
        found = model.generate(ids, 12, eos_token_id=eos, pad_token_id=pad, attention_mask=mask, num_beams=1)
        wanted = plain.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=eos,
                                pad_token_id=pad)
        assert found.tolist() == wanted.tolist()
        early |= (found != free[:, :found.shape[1]]).any().item()
        for row, whole in zip(found.tolist(), free.tolist(), strict=True):  # tokens are those of a text without an end
            stop = next((k for k in range(4, len(row)) if row[k] in ([eos] if isinstance(eos, int) else eos)), len(row))
            assert row[:stop + 1] == whole[:stop + 1]
    assert early  # some rows ended before others


def test_a_text_ends_in_a_later_window_as_if_it_went_on(talkative):
    model, ids = talkative(), text(5)
    free = model.generate(ids, 14, window=4, overlap=1)
    eos = free[0, 12].item()
    found = model.generate(ids.int(), 14, window=4, overlap=1, eos_token_id=eos, pad_token_id=28)
    ends = [next((k for k in range(5, 19) if row[k] == eos), 18) for row in free.tolist()]
    assert found.shape[1] == max(ends) + 1 and found.dtype == torch.int32
    for row, whole, end in zip(found.tolist(), free.tolist(), ends, strict=True):
        assert row == whole[:end + 1] + [28] * (max(ends) - end)


def test_what_a_tokenizer_gives_is_read(talkative):
    model = talkative()
    given = {"input_ids": text(10), "attention_mask": torch.ones(2, 10, dtype=torch.int64)}
    assert torch.equal(model(**given, window=4).logits, model(text(10), window=4).logits)
    assert torch.equal(model.generate(**given), model.generate(text(10), 20))


@pytest.mark.parametrize(("arguments", "words"), [
    ({"num_beams": 4}, "num_beams is 4; a RecurrentLM generates greedily, or samples .* Leave it out"),
    ({"do_sample": True, "top_k": 50}, "top_k is 50; "), ({"top_p": 0.9}, "top_p is 0.9; "),
    ({"generation_config": GenerationConfig()}, "generation_config is GenerationConfig"),
    ({"eos_token_id": 29}, "eos_token_id is 29; it must be a whole number from 0 to 28"),
    ({"eos_token_id": [3, -1]}, "eos_token_id is -1; "), ({"eos_token_id": "a"}, "eos_token_id is 'a'; "),
    ({"eos_token_id": 3, "pad_token_id": 29}, "pad_token_id is 29; "),
    ({"attention_mask": torch.tensor([[1] * 6, [0] * 2 + [1] * 4])}, "attention_mask is 0 for 2 tokens, .* no padding"),
    ({"attention_mask": torch.ones(2, 5)}, r"attention_mask has shape \(2, 5\); it must be .* \(2, 6\)")])
def test_what_transformers_has_and_this_lacks_is_refused(tiny_recurrent, arguments, words):
    with pytest.raises(ReproError, match=words) as error:
        tiny_recurrent().generate(text(6), 3, **arguments)
    assert "\n" not in str(error.value)
    if "attention_mask" in arguments:
        with pytest.raises(ReproError, match=words):
            tiny_recurrent()(text(6), **arguments)


def test_no_new_tokens_are_no_change(tiny_recurrent):
    assert torch.equal(tiny_recurrent().generate(text(6), 0, window=4), text(6))


@pytest.mark.parametrize(("ids", "arguments", "words"), [
    (text(6), {"window": 4, "overlap": 4}, "overlap is 4"), (text(6), {"window": 17}, "context ends at 16"),
    (text(6), {"window": 0}, "window is 0"), (text(6), {"window": 4, "overlap": -1}, "overlap is -1"),
    (text(6), {"window": 4, "do_sample": True, "temperature": 0}, "temperature is 0; it must be above 0"),
    (text(0), {"window": 4}, "at least one text|no tokens"), (text(6)[0], {"window": 4}, "input_ids are")])
def test_impossible_requests_are_refused(tiny_recurrent, ids, arguments, words):
    with pytest.raises(ReproError, match=words):
        tiny_recurrent().generate(ids, 3, **arguments)
