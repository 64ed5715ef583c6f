"""Texts gone on with: greedy and drawn tokens against plain loops, branches against whole texts, answers by hand."""

import numpy as np
import pytest
import torch
from rouge_score import rouge_scorer

from repro.errors import ReproError
from repro.evaluation import continuation_nll
from repro.evaluation.answers import answer_scores, normalise_answer
from repro.evaluation.generation import branch_nll, continued
from repro.evaluation.summaries import rouge_n
from repro.models import GPT

PROMPTS = [[1, 2, 3], [4], [5, 6, 7], [8, 9]]


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0, -1].double()


def test_the_likeliest_tokens_with_their_nats_whatever_the_batch(tiny_gpt2):
    model = tiny_gpt2()
    ids, nats = continued(model, PROMPTS, 4)
    for prompt, row, losses in zip(PROMPTS, ids.tolist(), nats, strict=True):
        text = list(prompt)
        for token, loss in zip(row, losses, strict=True):
            told = logits(model, text).log_softmax(0)
            assert token == int(told.argmax()) and loss == pytest.approx(-float(told[token]), rel=1e-4)
            text.append(token)
    again, _ = continued(model, PROMPTS, 4, batch_size=1)
    assert (again == ids).all()


def test_drawn_tokens_are_among_the_likeliest_and_as_frequent(tiny_gpt2):
    model = tiny_gpt2()
    ids, _ = continued(model, [[1, 2]] * 4_000, 1, top_k=3, batch_size=1_000)
    values, likeliest = logits(model, [1, 2]).topk(3)
    shares = np.array([(ids[:, 0] == int(one)).mean() for one in likeliest])
    assert shares.sum() == 1 and shares == pytest.approx(values.softmax(0).numpy(), abs=0.03)
    first, _ = continued(model, PROMPTS, 4, top_k=3, seed=1)
    other, _ = continued(model, PROMPTS, 4, top_k=3, seed=1, batch_size=1)
    assert (first == other).all() and not (first == continued(model, PROMPTS, 4, top_k=3, seed=2)[0]).all()


def test_a_context_is_filled_to_its_end_and_no_further(tiny_gpt2):
    model = tiny_gpt2()
    assert continued(model, [[1] * 14], 3)[0].shape == (1, 3)  # the last token is not read
    with pytest.raises(ReproError, match="prompt 1 has 15 tokens; .*context of 16 it must have at most 14"):
        continued(model, [[1], [1] * 15], 3)
    with pytest.raises(ReproError, match=r"prompt 0 has shape \(0,\)"):
        continued(model, [[]], 3)
    for name in ("n_new", "top_k", "batch_size"):
        with pytest.raises(ReproError, match=f"{name} is 0; it must be a whole number"):
            continued(model, [[1]], **{"n_new": 1, name: 0})
    assert continued(model, [[1]], 1, top_k=29)[0].shape == (1, 1)
    with pytest.raises(ReproError, match="top_k is 30; it must be a whole number from 1 to 29"):
        continued(model, [[1]], 1, top_k=30)


def test_a_model_trains_on_after_an_error(tiny_gpt2, monkeypatch):
    theirs = tiny_gpt2().train()
    ours = GPT.from_transformers(theirs)
    for model, broken, ask in ((theirs, "forward", lambda: continued(theirs, [[1]], 1)),
                               (ours, "read_branches", lambda: branch_nll(ours, [1], [[2]]))):
        monkeypatch.setattr(model, broken, lambda *given, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ask()
        assert model.training


def test_branches_are_scored_as_whole_texts_are(tiny_gpt2):
    model = GPT.from_transformers(tiny_gpt2())
    prefix, branches = [3, 1, 4, 1], [[5], [9, 2, 6], [5, 3], list(range(13))]
    sums, counts = continuation_nll(model, [prefix] * 4, branches)
    assert counts.tolist() == [1, 3, 2, 13]
    assert branch_nll(model, prefix, branches) == pytest.approx(sums, rel=1e-4)
    for wrong, words in (([], "there is no branch"), ([[]], r"branch 0 has shape \(0,\)"), ([[29]], "branch 0 holds")):
        with pytest.raises(ReproError, match=words):
            branch_nll(model, prefix, wrong)
    with pytest.raises(ReproError, match="context ends at 16; cut the prefix"):
        branch_nll(model, prefix, [list(range(14))])


def test_answers_are_held_against_each_other_word_by_word():
    assert normalise_answer(" The  King, of an Isle!") == "king of isle"
    assert answer_scores("the King", "king.", "squad") == (1, 1) and answer_scores("king", "kings", "squad") == (0, 0)
    assert answer_scores("the old king", "old man", "squad") == (0, pytest.approx(2 * 1 / 4))
    assert answer_scores("a b b", "b b b c", "squad") == (0, pytest.approx(2 * 2 / 6))  # "a" is an article
    assert answer_scores("", "king", "squad") == (0, 0) and answer_scores("", "the", "squad") == (1, 0)


@pytest.mark.parametrize("n", [1, 2])
def test_rouge_n_is_that_of_the_package(n):
    scorer = rouge_scorer.RougeScorer([f"rouge{n}"])
    for wanted, told in (("the cat sat on the mat", "the cat lay on the mat, the cat"), ("one", "one"), ("a b", "c"),
                         ("", "x"), ("It's 9:45 now", "it s now 9 45")):
        assert rouge_n(wanted, told, n) == pytest.approx(scorer.score(wanted, told)[f"rouge{n}"].fmeasure)
