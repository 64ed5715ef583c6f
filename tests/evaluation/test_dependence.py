"""Changes of loss against a changed text scored again, with the dense reference."""

import math

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.evaluation.dependence import dependence, distances, losses_after, token_dependence

WINDOW, BACK = 4, 3
LENGTH = (BACK + 1) * WINDOW + 1


def tokens(seed, n=5):
    return torch.randint(29, (n, LENGTH), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def texts():
    own, other = tokens(0), tokens(1)
    return own, torch.where(other == own, (other + 1) % 29, other)  # every token differs


def nll(logits, targets):
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("after", [WINDOW, 6])
def test_losses_after_a_place_are_those_of_the_whole_text(tiny_gpt2, tiny_recurrent, texts, overlap, recurrent, after):
    model = (tiny_recurrent if recurrent else tiny_gpt2)(dtype=torch.float64)
    with torch.no_grad():
        found = losses_after(model, texts[0], WINDOW, overlap, LENGTH - 1 - after)
    assert found.shape == (5, after)
    for row, ids in zip(found, texts[0], strict=True):
        whole = perplexity(model, ids, WINDOW, overlap).target_nll
        np.testing.assert_allclose(row, whole[-after:], rtol=1e-6)


def changed(own, other, back):
    """The window that ends `back - 1` windows before the last scored one comes from the other text."""
    first = LENGTH - 1 - WINDOW  # the first input of the scored window
    return torch.stack([torch.where((torch.arange(LENGTH) >= first - back * WINDOW)
                                    & (torch.arange(LENGTH) < first - (back - 1) * WINDOW), b, a)
                        for a, b in zip(own, other, strict=True)])


@pytest.mark.parametrize("batch_size", [2, 16])
def test_changes_are_those_of_scoring_the_changed_text(tiny_recurrent, dense, texts, batch_size):
    model, told = tiny_recurrent(dtype=torch.float64), []
    absolute, signed = dependence(model, *texts, WINDOW, batch_size=batch_size, progress=told.append)
    assert absolute.shape == signed.shape == (BACK, 5) and sum(told) == 5
    with torch.no_grad():
        before = nll(dense(model, texts[0][:, :-1], WINDOW, predict_next=True), texts[0][:, 1:])[:, -WINDOW:]
        for back in range(1, BACK + 1):
            logits = dense(model, changed(*texts, back)[:, :-1], WINDOW, predict_next=True)
            change = nll(logits, texts[0][:, 1:])[:, -WINDOW:] - before
            np.testing.assert_allclose(signed[back - 1], change.mean(1), atol=1e-9)
            np.testing.assert_allclose(absolute[back - 1], change.abs().mean(1), atol=1e-9)
    assert (absolute > 0).all()  # every earlier window counts
    assert (absolute >= abs(signed)).all() and (absolute > abs(signed) + 1e-12).any()


@pytest.mark.parametrize(("overlap", "reached"), [(0, 0), (1, 1), (2, 1), (3, 1)])
def test_a_plain_model_depends_on_nothing_beyond_its_windows(tiny_gpt2, texts, overlap, reached):
    absolute, signed = dependence(tiny_gpt2(), *texts, WINDOW, overlap)
    assert (absolute[:reached] > 0).all()
    assert (absolute[reached:] == 0).all() and (signed[reached:] == 0).all()  # not almost


def test_overlap_reaches_as_far_as_its_windows_do(tiny_gpt2):
    """With overlap 3 of 4 the first scored token is read with the 3 tokens before its own window, and not with 4."""
    own = tokens(0)
    for place, moves in ((LENGTH - 1 - WINDOW - 3, True), (LENGTH - 1 - WINDOW - 4, False)):
        other = own.clone()
        other[:, place] = (other[:, place] + 1) % 29
        absolute, _ = dependence(tiny_gpt2(), own, other, WINDOW, 3)
        assert bool((absolute[0] > 0).all()) == moves and bool((absolute[0] > 0).any()) == moves


def test_the_same_text_changes_nothing(tiny_recurrent, texts):
    absolute, _ = dependence(tiny_recurrent(), texts[0], texts[0], WINDOW)
    assert not absolute.any()


def test_a_module_that_is_cut_off_reaches_nowhere(tiny_recurrent, texts):
    from repro.recurrence import MaskedOut

    model = tiny_recurrent()
    masked = MaskedOut(model)
    assert not hasattr(masked, "read_windows")
    model.recurrence.feedforward[-1].weight.data.zero_()  # h_prev no longer depends on anything
    absolute, _ = dependence(model, *texts, WINDOW)
    assert not absolute.any()


def test_dropout_is_off_and_the_mode_put_back(tiny_recurrent, texts):
    model = tiny_recurrent(changes={"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5})
    expected = dependence(model.eval(), *texts, WINDOW)
    model.train()
    for found, wanted in zip(dependence(model, *texts, WINDOW), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert model.training


def one_by_one(model, own, other, overlap, n_changes):
    """`token_dependence` by scoring every changed text whole, and averaging over lists."""
    farthest, n = (BACK - 1) * WINDOW, len(own)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3)).tolist()
    bins = [[[] for _ in range(n)] for _ in range(4)]
    for text in range(n):
        before = perplexity(model, own[text], WINDOW, overlap).target_nll
        for change in range(n_changes):
            place = WINDOW + int(WINDOW * (change + order[text] / n) / n_changes)
            changed = own[text].clone()
            changed[place] = other[text, place]
            after = perplexity(model, changed, WINDOW, overlap).target_nll
            for distance in range(1, min(farthest, LENGTH - 1 - place) + 1):
                at = place + distance - 1  # target_nll starts with token 1
                bins[int(math.log2(distance)) if distance <= WINDOW else 3][text].append(after[at] - before[at])
    return (np.array([[np.mean(np.abs(found)) for found in row] for row in bins]),
            np.array([[np.mean(found) for found in row] for row in bins]))


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize(("recurrent", "n_changes"), [(False, 4), (True, 1), (True, 3)])
def test_changes_of_one_token_are_those_of_scoring_the_changed_text(tiny_gpt2, tiny_recurrent, texts, overlap,
                                                                    recurrent, n_changes):
    model, told = (tiny_recurrent if recurrent else tiny_gpt2)(dtype=torch.float64), []
    found = token_dependence(model, *texts, WINDOW, overlap, n_changes, seed=3, batch_size=2, progress=told.append)
    assert sum(told) == 5
    for ours, expected in zip(found, one_by_one(model, *texts, overlap, n_changes), strict=True):
        assert ours.shape == (4, 5)
        np.testing.assert_allclose(ours, expected, atol=1e-7)


def test_distances_are_powers_of_two_and_then_windows():
    assert distances(4, 4) == [(1, 1), (2, 3), (4, 4), (5, 8)]
    assert distances(3, 300)[-2:] == [(128, 255), (256, 300)]
    assert distances(6, 30)[3:] == [(8, 15), (16, 30), (31, 60), (61, 90), (91, 120)]


def test_one_token_reaches_to_the_end_of_its_window_or_on(tiny_gpt2, tiny_recurrent, texts):
    plain, _ = token_dependence(tiny_gpt2(), *texts, WINDOW, 0, n_changes=1)
    assert (plain[0] > 0).any() and not plain[3].any()  # bin 3 begins 5 tokens on
    # places 0 to 3 of a window of 4, place 0 twice: it alone reaches a target 4 tokens on
    assert (plain[2] > 0).sum() == 2
    with_memory, _ = token_dependence(tiny_recurrent(), *texts, WINDOW, 0, n_changes=1)
    assert (with_memory > 0).all()


def test_places_are_those_of_all_parts_of_a_window_in_no_order(tiny_gpt2):
    """Texts of one book follow one another; were places in order too, each book would have places of its own."""
    own = torch.zeros(12, LENGTH, dtype=torch.long)
    reach = (token_dependence(tiny_gpt2(), own, own + 1, WINDOW, 0, n_changes=1)[0] > 0).sum(0)
    assert sorted(reach) == [1] * 3 + [2] * 6 + [3] * 3 and (reach[1:] > reach[:-1]).any() and (
        reach[1:] < reach[:-1]).any()


@pytest.mark.parametrize(("n_changes", "length", "words"), [
    (0, LENGTH, "n_changes is 0"), (1, 2 * WINDOW + 1, "k at least 3")])
def test_changes_of_one_token_refuse_what_does_not_fit(tiny_gpt2, n_changes, length, words):
    ids = torch.zeros(2, length, dtype=torch.long)
    with pytest.raises(ReproError, match=words):
        token_dependence(tiny_gpt2(), ids, ids, WINDOW, n_changes=n_changes)


@pytest.mark.parametrize(("shape", "overlap", "words"), [
    ((2, LENGTH), WINDOW, "overlap is 4"), ((2, LENGTH + 1), 0, "texts have shape"), ((LENGTH,), 0, "texts have shape"),
    ((2, WINDOW + 1), 0, "k at least 2")])
def test_shapes_that_do_not_fit_are_refused(tiny_gpt2, shape, overlap, words):
    ids = torch.zeros(math.prod(shape), dtype=torch.long).reshape(shape)
    with pytest.raises(ReproError, match=words):
        dependence(tiny_gpt2(), ids, ids, WINDOW, overlap)


def test_texts_and_others_have_one_shape(tiny_gpt2):
    with pytest.raises(ReproError, match="others"):
        dependence(tiny_gpt2(), tokens(0), tokens(0, n=4), WINDOW)
