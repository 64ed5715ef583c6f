"""The state of another document, against readings by hand, one window at a time."""

import numpy as np
import pytest
import torch

from repro.data import Tokens
from repro.errors import ReproError
from repro.evaluation import score_documents, score_other_document, windows

BOS = 0
BOOKS = [[5, 9, 3], [], [1, 2, 3, 4, 1, 2, 3, 8, 8, 1, 4], [6, 6], [2, 2, 1, 5, 3, 4, 1, 1, 2, 6, 5, 4, 7, 7, 9, 1]]
SIZES = [(4, 0), (4, 1), (3, 2), (5, 3), (16, 0)]


def tokens(joined, books=BOOKS):
    stream, starts = [BOS], []
    for k, book in enumerate(books):
        if k and not joined:
            stream.append(BOS)
        starts.append(len(stream))
        stream.extend(book)
    lengths = np.array([len(book) for book in books])
    return Tokens(np.array(stream, np.int32), np.array(starts), lengths * 2, lengths * 10, BOS, joined)


def loss_of(model, ids, span, z, stride):
    """Loss of each target of one window, from its hidden states."""
    hidden, z = model._read_window(torch.tensor([ids[span.start:span.stop]]), z, stride)
    scores = model.lm_head(hidden)[0].log_softmax(-1)
    return [-scores[t - 1 - span.start, ids[t]].item() for t in range(span.first_target, span.stop + 1)], z


def by_hand(model, joined, window, overlap, books=BOOKS):
    """Losses of every token, written out: each text is read with what is looked up in the others, one by one."""
    books = [book for book in books if book]
    stride, alone = window - overlap, []
    for book in books:
        z, after = None, []
        for span in windows(1 + len(book), window, overlap):
            _, z = loss_of(model, [BOS, *book], span, z, stride)
            after.append(z)
        alone.append(after)
    owner = [0, *(k for k, book in enumerate(books) for _ in book)]  # the document of each place in running text
    texts = [[BOS, *(token for book in books for token in book)]] if joined else [[BOS, *book] for book in books]
    losses = []
    for n, ids in enumerate(texts):
        seen = []
        for k, span in enumerate(windows(len(ids), window, overlap)):
            held = {owner[at] for at in range(span.start, span.stop + 1)} if joined else {n}
            mine = owner[span.start] if joined else n
            other = max(held) + 1 if max(held) + 1 < len(books) else 0
            assert other not in held
            nth = seen.count(mine)  # windows of this document so far
            z = None if k == 0 else alone[other][(nth - 1) % len(alone[other])]
            seen.append(mine)
            losses += loss_of(model, ids, span, z, stride)[0]
    return losses


@pytest.mark.parametrize("positions", ["all", "passed"])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("window", "overlap"), SIZES)
def test_every_window_sees_the_state_of_another_document(tiny_recurrent, joined, window, overlap, positions):
    model = tiny_recurrent(dtype=torch.float64, positions=positions)
    if joined and window == 16:
        pytest.skip("such a window holds something of every article")
    text = tokens(joined)
    with torch.no_grad():
        expected = by_hand(model, joined, window, overlap)
    for batch_size in (1, 3, None):
        told = []
        whole, nll = score_other_document(model, text, window, overlap, batch_size, told.append)
        np.testing.assert_allclose(whole.target_nll, expected, rtol=1e-5)
        assert (sum(told), whole.n_scored, whole.n_words) == (32, 32, 64)
    parts = np.split(np.array(expected), np.cumsum([len(book) for book in BOOKS])[:-1])
    np.testing.assert_allclose(nll, [part.sum() for part in parts], rtol=1e-5)
    own, _ = score_documents(model, text, window, overlap)
    changed = np.abs(own.target_nll - whole.target_nll) > 1e-4
    assert changed.any() == (window < 16)
    assert not changed[:min(window, 3)].any()  # a first window sees no state


@pytest.mark.parametrize("joined", [True, False])
def test_no_later_token_of_the_own_document_changes_a_loss(tiny_recurrent, joined):
    """A leak would make the control look like the model itself."""
    model = tiny_recurrent()
    before = score_other_document(model, tokens(joined), 3, 1)[0].target_nll
    place = 8  # inside the third book, the second with text
    books = [list(book) for book in BOOKS]
    books[2][place] = 20
    changed = np.abs(score_other_document(model, tokens(joined, books), 3, 1)[0].target_nll - before) > 1e-5
    own = np.arange(len(BOOKS[0]), len(BOOKS[0]) + len(BOOKS[2]))
    assert not changed[own[:place]].any()
    assert changed[own[place]]
    assert not changed[-1]  # the book after it sees the states of the first


@pytest.mark.parametrize(("joined", "books"), [(False, [[], [1, 2, 3]]), (True, [[1, 2, 3, 4, 5]]),
                                               (True, [[1, 2, 3], [4], [5, 6, 7]])])
def test_without_another_document_there_is_one_line(tiny_recurrent, joined, books):
    with pytest.raises(ReproError, match="no other document") as raised:
        score_other_document(tiny_recurrent(), tokens(joined, books), 8, 0)
    assert "\n" not in str(raised.value)


def test_a_model_in_training_is_left_in_training(tiny_recurrent):
    model = tiny_recurrent().train()
    score_other_document(model, tokens(False), 4, 0)
    assert model.training
