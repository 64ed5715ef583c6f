"""GPT and GPT-2 beside transformers' own, their counts and how they start; branches read once; and the LSTM."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.models import GPT, LSTM, SIZES, GPTConfig, LSTMConfig, gpt
from repro.training.optimizer import matrices

TINY = GPTConfig(29, 16, 3, 16, 2)
RELEASED = {"openai-gpt": 116_534_784, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
            "gpt2-xl": 1_557_611_200}


@pytest.fixture(scope="module")
def theirs(tiny_gpt2, shake):
    """A transformers model by norm, (norm, dtype, **config changes), in eval mode, all weights telling."""
    def make(norm, dtype=torch.float64, **changes):
        if norm == "pre":
            return tiny_gpt2(dtype=dtype, **changes)
        from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

        settings = {"n_layer": 3, "n_embd": 16, "n_head": 2, "vocab_size": 29, "n_positions": 16, "resid_pdrop": 0.0,
                    "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return shake(OpenAIGPTLMHeadModel(OpenAIGPTConfig(**settings | changes)).to(dtype)).eval()
    return make


def ids(batch=2, n=16, seed=0):
    return torch.randint(29, (batch, n), generator=torch.Generator().manual_seed(seed))


def loss_of(logits):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_logits_and_gradients_are_those_of_transformers(theirs, norm):
    other = theirs(norm)
    ours = GPT.from_transformers(other)
    assert ours.config == GPTConfig(29, 16, 3, 16, 2, norm) and ours.embed.weight.dtype == torch.float64
    torch.testing.assert_close(ours(ids()), other(ids()).logits, rtol=1e-9, atol=1e-9)
    loss_of(ours(ids())).backward()
    loss_of(other(ids()).logits).backward()
    for part in (ours, other):  # gradients are weights of a model of their own, which conversion lays side by side
        for weight in part.parameters():
            weight.data = weight.grad
    for (name, mine), wanted in zip(ours.named_parameters(), GPT.from_transformers(other).parameters(), strict=True):
        torch.testing.assert_close(mine.data, wanted.data, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_there_and_back_again(theirs, norm, tmp_path):
    ours = GPT.from_transformers(theirs(norm, torch.float32))
    other = ours.to_transformers()
    assert type(other) is type(theirs(norm)) and not other.training
    torch.testing.assert_close(other(ids()).logits, ours(ids()), rtol=1e-5, atol=1e-5)
    other.save_pretrained(tmp_path)
    again = GPT.from_transformers(type(other).from_pretrained(tmp_path))
    for one, same in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, same)
    other.transformer.h[0].attn.c_attn.weight.data.zero_()  # a copy
    assert ours.layers[0].project.weight.any()


def test_the_states_are_those_behind_the_last_norm(theirs):
    for norm in ("post", "pre"):
        other = theirs(norm)
        ours = GPT.from_transformers(other)
        torch.testing.assert_close(ours.hidden(ids()), other.transformer(ids()).last_hidden_state)
        torch.testing.assert_close(F.linear(ours.hidden(ids()), ours.embed.weight), ours(ids()))


@pytest.mark.parametrize(("changes", "word"), [
    ({"activation_function": "gelu"}, "activation_function of this gpt2 is gelu"), ({"n_inner": 20}, "n_inner"),
    ({"layer_norm_epsilon": 1e-3}, "layer_norm_epsilon"), ({"scale_attn_by_inverse_layer_idx": True}, "inverse"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings")])
def test_what_computes_another_function_is_refused(theirs, changes, word):
    with pytest.raises(ReproError, match=word):
        GPT.from_transformers(theirs("pre", **changes))


def test_another_model_is_refused():
    from transformers import GPT2Config, GPT2DoubleHeadsModel, GPT2Model

    sizes = GPT2Config(n_layer=1, n_embd=4, n_head=1, vocab_size=5, n_positions=4)
    for other in (SimpleNamespace(config=SimpleNamespace(model_type="bert")), None, GPT2Model(sizes),
                  GPT2DoubleHeadsModel(sizes)):
        with pytest.raises(ReproError, match=f"is a {type(other).__name__}; give an OpenAIGPTLMHeadModel or a GPT2LMH"):
            GPT.from_transformers(other)


def test_an_unknown_size_is_told():
    with pytest.raises(ReproError, match="unknown size 'gpt3'. Did you mean 'gpt2'.*Known: gpt2, .*openai-gpt"):
        SIZES["gpt3"]


@pytest.mark.parametrize("name", SIZES)
def test_released_sizes_have_their_known_numbers_of_weights(name):
    with torch.device("meta"):
        made = GPT(SIZES[name])
    assert sum(weight.numel() for weight in made.parameters()) == SIZES[name].parameters == RELEASED[name]
    printed = dict(zip(RELEASED, (117, 117, 345, 762, 1542), strict=True))
    assert round(replace(SIZES[name], vocab_size=40_478).parameters / 1e6) == printed[name]


@pytest.mark.parametrize("config", [TINY, replace(TINY, norm="post"), GPTConfig(7, 5, 1, 6, 3)], ids=str)
def test_weights_are_counted(config):
    made = GPT(config)
    assert config.parameters == sum(weight.numel() for weight in made.parameters())
    assert config.matrices == sum(weight.numel() for weight in matrices(made))
    assert made.output.weight is made.embed.weight


def test_last_weights_of_a_branch_start_smaller_where_the_norm_comes_first():
    torch.manual_seed(0)
    for norm, last in (("pre", 0.02 / 4), ("post", 0.02)):
        made = GPT(GPTConfig(400, 64, 8, 64, 2, norm))
        for layer in made.layers:
            for part, wanted in ((layer.project, 0.02), (layer.inner, 0.02), (layer.out, last), (layer.outer, last)):
                assert part.weight.std().item() == pytest.approx(wanted, rel=0.05)
                assert not part.bias.any()
        assert made.embed.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert made.places.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_where_transformers_has_it(theirs, norm):
    made = GPT.from_transformers(theirs(norm, resid_pdrop=0.25, embd_pdrop=0.25, attn_pdrop=0.25))
    assert made.config.dropout == 0.25 and torch.equal(made(ids()), made(ids()))
    made.train()
    assert not torch.equal(made(ids()), made(ids()))
    block = made.layers[0]
    x = torch.ones(2000, 1, 16, dtype=torch.float64)  # one position: its attention weight is 1, or left out
    with torch.no_grad():
        block.project.weight.zero_()
        block.project.bias.copy_(torch.ones(48))
        block.out.weight.copy_(torch.eye(16))
        block.out.bias.zero_()
        seen, _ = block.attention(x, "auto", None, None)
    assert (seen == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    assert seen.max().item() == pytest.approx(1 / 0.75)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_embeddings_and_what_a_branch_adds_are_left_out_by_chance(norm):
    made, seen = GPT(GPTConfig(29, 16, 1, 64, 2, norm, dropout=0.25)).train(), []

    def check(part):
        assert (part == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)

    block = made.layers[0]
    block.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    made(ids())
    check(seen[0])
    block.norm_1 = block.norm_2 = nn.Identity()
    zeros = torch.zeros(50, 1, 64)
    for attended, fed in ((1, 0), (0, 1)):
        block.attention = lambda *given, attended=attended: (zeros + attended, None)
        block.feedforward = lambda x, fed=fed: zeros + fed
        told, _ = block(zeros, "auto")
        check(told)
        assert told.max().item() == pytest.approx(1 / 0.75)


@pytest.mark.parametrize("changes", [{"recompute": True}, {"implementation": "products"}])
def test_ways_to_compute_change_no_gradient(changes, shake):
    found = []
    for given in ({}, changes):
        torch.manual_seed(0)
        made = shake(GPT(TINY, **given).double())
        loss = loss_of(made(ids()))
        found.append([loss, *torch.autograd.grad(loss, list(made.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_sixteen_bits_are_close_to_what_they_round(shake):
    made = shake(GPT(TINY)).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        near = made(ids()).float()
    assert 0 < (near - made(ids())).abs().max() < 0.2 * made(ids()).std()


@pytest.mark.parametrize("multiplies", [True, False])
def test_in_sixteen_bits_plain_products_are_for_processors_that_multiply_them(shake, monkeypatch, multiplies):
    monkeypatch.setattr(gpt, "has_bf16", lambda: multiplies)
    found = {}
    for implementation in ("auto", "products", "dense"):
        torch.manual_seed(0)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            found[implementation] = shake(GPT(TINY, implementation))(ids())
    assert torch.equal(found["auto"], found["products"]) == multiplies
    assert torch.equal(found["auto"], found["dense"]) != multiplies


@pytest.mark.parametrize("implementation", ["auto", "products", "dense", "loop"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3)])
def test_branches_are_what_reading_each_text_in_full_gives(shake, norm, implementation, lengths):
    made = shake(GPT(replace(TINY, norm=norm), implementation).double())
    trunk, branches = made.embed(ids(2, 5)), made.embed(ids(6, 4, 1)).unflatten(0, (2, 3))
    first, rest = made.read_branches(trunk, branches, torch.tensor(lengths))
    for row, n in enumerate(lengths):
        for branch in range(3):
            whole = made.read(torch.cat([trunk[row, 5 - n:], branches[row, branch]])[None])[0]
            torch.testing.assert_close(first[row, 5 - n:], whole[:n])
            torch.testing.assert_close(rest[row, branch], whole[n:])


def test_perplexity_reads_only_what_it_scores(shake, monkeypatch):
    made, text, rows = shake(GPT(TINY).double()), ids(1, 40)[0], []
    wanted = perplexity(lambda x: made(x), text, 8, 6).target_nll
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: (
        rows.append(len(x)) if self is made.output else None, F.linear(x, self.weight, self.bias))[1])
    found = perplexity(made, text, 8, 6)
    assert found.target_nll == pytest.approx(wanted) and sum(rows) == found.n_scored == 39


@pytest.mark.parametrize(("changes", "words"), [
    ({"vocab_size": 0}, "vocab_size is 0"), ({"n_positions": 0}, "n_positions is 0"), ({"n_layer": 0}, "n_layer is 0"),
    ({"n_head": 3}, "n_embd is 16 and n_head 3"), ({"norm": "prae"}, "unknown norm 'prae'. Did you mean 'pre'"),
    ({"n_layer": 2.5}, "n_layer is 2.5; it must be a whole number"), ({"n_head": True}, "n_head is True"),
    ({"n_embd": "16"}, "n_embd is '16'"), ({"dropout": 1.0}, "dropout is 1.0"), ({"dropout": -0.1}, "dropout is -0.1"),
    ({"dropout": "x"}, "dropout is 'x'")])
def test_sizes_that_do_not_fit(changes, words):
    with pytest.raises(ReproError, match=words):
        replace(TINY, **changes)


def test_texts_that_cannot_be_read():
    for text, words in ((ids(1, 17), "17 tokens, but the model's context ends at 16"), (ids(1, 0), "has no tokens"),
                        (ids(1, 3) + 27, "the model knows 0 to 28"), (ids(1, 3) - 29, "the model knows 0 to 28")):
        with pytest.raises(ReproError, match=words):
            GPT(TINY)(text)


def test_weights_of_an_lstm_are_counted_and_as_many_as_asked_for():
    for config in (LSTMConfig(29, 16, 40), LSTMConfig(8192, 256, 936)):
        with torch.device("meta"):
            assert sum(weight.numel() for weight in LSTM(config).parameters()) == config.parameters
    wanted = GPTConfig(8192, 512, 6, 256, 4, "post", dropout=0.1)
    config = LSTMConfig.as_large_as(wanted)
    assert (config.vocab_size, config.n_embd, config.dropout) == (8192, 256, 0.1)
    apart = [abs(replace(config, units=config.units + k).parameters - wanted.parameters) for k in (-8, 0, 8)]
    assert config.units % 8 == 0 and min(apart) == apart[1] < 5e-3 * wanted.parameters


def test_an_lstm_is_the_formulas_written_out():
    torch.manual_seed(0)
    made, text = LSTM(LSTMConfig(29, 6, 5)).double(), ids(2, 9)
    state = cell = torch.zeros(2, 5, dtype=torch.float64)
    x = made.embed(text)
    for k in range(9):
        gates = (x[:, k] @ made.recurrent.weight_ih_l0.T + made.recurrent.bias_ih_l0
                 + state @ made.recurrent.weight_hh_l0.T + made.recurrent.bias_hh_l0)
        enter, forget, new, out = gates.chunk(4, 1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        state = out.sigmoid() * cell.tanh()
        logits = (state @ made.back.weight.T + made.back.bias) @ made.embed.weight.T
        torch.testing.assert_close(made(text)[:, k], logits)


def test_an_lstm_drops_out_only_while_it_trains():
    made = LSTM(LSTMConfig(29, 6, 5, dropout=0.5))
    assert not torch.equal(made(ids()), made(ids()))
    made = copy.deepcopy(made).eval()
    assert torch.equal(made(ids()), made(ids())) and made.output.weight is made.embed.weight


@pytest.mark.parametrize(("values", "words"), [((29, 6, 0), "units is 0"), ((29, 0, 5), "n_embd is 0"),
                                               ((29, 6, 5, 1.0), "dropout is 1.0")])
def test_an_lstm_that_cannot_be(values, words):
    with pytest.raises(ReproError, match=words):
        LSTMConfig(*values)
