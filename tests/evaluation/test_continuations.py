"""Passages against slices of the books, continuations against running everything again for every token."""

import numpy as np
import pytest
import torch

from repro.data import Tokens
from repro.errors import ReproError
from repro.evaluation.continuations import continue_contexts, sample_passages

LENGTHS = (25, 3, 12, 11, 40)


@pytest.fixture(scope="module")
def books():
    """Five books whose tokens are all different: 100 * book + place; 0 stands before each."""
    stream, starts = [], []
    for book, length in enumerate(LENGTHS, start=1):
        stream.append(0)
        starts.append(len(stream))
        stream.extend(100 * book + np.arange(length))
    return Tokens(np.array(stream, np.int32), np.array(starts), np.array(LENGTHS), np.array(LENGTHS), 0, False)


def test_passages_are_disjoint_pieces_of_one_book_each(books):
    found = sample_passages(books, length=5, beyond=2, n=14)
    rooms = {1: 4, 3: 2, 4: 1, 5: 7}  # (length - 2) // 5; all 14 were asked for
    expected = [[100 * book + 5 * i + k for k in range(7)] for book, room in rooms.items() for i in range(room)]
    assert found.ids.tolist() == expected and found.ids.dtype == np.int64
    assert found.books.tolist() == [book - 1 for book, room in rooms.items() for _ in range(room)]
    assert found.too_short == (1,)


def test_fewer_passages_are_drawn_at_random_and_kept_in_order(books):
    drawn = [sample_passages(books, 5, 2, 6, seed) for seed in (0, 0, 1)]
    assert drawn[0].ids.tolist() == drawn[1].ids.tolist() != drawn[2].ids.tolist()
    assert drawn[0].ids[:, 0].tolist() == sorted(drawn[0].ids[:, 0])
    assert len({tuple(row) for row in drawn[0].ids.tolist()}) == 6


@pytest.mark.parametrize(("arguments", "words"), [
    ((5, 2, 15), "only 14 of 5 tokens and 2 more"), ((41, 0, 1), "only 0"), ((0, 2, 1), "length is 0"),
    ((5, -1, 1), "beyond is -1"), ((5, 2, 0), "n is 0")])
def test_passages_that_are_not_there_are_refused(books, arguments, words):
    with pytest.raises(ReproError, match=words):
        sample_passages(books, *arguments)


def test_the_last_token_of_a_book_can_be_in_a_passage(books):
    assert sample_passages(books, 10, 1, 1 + 1 + 2 + 3).ids[:, -1].max() == 530  # of 539: 3 * 10 + 1 fit
    assert sample_passages(books, 39, 1, 1).ids[0, -1] == 539


def loud(model):
    """Make a tiny model say something else than the last token again, as tied random embeddings make it do."""
    model.transformer.ln_f.bias.data.zero_()
    for block in model.transformer.h:
        block.attn.c_proj.weight.data *= 3
        block.mlp.c_proj.weight.data *= 3
    return model


@pytest.fixture(scope="module")
def contexts():
    return torch.randint(29, (7, 6), generator=torch.Generator().manual_seed(1))  # windows of 5, and one token more


@pytest.fixture
def plain(tiny_gpt2):
    return loud(tiny_gpt2(dtype=torch.float64))


@pytest.fixture
def recurrent(tiny_recurrent):
    return loud(tiny_recurrent(dtype=torch.float64))


@torch.no_grad()
def again(next_logits, ids, n_new):
    start = ids.shape[1]
    for _ in range(n_new):
        ids = torch.cat([ids, next_logits(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[:, start:].tolist()


@pytest.mark.parametrize("n_new", [1, 4, 5])
def test_a_plain_model_starts_from_one_token(plain, contexts, n_new):
    found = continue_contexts(plain, contexts, n_new)
    assert found.tolist() == again(lambda ids: plain(ids).logits, contexts[:, -1:], n_new)
    other = contexts.clone()
    other[:, :-1] = (other[:, :-1] + 1) % 29
    assert continue_contexts(plain, other, n_new).tolist() == found.tolist()
    other[:, -1] = (other[:, -1] + 1) % 29
    assert continue_contexts(plain, other, n_new).tolist() != found.tolist()


@pytest.mark.parametrize("n_new", [1, 4, 5])
def test_a_recurrent_model_also_has_h_prev_of_the_window_before(recurrent, dense, contexts, n_new):
    found = continue_contexts(recurrent, contexts, n_new)
    assert found.tolist() == again(lambda ids: dense(recurrent, ids, 5), contexts, n_new)
    assert found.shape == (7, n_new)


def test_without_memory_only_the_one_token_counts(recurrent, dense, contexts):
    found = continue_contexts(recurrent, contexts, 5, memory=False)
    assert found.tolist() == again(lambda ids: dense(recurrent, ids, 16), contexts[:, -1:], 5)
    assert found.tolist() != continue_contexts(recurrent, contexts, 5).tolist()


@pytest.mark.parametrize("kind", ["plain", "recurrent"])
def test_batches_change_nothing_and_are_counted(request, kind, contexts):
    model, told = request.getfixturevalue(kind), []
    found = continue_contexts(model, contexts, 5, batch_size=3, progress=told.append)
    assert found.tolist() == continue_contexts(model, contexts, 5).tolist()
    assert told == [3, 3, 1]


def test_end_of_text_does_not_end_a_continuation(plain, contexts):
    expected = continue_contexts(plain, contexts, 5)
    for settings in (plain.config, plain.generation_config):
        settings.eos_token_id = settings.pad_token_id = int(expected[0, 0])
    assert continue_contexts(plain, contexts, 5).tolist() == expected.tolist()


@pytest.mark.parametrize("make", ["tiny_gpt2", "tiny_recurrent"])
def test_dropout_is_off_and_the_mode_put_back(request, make, contexts):
    dropout = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    build = request.getfixturevalue(make)
    model = loud(build(**dropout) if make == "tiny_gpt2" else build(changes=dropout))
    expected = continue_contexts(model.eval(), contexts, 5)
    model.train()
    assert continue_contexts(model, contexts, 5).tolist() == expected.tolist()
    assert model.training


@pytest.mark.parametrize(("shape", "n_new", "words"), [
    ((7, 6), 6, "n_new is 6"), ((7, 6), 0, "n_new is 0"), ((7, 1), 1, "contexts have shape"), ((6,), 1, "have shape")])
def test_a_continuation_stays_in_the_second_window(plain, contexts, shape, n_new, words):
    with pytest.raises(ReproError, match=words):
        continue_contexts(plain, contexts.flatten()[:np.prod(shape)].reshape(shape), n_new)
