"""Answers scored as HotpotQA and SQuAD do, by hand and on real pairs; and the best span of several windows."""

import itertools
import re
import string
from collections import Counter

import numpy as np
import pytest
import torch

from repro import paths
from repro.errors import ReproError
from repro.evaluation import answer_scores, hotpotqa_scores, normalise_answer
from repro.evaluation.answers import best_spans
from repro.loss import any_span_loss


@pytest.mark.parametrize(("text", "plain"), [
    ("The Beatles!", "beatles"), ("  a  cat,  an owl ", "cat owl"), ("theatre", "theatre"), ("U.S.", "us"),
    ("Jean-Luc", "jeanluc"), ("the", ""), ("", ""), ("An-other", "another"), ("ÉTÉ", "été"), ("a\tb\nthe c", "b c"),
])
def test_normalised(text, plain):
    assert normalise_answer(text) == plain


@pytest.mark.parametrize(("text", "plain"), [
    ("Jean-Luc_Picard", "jean luc picard"), ("U.S.A.", "u s"),  # its last letter becomes an article
    ("the ‘Sound’ of `Music´", "sound of music"), ("AC/DC", "ac dc"), ("_", ""), ("rock'n'roll", "rock n roll"),
    ("“Hamlet”", "“hamlet”"),  # the script keeps double quotation marks
])
def test_normalised_for_triviaqa(text, plain):
    assert normalise_answer(text, "triviaqa") == plain


@pytest.mark.parametrize(("told", "answers", "exact", "f1"), [
    ("Jean Luc Picard", ["Picard", "Jean-Luc Picard"], 1, 1), ("Sunset_Boulevard", "the sunset boulevard", 1, 1),
    ("sunset strip", ["Sunset_Boulevard", "Strip"], 0, 2 / 3),  # strip: P 1/2, R 1
    ("yes", "yes it is", 0, 0.5), ("Rome", ["Paris", "Lyon"], 0, 0), ("AC/DC", "acdc", 0, 0),
])
def test_triviaqa_takes_the_best_alias(told, answers, exact, f1):
    assert answer_scores(told, answers, rules="triviaqa") == pytest.approx((exact, f1))


@pytest.mark.parametrize(("told", "answers", "hotpotqa", "squad"), [
    ("The Eiffel Tower", "eiffel tower", (1, 1), (1, 1)),
    ("Eiffel Tower in Paris", "Eiffel Tower", (0, 2 / 3), (0, 2 / 3)),  # P 2/4, R 2/2
    ("tower", "Eiffel Tower", (0, 2 / 3), (0, 2 / 3)),  # P 1, R 1/2
    ("b b b c", "b b", (0, 2 / 3), (0, 2 / 3)),  # two b are common: P 2/4, R 2/2
    ("Rome", "Paris", (0, 0), (0, 0)), ("", "Paris", (0, 0), (0, 0)),
    ("yes", "yes", (1, 1), (1, 1)), ("Yes.", "yes", (1, 1), (1, 1)),
    ("yes", "yes it is", (0, 0), (0, 0.5)),  # a word among several for SQuAD, nothing for HotpotQA
    ("no way", "no", (0, 0), (0, 2 / 3)), ("noanswer", "noanswer given", (0, 0), (0, 2 / 3)),
    ("no", "yes", (0, 0), (0, 0)),
    ("the", "a", (1, 0), (1, 0)),  # nothing is left of both: equal, but no word in common
    ("b c", ["x", "b", "b c d"], (0, 0.8), (0, 0.8)),
    ("b", ["c", "b"], (1, 1), (1, 1)),
    ("yes", ["no", "yes", "yes it is"], (1, 1), (1, 1)),
])
def test_by_hand(told, answers, hotpotqa, squad):
    assert answer_scores(told, answers) == answer_scores(told, answers, "hotpotqa") == pytest.approx(hotpotqa)
    assert answer_scores(told, answers, rules="squad") == pytest.approx(squad)


def official(prediction, truth, hotpotqa):
    """As hotpot_evaluate_v1.py does it, which is SQuAD v1.1's script with one condition more."""
    def normalize(s):
        s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())

    prediction, truth = normalize(prediction), normalize(truth)
    exact = float(prediction == truth)
    if hotpotqa:
        for one in ("yes", "no", "noanswer"):
            if one in (prediction, truth) and prediction != truth:
                return exact, 0.0
    common = sum((Counter(prediction.split()) & Counter(truth.split())).values())
    if common == 0:
        return exact, 0.0
    precision, recall = common / len(prediction.split()), common / len(truth.split())
    return exact, 2 * precision * recall / (precision + recall)


@pytest.mark.skipif(paths.data() is None, reason="needs real questions: set REPRO_DATA")
def test_on_real_pairs():
    """Real answers against each other, cut, and against titles; many of the former are yes or no."""
    from repro.data import corpus

    rows = list(itertools.islice(corpus("hotpotqa-subset").examples("validation"), 120))
    told = [row.answer for row in rows] + [row.answer[1:-1] for row in rows] + [row.titles[0] for row in rows]
    partly = 0
    for k, prediction in enumerate(told):
        for row in rows[k % 7::7]:
            for rules in ("hotpotqa", "squad"):
                found = answer_scores(prediction, row.answer, rules)
                assert found == pytest.approx(official(prediction, row.answer, rules == "hotpotqa"))
                partly += 0 < found[1] < 1
    assert partly > 40
    assert all(answer_scores(row.answer, row.answer) == (1, 1) for row in rows)


@pytest.mark.parametrize(("answers", "rules", "said"), [
    ([], "hotpotqa", r"answers are \[\]; give at least one"), ("  ", "squad", "answers are .'  '."),
    (["x", None], "squad", "answers are"), (None, "squad", r"answers are \[None\]"), (3, "hotpotqa", r"are \[3\]"),
    ("x", "naturalquestions", "unknown rules of answers 'naturalquestions'.*hotpotqa, squad, triviaqa"),
    ("x", 3, "unknown rules"),
])
def test_bad_input(answers, rules, said):
    with pytest.raises(ReproError, match=said):
        answer_scores("x", answers, rules)
    with pytest.raises(ReproError, match="prediction is None; give a text"):
        answer_scores(None, "x")


def test_the_best_span_is_that_of_trying_all():
    draw = torch.Generator().manual_seed(0)
    start, end = (torch.randn(12, 3, 9, generator=draw) for _ in range(2))
    text = torch.rand(12, 3, 9, generator=draw) < 0.6
    text[:, 0, 4] = True
    for longest in (1, 3, 9):
        found = best_spans(start, end, text, longest)
        for b in range(12):
            every = [(start[b, w, i] + end[b, w, j], (w, i, j)) for w in range(3) for i in range(9)
                     for j in range(i, min(i + longest, 9)) if text[b, w, i:j + 1].all()]
            assert found[b] == max(every)[1]
    none = torch.zeros(1, 2, 4)
    assert best_spans(none, none, torch.ones(1, 2, 4) > 0) == [(0, 0, 0)], "of equals the first"
    assert best_spans(none, none, torch.tensor([[[False] * 4, [False, True, True, False]]])) == [(1, 1, 1)]
    assert best_spans(torch.zeros(1, 1, 50), torch.arange(50.)[None, None], torch.ones(1, 1, 50) > 0) == [(0, 20, 49)]
    wide = torch.zeros(1, 1, 50)
    wide[0, 0, 0] = 99
    assert best_spans(wide, torch.arange(50.)[None, None], torch.ones(1, 1, 50) > 0) == [(0, 0, 29)], "30 tokens"
    with pytest.raises(ReproError, match="question 1 of the batch has no text tokens"):
        best_spans(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3), torch.tensor([[[True] * 3], [[False] * 3]]))


def test_a_span_is_text_even_where_every_logit_is_minus_infinity():
    logits = torch.full((1, 1, 4), -torch.inf)
    text = torch.tensor([[[False, False, True, True]]])
    assert best_spans(logits, torch.zeros(1, 1, 4), text) == [(0, 2, 2)]
    assert best_spans(torch.tensor([[[0., 0., -torch.inf, -5.]]]), torch.zeros(1, 1, 4), text) == [(0, 3, 3)]


def test_an_array_without_dimensions_is_no_list():
    logits = torch.zeros(1, 4)
    for value in (np.array(0), torch.tensor(0)):
        for refused in (lambda value: answer_scores("x", value), lambda value: any_span_loss(logits, logits, [value]),
                        lambda value: hotpotqa_scores("a", value, "a", [("x", 1)])):
            with pytest.raises(ReproError):
                refused(value)
