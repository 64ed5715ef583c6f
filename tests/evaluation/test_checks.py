"""Bad ids, models and sizes end in one line, in every function that scores; good ones of any type give one number."""

import math

import numpy as np
import pytest
import torch

from repro.errors import ReproError, check_whole
from repro.evaluation import Score, continuation_nll, perplexity, score_documents, score_other_document
from repro.evaluation.continuations import continue_contexts
from repro.evaluation.dependence import dependence, token_dependence
from repro.evaluation.generation import continued
from repro.ids import evaluating
from repro.training import WindowedLM

V, WINDOW = 29, 4
TEXT = np.random.default_rng(0).integers(V, size=13)
BAD = {  # what a text may be instead of ids
    "below": TEXT - 100, "-100": np.where(TEXT == TEXT[3], -100, TEXT), "beyond": TEXT + V, "floats": TEXT + 0.5,
    "whole floats": TEXT.astype(float), "nan": np.full(13, np.nan), "bools": TEXT > 9,
    "words": np.array(list("abcdefghijklm")), "objects": np.array([None] * 13), "complex": TEXT + 1j,
    "huge": np.full(13, 2**63, np.uint64)}
SCORES = {  # name -> the score of one text of 13 ids
    "perplexity": lambda model, ids: perplexity(model, ids, WINDOW, 1),
    "continuation_nll": lambda model, ids: continuation_nll(model, [ids[:5]], [ids[5:]]),
    "dependence": lambda model, ids: dependence(model, ids[None], TEXT[None], WINDOW),
    "others": lambda model, ids: dependence(model, TEXT[None], ids[None], WINDOW),
    "token_dependence": lambda model, ids: token_dependence(model, ids[None], TEXT[None], WINDOW, n_changes=1),
    "continued": lambda model, ids: continued(model, ids[None], 2),
    "continue_contexts": lambda model, ids: continue_contexts(model, ids[None], 2),
    "WindowedLM": lambda model, ids: WindowedLM(model, WINDOW)(torch.as_tensor(ids)[None])}


def one_line(error) -> str:
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
    return str(error.value)


@pytest.mark.parametrize(("score", "bad"), [
    (score, bad) for score in SCORES for bad in BAD  # torch has no tensors of some
    if score != "WindowedLM" or BAD[bad].dtype.kind in "if"])
def test_a_text_that_is_no_text_of_ids(tiny_gpt2, score, bad):
    with pytest.raises(ReproError) as error:
        SCORES[score](tiny_gpt2(), BAD[bad])
    assert "token id" in one_line(error) or "int64" in one_line(error)


@pytest.mark.parametrize("model", [None, 3, "gpt2", [1]])
@pytest.mark.parametrize("score", SCORES)
def test_a_model_that_is_none(score, model):
    with pytest.raises(ReproError, match="model is"):
        SCORES[score](model, TEXT)


@pytest.mark.parametrize("score", SCORES)
def test_a_model_whose_logits_are_no_numbers(tiny_gpt2, score):
    model = tiny_gpt2()
    model.lm_head.weight.data[7] = torch.nan  # tied: what it makes of token 7 is nan, too
    if score == "WindowedLM":
        assert SCORES[score](model, TEXT).isnan()  # `train` stops at it
        return
    with pytest.raises(ReproError, match="NaN"):
        SCORES[score](model, TEXT)


@pytest.mark.parametrize("kind", [list, tuple, np.asarray, np.uint16, np.int32, torch.tensor, lambda x: x[None],
                                  lambda x: torch.tensor(x, dtype=torch.uint8)])
def test_ids_of_any_whole_type_give_one_number(tiny_gpt2, kind):
    model, tokens = tiny_gpt2(), TEXT.tolist() if kind in (list, tuple, torch.tensor) else TEXT
    assert perplexity(model, kind(tokens), WINDOW, 1).nll == perplexity(model, torch.from_numpy(TEXT), WINDOW, 1).nll


def test_two_texts_are_not_read_as_one(tiny_gpt2):
    with pytest.raises(ReproError, match=r"tokens has shape \(2, 13\); give one text of shape \(N,\)"):
        perplexity(tiny_gpt2(), np.stack([TEXT, TEXT]), WINDOW, 0)
    with pytest.raises(ReproError, match="cannot be converted to token ids"):
        perplexity(tiny_gpt2(), [[1, 2], [3]], WINDOW, 0)


@pytest.mark.parametrize("name", ["n_words", "n_bytes"])
@pytest.mark.parametrize("value", [0, -3, math.nan, math.inf, "9", True])
def test_a_count_to_divide_by(tiny_gpt2, name, value):
    with pytest.raises(ReproError, match=f"{name} is .*; it must be a number above 0") as error:
        perplexity(tiny_gpt2(), TEXT, WINDOW, 0, **{name: value})
    one_line(error)
    with pytest.raises(ReproError, match=name):
        Score(3.0, 2, **{name: value})


@pytest.mark.parametrize(("nll", "n_scored"), [(math.nan, 3), ("3", 3), (3.0, 0), (3.0, -1), (3.0, 2.5), (None, 1)])
def test_a_score_of_nothing(nll, n_scored):
    with pytest.raises(ReproError, match="nll|n_scored"):
        Score(nll, n_scored)


@pytest.mark.parametrize(("name", "value"), [
    (name, value) for name, allowed in (("window", ()), ("overlap", (0,)), ("batch_size", (None,)))
    for value in (0, -1, 2.5, math.nan, "4", None, True, [4]) if value not in allowed])
def test_sizes_are_whole_numbers(tiny_gpt2, name, value):
    sizes = {"window": WINDOW, "overlap": 0, "batch_size": 4} | {name: value}
    with pytest.raises(ReproError, match=f"{name} is") as error:
        perplexity(tiny_gpt2(), TEXT, **sizes)
    one_line(error)


def test_what_a_function_gives_is_looked_at():
    for found, words in ((torch.zeros(3, 4), "returns"), (None, "NoneType without logits"),
                         (torch.zeros(3, 4, 5, 6), "returns"), (torch.zeros(1, 4, V), "returns"),
                         ("logits", "str without logits")):
        with pytest.raises(ReproError, match=words) as error:
            perplexity(lambda ids, found=found: found, TEXT, WINDOW, 0)
        one_line(error)
    with pytest.raises(ReproError, match="knows 0 to 4"):
        perplexity(lambda ids: torch.zeros(*ids.shape, 5), TEXT, WINDOW, 0)


def test_a_function_that_looks_ahead_is_refused():
    table = torch.randn(V, V, generator=torch.Generator().manual_seed(0))
    ahead, behind = (lambda ids, step=step: table[ids.roll(step, 1)] + table[ids] for step in (-1, 1))
    with pytest.raises(ReproError, match="not causal"):
        perplexity(ahead, TEXT, WINDOW, 0)
    behind = lambda ids: table[ids] + torch.cat([torch.zeros(len(ids), 1, V), table[ids[:, :-1]]], 1)  # noqa: E731
    assert perplexity(behind, TEXT, WINDOW, 0).n_scored == 12
    noisy = lambda ids: table[ids] + torch.randn(*ids.shape, V)  # noqa: E731
    assert perplexity(noisy, TEXT, WINDOW, 0).n_scored == 12  # noise alone is no sight of what comes


def test_a_split_is_needed_where_documents_are_scored(tiny_gpt2, tiny_recurrent):
    for score in (score_documents, score_other_document):
        with pytest.raises(ReproError, match="tokens is a ndarray; give a split"):
            score(tiny_recurrent(), TEXT, WINDOW, 0)
    with pytest.raises(ReproError, match="carries no state between windows"):
        score_other_document(tiny_gpt2(), TEXT, WINDOW, 0)


def test_each_part_of_a_model_stays_in_its_mode(tiny_gpt2):
    model = tiny_gpt2().train()
    model.transformer.h[1].eval()  # frozen, say
    with evaluating(model):
        assert not any(part.training for part in model.modules())
    assert model.training and model.transformer.h[0].training and not model.transformer.h[1].training


@pytest.mark.parametrize("value", [0, 6, -1, 1.0, None, "3", True, math.nan])
def test_a_whole_number_within_limits(value):
    assert check_whole(np.int64(5), "n", 1, 5) == 5
    with pytest.raises(ReproError, match="n is .*; it must be a whole number from 1 to 5"):
        check_whole(value, "n", 1, 5)
