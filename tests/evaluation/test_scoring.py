"""Perplexity against one forward pass per target, and against models whose perplexity is known."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repro.errors import ReproError
from repro.evaluation import Score, perplexity, scoring

CASES = [(40, 8, 0), (40, 8, 3), (41, 8, 0), (42, 8, 0), (40, 8, 7), (8, 8, 2), (9, 8, 2), (10, 8, 2), (2, 8, 2),
         (30, 1, 0), (37, 16, 5)]  # tokens, window, overlap


def text(n, seed=0, vocabulary=29):
    return torch.from_numpy(np.random.default_rng(seed).integers(vocabulary, size=n))


@torch.no_grad()
def one_pass_per_target(model, tokens, window, overlap, window_of):
    """nll of every target: the model reads the target's window up to the token before it, and nothing else."""
    nll = []
    for target in range(1, len(tokens)):
        start, _ = window_of(target, len(tokens), window, overlap)
        logits = model(input_ids=tokens[None, start:target]).logits[0, -1].double()
        nll.append((logits.logsumexp(0) - logits[tokens[target]]).item())
    return np.array(nll)


@pytest.fixture(scope="module")
def gpt2(tiny_gpt2):
    return tiny_gpt2()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gpt2_scores_equal_one_forward_pass_per_target(gpt2, window_of, case):
    n, window, overlap = case
    tokens = text(n)
    expected = one_pass_per_target(gpt2, tokens, window, overlap, window_of)
    score = perplexity(gpt2, tokens, window, overlap)
    np.testing.assert_allclose(score.target_nll, expected, rtol=1e-4, atol=1e-4)
    assert score.nll == pytest.approx(expected.sum(), rel=1e-5)
    assert score.n_scored == n - 1
    assert score.per_token == pytest.approx(math.exp(expected.sum() / (n - 1)), rel=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("insert", ["one", "every"])
def test_recurrent_scores_equal_the_dense_reference(tiny_recurrent, dense, case, insert):
    n, window, overlap = case
    model, tokens = tiny_recurrent(insert=insert), text(n, seed=1)
    with torch.no_grad():
        double = {name: weight.double() for name, weight in model.named_parameters()}
        logits = dense(model, tokens[None, :-1], window, overlap, weights=double)[0]
    expected = F.cross_entropy(logits, tokens[1:], reduction="none").numpy()
    score = perplexity(model, tokens, window, overlap)
    np.testing.assert_allclose(score.target_nll, expected, rtol=1e-4, atol=1e-4)
    assert score.nll == pytest.approx(expected.sum(), rel=1e-5)


def test_overlap_gives_context_and_so_changes_the_score(gpt2):
    tokens = text(60)
    assert len({round(perplexity(gpt2, tokens, 8, overlap).nll, 3) for overlap in range(8)}) == 8


def test_windows_of_different_size_count_by_their_targets():
    # Tokens 0 cost ln 2, tokens 1 and 2 cost ln 4 nats. Nine targets in windows of 4, 4 and 1.
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    tokens = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
    score = perplexity(lambda ids: logits.expand(*ids.shape, 3), tokens, 4, 0)
    assert score.nll == pytest.approx((4 * 1 + 5 * 2) * math.log(2), rel=1e-6)
    assert score.per_token == pytest.approx(2 ** (14 / 9), rel=1e-6)
    mean_of_means = 2 ** ((1 + 2 + 2) / 3)
    assert abs(score.per_token - mean_of_means) > 0.1


@pytest.mark.parametrize("overlap", [0, 3, 7])
def test_the_batch_size_does_not_matter(gpt2, overlap):
    tokens = text(150)
    sizes = [perplexity(gpt2, tokens, 8, overlap, batch_size=size).nll for size in (1, 2, 3, 7, 1000)]
    assert sizes == pytest.approx([sizes[0]] * 5, rel=1e-5)


def test_windows_are_read_in_batches(gpt2):
    read = []
    hook = gpt2.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True)
    perplexity(gpt2, text(8 + 7 * 5 + 1 + 2), 8, 3, batch_size=4)  # one first window, seven whole ones, a short one
    hook.remove()
    assert read == [(6, 8), (1, 8), (4, 8), (3, 8), (1, 5)]  # first six rows that show whether it is causal


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_logits_are_held_a_few_rows_at_a_time(tiny_gpt2, tiny_recurrent, monkeypatch, recurrent, rows):
    model = tiny_recurrent() if recurrent else tiny_gpt2()
    tokens, held = text(60), []
    whole = perplexity(model, tokens, 8, 3)
    monkeypatch.setattr(scoring, "LOGIT_BYTES", rows * 29 * 4 + 3)
    model.lm_head.register_forward_hook(lambda module, args, out: held.append(out.shape[:-1].numel()))
    chunked = perplexity(model, tokens, 8, 3)
    np.testing.assert_allclose(chunked.target_nll, whole.target_nll, rtol=1e-6, atol=1e-6)
    assert max(held) == rows
    assert sum(held) == 59  # no logits of positions that are read and not scored


def test_even_one_row_larger_than_the_limit_is_scored(gpt2, monkeypatch):
    monkeypatch.setattr(scoring, "LOGIT_BYTES", 1)
    assert perplexity(gpt2, text(20), 8, 3).n_scored == 19


def test_normalisers():
    score = Score(nll=24 * math.log(2), n_scored=12, n_words=6, n_bytes=48)
    assert score.per_token == pytest.approx(4)
    assert score.per_word == pytest.approx(16)
    assert score.bits_per_byte == pytest.approx(0.5)
    bare = Score(nll=1.0, n_scored=1)
    assert bare.per_word is None
    assert bare.bits_per_byte is None
    assert Score(nll=1e6, n_scored=1, n_words=1).per_word == math.inf


def test_normalisers_are_taken_from_the_call(gpt2):
    score = perplexity(gpt2, text(40), 8, 0, n_words=10, n_bytes=100)
    assert (score.n_words, score.n_bytes, score.n_scored) == (10, 100, 39)
    assert score.per_word == pytest.approx(math.exp(score.nll / 10))
    assert score.bits_per_byte == pytest.approx(score.nll / math.log(2) / 100)


class Uniform(nn.Module):
    def forward(self, ids):
        return SimpleNamespace(logits=torch.full((*ids.shape, 11), 7.0))


@pytest.mark.parametrize("model", [lambda ids: torch.zeros(*ids.shape, 11), Uniform()], ids=["function", "module"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_uniform_model_has_the_vocabulary_as_its_perplexity(model, case):
    n, window, overlap = case
    assert perplexity(model, text(n, vocabulary=11), window, overlap).per_token == pytest.approx(11, rel=1e-6)


def test_a_model_that_knows_the_next_token_has_perplexity_one():
    n = 50
    tokens = torch.arange(n) % 5

    def successor(ids):
        return 100.0 * F.one_hot((ids + 1) % 5, 5)

    assert perplexity(successor, tokens, 8, 3).per_token == pytest.approx(1.0, abs=1e-9)
    wrong = tokens.clone()
    wrong[20] = (wrong[20] + 1) % 5  # two predictions fail: the one of it and the one from it
    assert perplexity(successor, wrong, 8, 3).nll == pytest.approx(200.0, rel=1e-6)


@pytest.mark.parametrize("tokens", [
    [3, 1, 4, 1, 5, 9, 2, 6], np.array([3, 1, 4, 1, 5, 9, 2, 6], np.uint16),
    torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]], dtype=torch.int32)], ids=["list", "uint16", "row"])
def test_tokens_may_come_as_lists_arrays_or_tensors(gpt2, tokens):
    assert perplexity(gpt2, tokens, 4, 1) == perplexity(gpt2, torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]), 4, 1)


@pytest.mark.parametrize("recurrent", [False, True])
def test_the_mode_is_put_back_and_dropout_is_off_while_scoring(tiny_gpt2, tiny_recurrent, recurrent):
    dropout = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    model = tiny_recurrent(changes=dropout) if recurrent else tiny_gpt2(**dropout)
    tokens = text(40)
    expected = perplexity(model.eval(), tokens, 8, 2).nll
    assert not model.training
    model.train()
    assert perplexity(model, tokens, 8, 2).nll == expected
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_mode_is_put_back_after_an_error():
    class Broken(nn.Module):
        def forward(self, ids):
            assert not self.training
            raise RuntimeError("no")

    model = Broken().train()
    with pytest.raises(RuntimeError, match="no"):
        perplexity(model, text(10), 4, 0)
    assert model.training


@pytest.mark.parametrize("recurrent", [False, True])
def test_progress_counts_every_target(tiny_gpt2, tiny_recurrent, recurrent):
    told = []
    perplexity(tiny_recurrent() if recurrent else tiny_gpt2(), text(50), 8, 3, batch_size=3, progress=told.append)
    assert sum(told) == 49
    assert len(told) > 2


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("n", "window", "overlap", "words"), [
    (40, 17, 0, "context ends at 16"), (5, 17, 0, "context ends at 16"), (40, 8, 8, "overlap is 8"),
    (40, 8, -1, "overlap is -1"), (40, 0, 0, "window is 0"), (1, 8, 0, r"1 token"), (0, 8, 0, r"0 token")])
def test_impossible_requests_are_refused(tiny_gpt2, tiny_recurrent, recurrent, n, window, overlap, words):
    with pytest.raises(ReproError, match=words):
        perplexity(tiny_recurrent() if recurrent else tiny_gpt2(), text(n), window, overlap)


def test_a_window_beyond_any_context_is_refused():
    class Short(Uniform):
        config = SimpleNamespace(max_position_embeddings=16)

    assert perplexity(Short(), text(40, vocabulary=11), 16, 0).n_scored == 39
    with pytest.raises(ReproError, match="context ends at 16"):
        perplexity(Short(), text(40, vocabulary=11), 17, 0)


def test_llama_and_its_like_are_scored_too(window_of):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, vocab_size=29,
                                         num_attention_heads=2, max_position_embeddings=16)).eval()
    tokens = text(30)
    expected = one_pass_per_target(model, tokens, 8, 3, window_of)
    assert perplexity(model, tokens, 8, 3).nll == pytest.approx(expected.sum(), rel=1e-5)
    with pytest.raises(ReproError, match="context ends at 16"):
        perplexity(model, tokens, 17, 3)


def test_a_model_that_changes_its_logits_after_the_output_layer_is_scored_by_them():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = Gemma2ForCausalLM(Gemma2Config(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, vocab_size=29, final_logit_softcapping=0.01)).eval()
    tokens = text(12)
    expected = F.cross_entropy(model(tokens[None, :-1]).logits[0], tokens[1:], reduction="sum").item()
    assert perplexity(model, tokens, 16, 0).nll == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [0, -1])
def test_an_impossible_batch_size_is_refused(gpt2, size):
    with pytest.raises(ReproError, match="batch"):
        perplexity(gpt2, text(40), 8, 0, batch_size=size)


# Section 4.1: a model that is uniform until the 1,024th token of its input and good after it. Here: the 8th.
VOCABULARY, GOOD_FROM = 16, 8


def good_logits(ids):
    """Half of the probability on the token that follows in the cycle, the rest on all others alike."""
    likely = F.one_hot((ids + 1) % VOCABULARY, VOCABULARY)
    return torch.where(likely.bool(), 0.5, 0.5 / (VOCABULARY - 1)).log()


def degenerate(ids):
    logits = good_logits(ids)
    logits[:, :GOOD_FROM - 1] = 0.0  # input position 7 (from 0) is the 8th token
    return logits


def test_the_degenerate_model_looks_good_under_maximum_overlap():
    random = np.random.default_rng(0)
    distance = []
    for n in (9, 100, 1_000, 10_000):
        steps = np.where(random.random(n) < 0.5, 1, random.integers(2, VOCABULARY, size=n))
        tokens = torch.from_numpy(np.cumsum(steps) % VOCABULARY)
        good = perplexity(good_logits, tokens, GOOD_FROM, GOOD_FROM - 1, batch_size=512)
        story = perplexity(degenerate, tokens, GOOD_FROM, GOOD_FROM - 1, batch_size=512)
        # All it ever loses are the first seven targets, however long the text is.
        lost = 7 * math.log(VOCABULARY) - good.target_nll[:7].sum()
        assert story.nll - good.nll == pytest.approx(lost, abs=0.02)
        assert story.per_token == pytest.approx(good.per_token * math.exp(lost / (n - 1)), rel=1e-4)
        distance.append(abs(story.per_token / good.per_token - 1))
        without_overlap = perplexity(degenerate, tokens, GOOD_FROM, 0, batch_size=512)
        uniform = sum(1 for target in range(1, n) if target % GOOD_FROM)  # only every 8th target is predicted well
        exact = uniform * math.log(VOCABULARY) + good.target_nll[GOOD_FROM - 1::GOOD_FROM].sum()
        assert without_overlap.nll == pytest.approx(exact, rel=1e-5)
    assert distance[0] > 0.5
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 0.002
    assert without_overlap.per_token > 0.8 * VOCABULARY
