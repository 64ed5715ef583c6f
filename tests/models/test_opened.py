"""A decoder that reads <bos> in front of every text, against transformers' own losses, scores and generated text."""

import numpy as np
import pytest
import torch
from tiny_gemma import TEXTS, model, tokenizer

from repro.data import Tokeniser
from repro.errors import ReproError
from repro.evaluation import continuation_nll, lambada, perplexity
from repro.evaluation.generation import branch_nll, continued
from repro.models.opened import Opened

BOS = 2


@pytest.fixture(scope="module")
def coder():
    return Tokeniser("tiny", tokenizer())


@pytest.fixture(scope="module")
def theirs(coder):
    return model(coder.vocab_size)


@pytest.fixture(scope="module")
def opened(theirs):
    return Opened(theirs, BOS, context=40)


@pytest.fixture(scope="module")
def text(coder):
    return coder.encode(" ".join(TEXTS)).tolist()


def nats(theirs, ids):
    """Of every token of `ids` after <bos>, by transformers' own loss, token by token."""
    logits = theirs(torch.tensor([[BOS, *ids]])).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="none").detach().numpy()


def test_each_window_begins_with_the_opening_token(theirs, opened, text):
    for overlap in (0, 5):
        found = perplexity(opened, [BOS, *text], window=16, overlap=overlap).target_nll
        wanted, known = [], [BOS, *text]
        start = stop = 0
        while stop < len(known) - 1:
            start = max(0, stop - overlap)
            before, stop = stop, min(start + 16, len(known) - 1)
            window = known[start + (start == 0):stop + 1]  # the text has one opening token already, and no second
            wanted.append(nats(theirs, window)[-(stop - before):])
        np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-4, atol=1e-5)


def test_one_window_has_the_loss_that_transformers_reports(theirs, opened, text):
    ids = torch.tensor([[BOS, *text[:30]]])
    found = perplexity(opened, ids[0], window=40, overlap=0)
    assert found.nll / found.n_scored == pytest.approx(theirs(ids, labels=ids).loss.item(), rel=1e-5)
    assert found.n_scored == 30


def test_last_words(theirs, opened, coder):
    passages = ["the cat sat on the mat", "the best of times", "the cats sat on the cat"]
    found = lambada(opened, coder, passages)
    for k, passage in enumerate(passages):
        before, _, word = passage.rpartition(" ")
        before, word = coder.encode(before).tolist(), coder.encode(f" {word}").tolist()
        assert found.nll[k] == pytest.approx(nats(theirs, before + word)[len(before):].sum(), rel=1e-5)
        logits = theirs(torch.tensor([[BOS, *before, *word]])).logits[0, len(before):-1]
        assert found.correct[k] == (logits.argmax(1).tolist() == word)


@pytest.mark.parametrize("n", [3, 12])  # shorter and longer than the sliding window of 8
def test_branches_equal_whole_texts(theirs, opened, text, n):
    branches = [text[20:23], text[30:31], text[40:49]]
    found = branch_nll(opened, text[:n], branches)
    np.testing.assert_allclose(found, [nats(theirs, text[:n] + one)[n:].sum() for one in branches], rtol=1e-5)
    np.testing.assert_allclose(found, continuation_nll(opened, [text[:n]] * 3, branches)[0], rtol=1e-5)


@pytest.mark.parametrize("half", [False, True])
def test_generated_text_is_that_of_transformers(theirs, opened, text, half):
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        prompts = [text[:5], text[3:20]]
        found, losses = continued(opened, prompts, 6)
        for row, loss, prompt in zip(found, losses, prompts, strict=True):
            whole = theirs.generate(torch.tensor([[BOS, *prompt]]), max_new_tokens=6, min_new_tokens=6,
                                    do_sample=False, eos_token_id=None)[0]
            assert row.tolist() == whole[-6:].tolist()
            np.testing.assert_allclose(loss, nats(theirs, prompt + row.tolist())[-6:], rtol=0.05 if half
                                       else 1e-4, atol=0.05 if half else 1e-5)


def test_an_exact_output_layer_computes_logits_in_float32_under_autocast(theirs, text):
    ids = torch.tensor([text[:20]])
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        plain, exact = (Opened(theirs, BOS, 40, exact)(ids).logits for exact in (False, True))
        states = Opened(theirs, BOS, 40).hidden(ids)
    assert plain.dtype == torch.bfloat16 and exact.dtype == torch.float32
    torch.testing.assert_close(exact, states @ theirs.lm_head.weight.T, rtol=1e-5, atol=1e-5)


def test_input_that_cannot_be_read(theirs, opened, coder, text):
    with pytest.raises(ReproError, match=f"bos is {coder.vocab_size}"):
        Opened(theirs, coder.vocab_size, 40)
    with pytest.raises(ReproError, match="model is a Gemma3TextModel; give a causal language model of transformers"):
        Opened(theirs.base_model, BOS, 40)
    with pytest.raises(ReproError, match="context is 0"):
        Opened(theirs, BOS, 0)
    with pytest.raises(ReproError, match="the model's context ends at 40"):
        perplexity(opened, text, window=41, overlap=0)
    with pytest.raises(ReproError, match="context ends at 40"):
        branch_nll(opened, text[:40], [text[:3]])
