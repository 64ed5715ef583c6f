"""HotpotQA's six scores by hand and against its script's arithmetic; evidence against all choices of paragraphs."""

import itertools
import random
from collections import Counter

import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import hotpotqa_scores, normalise_answer, two_paragraph_evidence
from repro.evaluation.hops import kept_paragraphs

FACTS = [("A", 0), ("B", 2)]


@pytest.mark.parametrize(("answer", "facts", "gold", "wanted"), [
    ("the Tower", FACTS, "tower", (1, 1, 1, 1, 1, 1)),
    ("tower", [*FACTS, ("A", 0), ("C", 1)], "tower", (1, 1, 0, 0.8, 0, 0.8)),  # P 2/3, R 1; the repeated one is no more
    ("Eiffel Tower in Paris", [("A", 0)], "Eiffel Tower", (0, 2 / 3, 0, 2 / 3, 0, 1 / 2)),  # P 1/2 * 1, R 1 * 1/2
    ("Rome", FACTS, "Paris", (0, 0, 1, 1, 0, 0)), ("yes", FACTS, "yes it is", (0, 0, 1, 1, 0, 0)),
    ("yes", [], "yes", (1, 1, 0, 0, 0, 0)), ("", [("C", 0)], "Paris", (0,) * 6),
])
def test_by_hand(answer, facts, gold, wanted):
    found = hotpotqa_scores(answer, facts, gold, FACTS)
    assert tuple(found) == pytest.approx(wanted)
    assert found._fields == ("em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1")
    assert hotpotqa_scores(answer, [list(one) for one in facts], gold, iter(FACTS)) == found


def of_counts(answer, facts, gold_answer, gold_facts):
    """From true and false positives and negatives, as the script counts them."""
    told, right = normalise_answer(answer), normalise_answer(gold_answer)
    whole = {told, right} & {"yes", "no", "noanswer"} and told != right
    same = sum((Counter(told.split()) & Counter(right.split())).values()) * (not whole)
    p, r = (same / len(told.split()), same / len(right.split())) if same else (0, 0)
    hits, extra, lost = (len(set(a) - set(b)) for a, b in (
        (facts, set(facts) - set(gold_facts)), (facts, gold_facts), (gold_facts, facts)))
    sp, sr = hits / (hits + extra) if hits + extra else 0, hits / (hits + lost) if hits + lost else 0

    def f1(a, b):
        return 2 * a * b / (a + b) if a + b else 0

    em, sp_em = float(told == right), float(extra + lost == 0)
    return em, f1(p, r), sp_em, f1(sp, sr), em * sp_em, f1(p * sp, r * sr)


def test_as_by_counts():
    draw = random.Random(0)
    for _ in range(300):
        words = [" ".join(draw.choices(["the", "red", "tower", "yes", "no", "x"], k=draw.randint(1, 3))) for _ in "ab"]
        facts = [[(draw.choice("AB"), draw.randrange(3)) for _ in range(draw.randrange(4))] for _ in "ab"]
        assert tuple(hotpotqa_scores(words[0], facts[0], words[1], facts[1])) == pytest.approx(
            of_counts(words[0], facts[0], words[1], facts[1]))


@pytest.mark.parametrize(("arguments", "said"), [
    ((None, FACTS, "x", FACTS), "prediction is None"), (("x", FACTS, "", FACTS), "answers are"),
    (("x", FACTS, None, FACTS), "gold_answer is None; give a text"),
    (("x", FACTS, ["x"], FACTS), r"gold_answer is \['x'\]; give a text"),
    (("x", [("A",)], "x", FACTS), r"facts holds \('A',\); give pairs"),
    (("x", FACTS, "x", [(0, "A")]), r"gold_facts holds \(0, 'A'\); give pairs"),
    (("x", FACTS, "x", [("A", 0.5)]), "gold_facts holds"), (("x", "AB", "x", FACTS), "facts is 'AB'; give a list"),
    (("x", None, "x", FACTS), "facts is None; give a list"), (("x", ["A1"], "x", FACTS), "facts holds 'A1'"),
])
def test_bad_questions(arguments, said):
    with pytest.raises(ReproError, match=said):
        hotpotqa_scores(*arguments)


def test_evidence_by_trying_all_pairs():
    draw = random.Random(1)
    for _ in range(200):
        where = [draw.randrange(4) for _ in range(draw.randint(2, 9))]
        if len(set(where)) < 2:
            continue
        logits = [draw.gauss(-0.5, 1) for _ in where]
        best = {one: max(x for x, w in zip(logits, where, strict=True) if w == one) for one in set(where)}
        pair = max(itertools.combinations(best, 2), key=lambda two: sum(best[one] for one in two))
        wanted = [k for k, (x, w) in enumerate(zip(logits, where, strict=True))
                  if w in pair and (x > 0 or x == best[w])]
        assert two_paragraph_evidence(logits, where) == wanted
        tensors = torch.tensor(logits, requires_grad=True, dtype=torch.float64), torch.tensor(where)
        assert two_paragraph_evidence(*tensors) == wanted


def test_evidence_at_its_limits():
    assert two_paragraph_evidence([0.0, 0.0, 0.0, 0.0], [5, 5, 3, 9]) == [0, 2], "the first; 0 is not above 0"
    assert two_paragraph_evidence([-9.0, -8.0, -7.0], [0, 0, 1]) == [1, 2], "two paragraphs even if all are below 0"
    assert two_paragraph_evidence([2.0, 1.0, 3.0, 1.0], [1, 2, 1, 2]) == [0, 1, 2, 3], "in any order"
    assert two_paragraph_evidence([9.0, 8.0, -1.0, 7.0], [0, 0, 1, 0]) == [0, 1, 2, 3]
    assert two_paragraph_evidence(torch.tensor([1.0, -1.0], dtype=torch.bfloat16), [0, 1]) == [0, 1]
    assert two_paragraph_evidence([float("-inf"), 1.0, float("-inf")], [0, 1, 0]) == [0, 1]


@pytest.mark.parametrize(("logits", "where", "said"), [
    ([1.0, 2.0], [3, 3], "the sentences belong to 1 paragraph; evidence comes from two"),
    ([], [], "belong to no paragraphs"), ([1.0, 2.0], [0], "2 sentence_logits and 1 numbers in paragraph_of"),
    ([1.0, 2.0], [0, 0.5], "give one whole number"), ([1.0, float("nan")], [0, 1], "sentence_logits holds nan"),
    (None, [0, 1], "sentence_logits is None"), ([1.0, 2.0], "ab", "paragraph_of is 'ab'"),
    ([[1.0, 2.0]], [0, 1], "sentence_logits is of shape"),
])
def test_bad_evidence(logits, where, said):
    with pytest.raises(ReproError, match=said):
        two_paragraph_evidence(logits, where)


def test_kept_paragraphs_are_the_best_of_all_choices():
    """At most five, all above -3, unless fewer than two are: then the best two."""
    draw = random.Random(1)
    for _ in range(200):
        logits = [draw.uniform(-6, 1) for _ in range(draw.randint(2, 9))]
        n = max(2, min(5, sum(one > -3 for one in logits)))
        best = max(itertools.combinations(range(len(logits)), n), key=lambda some: sum(logits[k] for k in some))
        assert kept_paragraphs(logits) == list(best) == kept_paragraphs(torch.tensor(logits, dtype=torch.float64))
    assert kept_paragraphs([-3.0, -2.9, -3.1, -2.8]) == [1, 3]  # -3 itself is not above
    assert kept_paragraphs([0.0] * 7) == [0, 1, 2, 3, 4] and kept_paragraphs([-9.0, -8.0, -9.0]) == [0, 1]
    assert kept_paragraphs([1.0, 2.0, 3.0], most=2) == [1, 2] and kept_paragraphs([1.0, 2.0], above=5.0) == [0, 1]


@pytest.mark.parametrize(("logits", "more", "said"), [
    ([1.0], {}, "there is one paragraph; evidence comes from two"), ([], {}, "there are no paragraphs"),
    ([1.0, float("nan")], {}, "paragraph_logits holds nan"), ([1.0, 2.0], {"most": 1}, "most is 1"),
    ("ab", {}, "paragraph_logits is 'ab'"), ([[1.0, 2.0]], {}, r"paragraph_logits is of shape \(1, 2\)")])
def test_bad_paragraph_logits(logits, more, said):
    with pytest.raises(ReproError, match=said):
        kept_paragraphs(logits, **more)
