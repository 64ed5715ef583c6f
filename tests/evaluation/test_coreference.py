"""Coreference scores: the examples of the CoNLL scorer and of papers, and brute force over all alignments."""

import itertools
import random

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import coreference_scores


def document(text):
    """Clusters of one-letter mentions: "a bc" is {a}, {b, c}."""
    return [[(ord(letter), ord(letter)) for letter in cluster] for cluster in text.split()]


def values(agreement):
    return agreement.recall, agreement.precision, agreement.f1


# The tests of the reference scorer (test/TestCases.README and CorefMetricTestConfig.pm): recall, precision and F1.
CONLL = [
    ("a bc def", (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ("a de", (1 / 3, 1, 0.5), (7 / 18, 1, 14 / 25), (0.6, 0.9, 0.72)),
    ("a bcx defy z", (1, 3 / 5, 0.75), (1, (4 + 7 / 12) / 9, 110 / 163), (0.88571, 0.66429, 0.75918)),
    ("a bcx dy z", (1 / 3, 1 / 3, 1 / 3),
     (5 / 9, 17 / 42, 2 * (5 / 9) * (17 / 42) / (5 / 9 + 17 / 42)), (0.73333, 0.55, 0.62857)),
    ("a bcxB dy z", (1 / 3, 1 / 4, 2 / 7), (5 / 9, 5 / 16, 0.4), (0.68889, 0.51667, 0.59048)),
    ("a bcx dy Bz", (1 / 3, 1 / 4, 2 / 7),
     (5 / 9, 17 / 48, 2 * (5 / 9) * (17 / 48) / (5 / 9 + 17 / 48)), (0.73333, 0.55, 0.62857)),
]


@pytest.mark.parametrize(("response", "muc", "b_cubed", "ceaf_e"), CONLL)
def test_as_the_reference_scorer(response, muc, b_cubed, ceaf_e):
    found = coreference_scores([document("a bc def")], [document(response)])
    assert values(found.muc) == pytest.approx(muc)
    assert values(found.b_cubed) == pytest.approx(b_cubed)
    assert values(found.ceaf_e) == pytest.approx(ceaf_e, abs=1e-5)
    assert found.average_f1 == pytest.approx((muc[2] + b_cubed[2] + ceaf_e[2]) / 3, abs=1e-5)


def test_the_example_of_pradhan_2014():
    """Recall and precision as printed; the paper's F1 of B-cubed, 0.46, comes from rounded ones."""
    found = coreference_scores([document("abc defg")], [document("ab cd fghi")])
    assert values(found.muc) == pytest.approx((0.40, 0.40, 0.40))
    assert values(found.b_cubed) == pytest.approx((0.42, 0.50, 0.4545), abs=0.005)
    assert values(found.ceaf_e) == pytest.approx((0.65, 0.43, 0.52), abs=0.005)


@pytest.mark.parametrize(("response", "muc", "b_cubed", "ceaf_e"), [
    ("12345 6789ABC", 0.947, 0.865, 0.733), ("1234589ABC 67", 0.947, 0.737, 0.667),
    ("123456789ABC", 0.9, 0.545, 0.294), ("1 2 3 4 5 6 7 8 9 A B C", 0, 0.4, 0.178)])
def test_the_table_of_luo_2005(response, muc, b_cubed, ceaf_e):
    found = coreference_scores([document("12345 67 89ABC")], [document(response)])
    assert [one.f1 for one in found] == pytest.approx([muc, b_cubed, ceaf_e], abs=5e-4)


def partition(draw, letters):
    """Random clusters of some of the letters."""
    where = {letter: draw.randrange(4) for letter in letters if draw.random() < 0.8}
    return [mentions for k in range(4) if (mentions := [(ord(one), ord(one)) for one, n in where.items() if n == k])]


def slow(documents):
    """The three agreements from their definitions: sets, links that a search confirms, and all alignments."""
    sums = {name: [0.0] * 4 for name in ("muc", "b_cubed", "ceaf_e")}
    for key, response in documents:
        sides = [[set(one) for one in clusters] for clusters in (key, response)]
        for side, (clusters, others) in enumerate((sides, sides[::-1])):
            for one in clusters:
                pieces = {frozenset(one & other) for other in others if one & other}
                alone = len(one - set().union(*others))
                for name, part, whole in (
                        ("muc", len(one) - len(pieces) - alone, len(one) - 1),
                        ("b_cubed", sum(len(one & other) / len(one) for mention in one for other in others
                                        if mention in other), len(one))):
                    sums[name][2 * side] += part
                    sums[name][2 * side + 1] += whole
        few, many = sorted(sides, key=len)
        best = max(sum(2 * len(a & b) / (len(a) + len(b)) for a, b in zip(few, order, strict=True))
                   for order in itertools.permutations(many, len(few)))
        for side in (0, 1):
            sums["ceaf_e"][2 * side] += best
            sums["ceaf_e"][2 * side + 1] += len(sides[side])
    scores = {}
    for name, (found, recallable, right, told) in sums.items():
        recall, precision = (part / whole if whole else 0 for part, whole in ((found, recallable), (right, told)))
        scores[name] = recall, precision, 2 * recall * precision / (recall + precision) if recall + precision else 0
    return scores


@pytest.mark.parametrize("documents", [1, 3])
def test_as_by_brute_force(documents):
    draw = random.Random(documents)
    for _ in range(60):
        pairs = [(partition(draw, "abcdefgh"), partition(draw, "cdefghij")) for _ in range(documents)]
        found = coreference_scores(*zip(*pairs, strict=True))
        for name, wanted in slow(pairs).items():
            assert values(getattr(found, name)) == pytest.approx(wanted), (name, pairs)


def test_counts_are_summed_before_they_are_divided():
    gold, predicted = [document("abcd"), document("ab")], [document("abcd"), document("a b")]
    found = coreference_scores(gold, predicted)
    assert values(found.muc) == pytest.approx((3 / 4, 1, 6 / 7))
    assert found.b_cubed.recall == pytest.approx(5 / 6) and found.ceaf_e.precision == pytest.approx((1 + 2 / 3) / 3)
    empty = coreference_scores([[], document("ab")], [[], []])
    assert [values(one) for one in empty] == [(0, 0, 0)] * 3 and empty.average_f1 == 0
    assert coreference_scores([], []).average_f1 == 0


def test_order_and_containers_do_not_matter():
    gold, predicted = [[[(0, 1), (4, 4)], [(7, 9), (2, 3), (5, 5)]]], [[[(2, 3), (4, 4)], [(0, 1), (7, 9)]]]
    other = [[[list(mention) for mention in reversed(cluster)] for cluster in reversed(predicted[0])]]
    assert coreference_scores(gold, predicted) == coreference_scores(tuple(gold), other)
    for kind in (np.array, torch.tensor):
        arrays = [[[kind(mention) for mention in cluster] for cluster in predicted[0]]]
        assert coreference_scores(gold, predicted) == coreference_scores(gold, arrays)
    assert coreference_scores(gold, predicted).muc.recall == coreference_scores(predicted, gold).muc.precision


GOLD = [[[(0, 1), (3, 3)]]]


@pytest.mark.parametrize(("predicted", "said"), [
    ([[[(0, 1), (3, 3)], [(5, 5), (0, 1)]]], r"\(0, 1\) occurs twice in predicted document 0, in clusters 0 and 1"),
    ([[[(0, 1), (0, 1)]]], r"occurs twice in predicted document 0, in clusters 0 and 0"),
    ([[[(0, 1)], []]], "cluster 1 of predicted document 0 is empty"),
    ([[[(3, 2)]]], r"a mention in cluster 0 of predicted document 0 is \(3, 2\); it must not end before it starts"),
    ([], "1 gold documents and 0 predicted"), (GOLD * 2, "1 gold documents and 2 predicted"),
    ([[[(0, 1, 2)]]], r"is \(0, 1, 2\); give a pair"), ([[[3]]], "is 3; give a pair"), ([[["ab"]]], "is 'ab'; give a"),
    ([[[(0, 1.5)]]], "give a pair"), ([[3]], "cluster 0 of predicted document 0 is 3; give a list"),
    ([3], "predicted document 0 is 3; give a list"), (None, "predicted is None; give a list"), ("ab", "predicted is"),
])
def test_bad_input(predicted, said):
    with pytest.raises(ReproError, match=said):
        coreference_scores(GOLD, predicted)
    if isinstance(predicted, list) and len(predicted) == 1:
        with pytest.raises(ReproError, match=said.replace("predicted", "gold")):
            coreference_scores(predicted, GOLD)
