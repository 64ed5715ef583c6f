"""Continuations and last words against reading every text alone, token by token."""

import math
import re
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import continuation_nll, lambada, perplexity
from repro.evaluation.zero_shot import lambada_with_bars
from repro.models import GPT, GPTConfig

V = 300


@pytest.fixture(scope="module")
def model(shake):
    torch.manual_seed(0)
    return shake(GPT(GPTConfig(V, 32, 2, 16, 2, dropout=0.5)).double())


def texts(n=13, seed=0):
    draw = np.random.default_rng(seed)
    prefixes = [draw.integers(V, size=draw.integers(1, 20)).tolist() for _ in range(n)]
    return prefixes, [draw.integers(V, size=draw.integers(1, 8)).tolist() for _ in range(n)]


def by_hand(model, prefix, ids):
    """Nats of each token of `ids`, every one from a reading of its own."""
    model.eval()
    found = []
    for k, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([[*prefix, *ids[:k]]]))[0, -1]
        found.append((logits.logsumexp(0) - logits[token]).item())
    model.train()
    return found


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_each_continuation_is_told_by_all_that_stands_before_it(model, batch_size):
    prefixes, continuations = texts()
    model.train()
    done = []
    sums, counts = continuation_nll(model, prefixes, continuations, batch_size=batch_size, progress=done.append)
    wanted = [sum(by_hand(model, *pair)) for pair in zip(prefixes, continuations, strict=True)]
    assert sums == pytest.approx(wanted, rel=1e-9) and sums.dtype == np.float64
    assert counts.tolist() == [len(ids) for ids in continuations] and sum(done) == 13
    assert model.training


def test_any_model_from_ids_to_logits_will_do(model, tiny_gpt2):
    prefixes, continuations = texts()
    sums, _ = continuation_nll(model, prefixes, continuations)
    model.eval()
    plain, _ = continuation_nll(lambda ids: model(ids), prefixes, continuations)
    assert plain == pytest.approx(sums)
    theirs = tiny_gpt2(dtype=torch.float64, vocab_size=V, n_positions=32)
    ours, _ = continuation_nll(GPT.from_transformers(theirs), prefixes, continuations)
    assert continuation_nll(theirs, prefixes, continuations)[0] == pytest.approx(ours)


class Named(torch.nn.Module):
    """From ids to logits, with layers that have the names of parts of a `GPT`, and do something else."""

    def __init__(self):
        super().__init__()
        self.hidden, self.base_model = torch.nn.Embedding(V, V), torch.nn.Linear(V, V)
        self.output = torch.nn.Linear(V, V)

    def forward(self, ids):
        return self.output(self.base_model(self.hidden(ids)).relu())


def test_layers_of_a_module_may_have_any_names():
    torch.manual_seed(0)
    made = Named().double()
    prefixes, continuations = texts()
    wanted = [sum(by_hand(made, *pair)) for pair in zip(prefixes, continuations, strict=True)]
    assert continuation_nll(made, prefixes, continuations)[0] == pytest.approx(wanted, rel=1e-9)
    text = [*prefixes[0], *continuations[0]]
    assert perplexity(made, text, len(text), 0).nll == pytest.approx(sum(by_hand(made, text[:1], text[1:])), rel=1e-6)


@pytest.mark.parametrize(("prefixes", "continuations", "words"), [
    ([], [], "there is no prefix"), ([[1]], [[2], [3]], "1 prefixes and 2 continuations"),
    ([[1], []], [[2], [3]], r"prefix 1 has shape \(0,\)"), ([[1]], [[]], r"continuation 0 has shape \(0,\)"),
    ([[1] * 30], [[2] * 4], "text 0 has 33 tokens to read, but the model's context ends at 32"),
    ([[1], [2]], [[3], [4, 999]], "continuation 1 holds token id 999, but the model knows 0 to [0-9]+;"),
    ([[1], [1]], [[-100], [2]], "continuation 0 holds token id -100"),
    ([[1], [-3]], [[2], [2]], "prefix 1 holds token id -3")])
def test_what_cannot_be_scored(model, prefixes, continuations, words):
    with pytest.raises(ReproError, match=words):
        continuation_nll(model, prefixes, continuations)
    if len(prefixes) == 1 and len(continuations) == 1 and prefixes[0] and continuations[0]:
        continuation_nll(model, [prefixes[0][1:]], continuations)  # the last token is not read


def test_a_batch_of_none(model):
    with pytest.raises(ReproError, match="batch_size is 0"):
        continuation_nll(model, [[1]], [[2]], batch_size=0)
    with pytest.raises(ReproError, match="batch_size is 1.5; it must be a whole number"):
        continuation_nll(model, [[1]], [[2]], batch_size=1.5)


@pytest.mark.parametrize(("prefix", "continuation"), [([1.7], [1]), ([1], [1.2]), (["1"], [1]), ([True], [1])])
def test_ids_that_are_no_whole_numbers(model, prefix, continuation):
    with pytest.raises(ReproError, match="n 0 has dtype .*; token ids must be whole numbers|prefix 0 has dtype"):
        continuation_nll(model, [prefix], [continuation])


def test_a_passage_that_is_no_text(model):
    with pytest.raises(ReproError, match="passages 1 is 3; it must be a text"):
        lambada(model, None, ["a b", 3])


TOKENS = [f"{blank}{letter}" for blank in ("", " ") for letter in "abcd"]  # a letter, or one behind a blank
LETTERS = SimpleNamespace(encode=lambda text: np.array([TOKENS.index(one) for one in re.findall(" ?[a-d]", text)]),
                          decode=lambda ids: "".join(TOKENS[k] for k in ids))
PASSAGES = ["ab ab", "cd a", "d da b", "bad dad", "a c", "b dad", "c ad"]
TOLD = {"b": [" a", " d"], " a": ["b", "d"], "d": [" a", " d"], "a": ["d", " b"], " d": ["a", "b"], "c": [" a", "b"]}


def bigrams():
    """(8, 8): logits after each token. The two of `TOLD` are the likeliest ones, in this order."""
    table = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for token, following in TOLD.items():
        for rank, other in enumerate(following):
            table[TOKENS.index(token), TOKENS.index(other)] = 9 - rank
    return table


@pytest.mark.parametrize(("stop_words", "correct"), [
    ((), [True, True, False, False, False, False, False]),
    (("a", "ab"), [False, False, False, True, False, True, False]),  # "ab" is two tokens, and may begin with " a"
    ((" a", "ab "), [False, False, False, True, False, True, False]),  # with blanks around them
    (("d", "c"), [True, True, False, False, False, False, False])])
def test_last_words_against_a_table_of_what_follows(stop_words, correct):
    table = bigrams()
    told = lambada(lambda ids: table[ids], LETTERS, PASSAGES, stop_words, batch_size=3, whole_words=False)
    nats = []
    for passage in PASSAGES:
        chain = LETTERS.encode(passage)[-len(passage.split()[-1]) - 1:]  # the token before the word, and the word
        nats.append(-sum(table[one].log_softmax(0)[other].item() for one, other in pairwise(chain)))
    assert told.correct.tolist() == correct and told.correct.dtype == bool
    assert told.nll == pytest.approx(nats) and told.n == 7
    assert told.accuracy == sum(correct) / 7
    assert told.perplexity == pytest.approx(math.exp(sum(nats) / 7))


def brute_force(table, prefix, word, barred):
    """Whether a word is told, from the probability of every token at every place: one that completes a barred word
    counts with the share of those after it that lengthen the word."""
    shares, text = table.softmax(1), [*prefix, *word]
    lengthens = torch.tensor([not token.startswith(" ") for token in TOKENS])
    if tuple(word) in barred:
        return False
    for k, wanted in enumerate(word):
        score = shares[text[len(prefix) + k - 1]].clone()
        for token in range(len(TOKENS)):
            if (*word[:k], token) in barred:
                score[token] *= shares[token][lengthens].sum()
        if int(score.argmax()) != wanted:
            return False
    return True


@pytest.mark.parametrize("seed", range(12))
def test_whole_words_are_barred_as_brute_force_has_it(seed):
    draw = np.random.default_rng(seed)
    table = torch.from_numpy(draw.normal(size=(8, 8)) * 2)
    written = ["".join(draw.choice(list("abcd"), draw.integers(1, 4))) for _ in range(7)]
    passages = [f"{draw.choice(list('abcd'))} {''.join(word)}" for n in (1, 2, 3) for word in product("abcd", repeat=n)]
    barred = {tuple(LETTERS.encode(f" {word}")) for word in written}
    told = lambada(lambda ids: table[ids], LETTERS, passages, written, batch_size=5).correct
    wanted = [brute_force(table, LETTERS.encode(passage[:1]).tolist(), LETTERS.encode(passage[1:]).tolist(), barred)
              for passage in passages]
    assert told.tolist() == wanted
    assert not told[[passage[2:] in written for passage in passages]].any()


def test_a_towel_can_be_told_where_to_is_a_stop_word():
    names = [" to", "wel", " dog", " the"]
    coder = SimpleNamespace(encode=lambda text: [names.index(one) for one in re.findall(" to|wel| dog| the", text)],
                            decode=lambda ids: names[ids[0]])
    table = torch.tensor([[0.0, 3, 0, 0], [0, 0, 0, 0], [5.0, 0, 4, 3], [0, 0, 0, 0]])  # after " dog": to, dog, the
    passages = [" dog towel", " dog dog", " dog to"]
    for whole, wanted in ((True, [True, False, False]), (False, [False, True, False])):
        told = lambada(lambda ids: table[ids], coder, passages, ["to", "the"], whole_words=whole)
        assert told.correct.tolist() == wanted
    table[0, 1] = -3.0  # "to" hardly ever goes on
    assert lambada(lambda ids: table[ids], coder, passages, ["to", "the"]).correct.tolist() == [False, True, False]


def test_a_bar_on_first_tokens_is_for_these_only():
    coder = SimpleNamespace(encode=lambda text: ["abc".index(letter) for letter in text.replace(" ", "")])
    table = torch.tensor([[0.0, 0, 9], [9, 0, 8], [0, 9, 0]])  # a is followed by c, b by a or c, c by b
    for stop_words, correct in (((), [True, False]), (("c",), [True, False]), (("a",), [False, True])):
        told = lambada(lambda ids: table[ids], coder, ["b ac", "b cb"], stop_words, whole_words=False)
        assert told.correct.tolist() == correct


def test_each_of_several_bars_gives_what_it_gives_alone():
    names = ["the", "dog", "ran", "home"]
    coder = SimpleNamespace(encode=lambda text: [names.index(word) for word in text.split()],
                            decode=lambda ids: f" {names[ids[0]]}")

    def always(ids):  # "home" before "ran" before "dog"
        return torch.arange(4.).expand(*ids.shape, 4)

    passages, bars = ["the ran", "the dog", "the home"], [[], ["home"], ["home", "ran"]]
    found = lambada_with_bars(always, coder, passages, bars)
    assert [one.correct.tolist() for one in found] == [
        [False, False, True], [True, False, False], [False, True, False]]
    for one, words in zip(found, bars, strict=True):
        alone = lambada(always, coder, passages, words)
        np.testing.assert_array_equal(one.correct, alone.correct)
        np.testing.assert_array_equal(one.nll, alone.nll)


def test_last_words_of_real_tokens(model, tiny_bpe):
    coder = tiny_bpe
    passages = ["the old king said to the queen", "she went\nout of the house"]
    told = lambada(model, coder, passages)
    for passage, nats in zip(passages, told.nll, strict=True):
        ids, n = coder.encode(passage).tolist(), len(coder.encode(passage.rpartition(" ")[0]))
        assert nats == pytest.approx(sum(by_hand(model, ids[:n], ids[n:])))


@pytest.mark.parametrize("between", ["\n", "\t", "\u00a0", "\n\n", " \n"])
def test_a_last_word_follows_any_whitespace(model, tiny_bpe, between):
    before, word = f"the old king said{between}", "queen"
    told = lambada(model, tiny_bpe, [before + word])
    assert told.nll == pytest.approx([sum(by_hand(model, tiny_bpe.encode(before), tiny_bpe.encode(word)))])


@pytest.mark.parametrize(("passages", "words"), [
    ([], "there is no prefix"), (["a b", "ab"], "passage 1 ends in 'ab'"), (["a b "], "passage 0 ends in 'a b '"),
    (["a b\n"], "passage 0 ends in"), (["a b\t"], "passage 0 ends in"), (["a b\u00a0"], "passage 0 ends in"),
    (["a b\r\n"], "passage 0 ends in"), (["\na"], "passage 0"), ([" a"], "passage 0"), ([""], "passage 0 ends in ''")])
def test_passages_without_a_last_word(passages, words):
    with pytest.raises(ReproError, match=words):
        lambada(lambda ids: bigrams()[ids], LETTERS, passages)


def test_one_string_is_no_list_of_words():
    for passages, stop_words, name in (("a b", (), "passages"), (["a b"], "b", "stop_words")):
        with pytest.raises(ReproError, match=f"{name} is one string; give a list"):
            lambada(lambda ids: bigrams()[ids], LETTERS, passages, stop_words)


def test_a_perplexity_beyond_all_numbers():
    table = torch.zeros(8, 8).index_fill(1, torch.tensor([0]), 800)
    told = lambada(lambda ids: table[ids], LETTERS, ["a b"])
    assert told.nll == pytest.approx([800]) and told.perplexity == math.inf


def test_a_passage_beyond_the_context(model):
    with pytest.raises(ReproError, match="text 0 has 33 tokens to read"):
        lambada(model, LETTERS, ["a" * 33 + " b"])
