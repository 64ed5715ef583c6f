"""Loss told apart by document, against cuts made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import perplexity, score_documents

BOS = 0
BOOKS = [[5], [1, 2, 3, 4, 1, 2, 3], [6, 6], [2, 2, 1, 5, 3, 4, 1, 1, 2, 6, 5, 4]]
COST = np.array([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])  # nats, up to a constant, of a target token


def by_target(ids):
    """A model that ignores its input: token t costs COST[t] + ln(sum of exp(-COST))."""
    return -torch.from_numpy(COST).expand(*ids.shape, 7)


CONSTANT = math.log(np.exp(-COST).sum())


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("window", "overlap"), [(4, 0), (4, 3), (50, 0), (1, 0)])
def test_every_document_pays_for_its_own_tokens(joined, window, overlap, tokens):
    whole, nll = score_documents(by_target, tokens(joined, BOOKS), window, overlap)
    expected = [sum(COST[token] + CONSTANT for token in book) for book in BOOKS]
    np.testing.assert_allclose(nll, expected, rtol=1e-6)
    assert whole.nll == pytest.approx(sum(expected), rel=1e-6)
    assert whole.n_scored == sum(map(len, BOOKS)) == 22
    assert (whole.n_words, whole.n_bytes) == (44, 220)
    assert whole.per_word == pytest.approx(math.exp(sum(expected) / 44), rel=1e-6)
    assert len(whole.target_nll) == 22


@pytest.mark.parametrize("overlap", [0, 2])
def test_running_text_is_read_as_one_stream(tiny_recurrent, overlap, tokens):
    model, split = tiny_recurrent(), tokens(True, BOOKS)
    stream = [BOS, *(token for book in BOOKS for token in book)]
    expected = perplexity(model, stream, 4, overlap)
    whole, nll = score_documents(model, split, 4, overlap)
    np.testing.assert_array_equal(whole.target_nll, expected.target_nll)
    ends = np.cumsum([len(book) for book in BOOKS])
    for k, end in enumerate(ends):
        assert nll[k] == pytest.approx(expected.target_nll[end - len(BOOKS[k]):end].sum(dtype=np.float64), rel=1e-9)
    assert nll.sum() == pytest.approx(expected.nll, rel=1e-9)


@pytest.mark.parametrize("overlap", [0, 2])
def test_books_are_read_one_by_one_each_after_its_own_start(tiny_recurrent, overlap, tokens):
    model, split = tiny_recurrent(), tokens(False, BOOKS)
    alone = [perplexity(model, [BOS, *book], 4, overlap).nll for book in BOOKS]
    whole, nll = score_documents(model, split, 4, overlap)
    np.testing.assert_allclose(nll, alone, rtol=1e-9)
    assert whole.nll == pytest.approx(sum(alone), rel=1e-9)
    _, running = score_documents(model, tokens(True, BOOKS), 4, overlap)
    assert nll[0] == pytest.approx(running[0], rel=1e-5)  # the first document starts the same way in both
    assert abs(nll[3] - running[3]) > 1e-2


@pytest.mark.parametrize("joined", [True, False])
def test_progress_counts_every_target(joined, tokens):
    told = []
    score_documents(by_target, tokens(joined, BOOKS), 4, 1, batch_size=2, progress=told.append)
    assert sum(told) == 22


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("empty", [(0,), (1, 2), (3,)])
def test_a_document_without_tokens_keeps_its_place(joined, empty, tokens):
    books = [[] if k in empty else book for k, book in enumerate(BOOKS)]
    whole, nll = score_documents(by_target, tokens(joined, books), 4, 1)
    expected = [sum(COST[token] + CONSTANT for token in book) for book in books]
    np.testing.assert_allclose(nll, expected, rtol=1e-6)
    assert whole.n_scored == sum(map(len, books))
    assert whole.n_words == 2 * whole.n_scored


@pytest.mark.parametrize("joined", [True, False])
def test_text_without_any_token_is_refused(joined, tokens):
    with pytest.raises(ReproError, match="none of the 2 documents has a token"):
        score_documents(by_target, tokens(joined, [[], []]), 4, 1)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("overlap", [0, 3])
def test_what_is_never_predicted_costs_nothing(joined, overlap, tokens):
    """Token 6 is read but never predicted; the second book has nothing else, the starts of books do count."""
    never, text = 6, tokens(joined, BOOKS)
    text = replace(text, targets=text.ids != never)
    whole, nll = score_documents(by_target, text, 4, overlap)
    told = [[token for token in book if token != never] for book in BOOKS]
    expected = [sum(COST[token] + CONSTANT for token in book) for book in told]
    np.testing.assert_allclose(nll, expected, rtol=1e-6)
    assert expected[2] == 0 and whole.n_scored == sum(map(len, told)) == 19
    assert whole.per_token == pytest.approx(math.exp(sum(expected) / 19), rel=1e-6)
    zero = [token == never for book in BOOKS for token in book]
    assert (whole.target_nll == 0).tolist() == zero


@pytest.mark.parametrize("overlap", [0, 3])
def test_documents_read_together_have_the_losses_of_each_alone(tiny_recurrent, overlap):
    """On a GPU a model with a state reads window k of several documents at a time."""
    from repro.evaluation import perplexity
    from repro.evaluation.documents import _losses_together

    model = tiny_recurrent(residual=True)
    texts = [np.random.default_rng(k).integers(29, size=n) for k, n in enumerate((30, 17, 8, 9, 2))]
    for batch_size in (1, 2, 5):
        found = _losses_together(model, texts, 8, overlap, batch_size, None)
        for ids, losses in zip(texts, found, strict=True):
            alone = perplexity(model, ids, 8, overlap).target_nll
            np.testing.assert_allclose(losses, alone, rtol=1e-5, atol=1e-5)
    with pytest.raises(ReproError, match="batch_size is 0"):
        _losses_together(model, texts, 8, overlap, 0, None)
    with torch.no_grad():
        model.transformer.ln_f.bias[0] = math.nan
    with pytest.raises(ReproError, match="(?i)nan"):
        _losses_together(model, texts, 8, overlap, 2, None)
