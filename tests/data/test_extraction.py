"""What is read first: every extractor against its definition, worked out by hand or by another package."""

import math

import numpy as np
import pytest

from repro.data.extraction import METHODS, bigram_recall, paragraphs, ranked, sumbasic, textrank, tf_idf
from repro.errors import ReproError

PASSAGES = ["The cat sat on the mat.", "A dog ran.", "The cat saw a dog and the cat ran.", "Nothing here."]
WORDS = [text.lower().replace(".", "").split() for text in PASSAGES]


def test_tf_idf_by_hand():
    found = tf_idf(["cat", "dog", "ghost"], WORDS)
    log2 = math.log(4 / 2)  # "cat" and "dog" are in two of four
    assert found == pytest.approx([log2, log2, 3 * log2, 0])
    assert ranked("tf-idf", "Cat: dog", PASSAGES) == [2, 0, 1, 3]
    assert tf_idf(["dog", "dog"], WORDS) == [2 * one for one in tf_idf(["dog"], WORDS)], "twice"


def test_cheating_by_hand():
    assert bigram_recall("the cat ran and the cat sat".split(), WORDS) == pytest.approx([2 / 5, 0, 3 / 5, 0])
    assert ranked("cheating", "", PASSAGES, "the cat ran and the cat sat") == [2, 0, 1, 3]


def test_textrank_is_pagerank_of_shared_words():
    """Its fixed point by linear algebra: a reader follows a link with 0.85, else opens any passage."""
    flow = np.zeros((4, 4))
    for a in range(4):
        for b in range(4):
            if shared := len(set(WORDS[a]) & set(WORDS[b])) * (a != b):
                flow[a, b] = shared / (math.log(len(WORDS[a])) + math.log(len(WORDS[b])))
    assert not flow[3].any(), "the last one stands alone: from there a reader opens any"
    flow[3] = 1
    flow /= flow.sum(1, keepdims=True)
    wanted = np.linalg.solve(np.eye(4) - 0.85 * flow.T, np.full(4, 0.15 / 4))
    assert textrank(WORDS) == pytest.approx(wanted, abs=1e-8)
    assert len(set(textrank([["a", "b"]] * 3))) == 1, "equals are equal"


def by_definition(passages):
    """SumBasic with nothing kept between two choices."""
    total = sum(map(len, passages))
    chance = {word: sum(passage.count(word) for passage in passages) / total
              for passage in passages for word in passage}
    left, order = list(range(len(passages))), []
    while left:
        among = {word for k in left for word in passages[k]}
        top = min(among, key=lambda word: (-chance[word], word))
        one = max((k for k in left if top in passages[k]),
                  key=lambda k: sum(chance[word] for word in passages[k]) / len(passages[k]))
        order.append(one)
        left.remove(one)
        for word in set(passages[one]):
            chance[word] **= 2
    return order


def test_sumbasic_by_definition():
    more = [*WORDS, "the the the end".split(), "a cat a dog a mat".split(), "here and nothing more".split()]
    assert sumbasic(WORDS) == by_definition(WORDS)
    assert sumbasic(more) == by_definition(more)


def test_every_method_ranks_each_passage_once():
    for method in METHODS:
        assert sorted(ranked(method, "cat", PASSAGES, "the cat")) == [0, 1, 2, 3]
    assert ranked("identity", "cat", PASSAGES) == [0, 1, 2, 3]


def test_long_lines_are_cut_between_sentences():
    text = "One two three. Four five.\n\n...\nSix seven eight nine. Ten. Eleven twelve thirteen."
    assert paragraphs(text) == ["One two three. Four five.", "Six seven eight nine. Ten. Eleven twelve thirteen."]
    assert paragraphs(text, 5) == ["One two three. Four five.", "Six seven eight nine. Ten.",
                                   "Eleven twelve thirteen."]
    assert paragraphs(text, 2) == ["One two three.", "Four five.", "Six seven eight nine.", "Ten.",
                                   "Eleven twelve thirteen."]


@pytest.mark.parametrize("call,told", [
    (lambda: paragraphs(" \n -- \n"), "the document is empty"), (lambda: ranked("identity", "a", []), "no passage"),
    (lambda: ranked("tfidf", "a", PASSAGES), "Did you mean 'tf-idf'"),
    (lambda: ranked("cheating", "a", PASSAGES), "needs the reference summary")])
def test_bad_input(call, told):
    with pytest.raises(ReproError, match=told):
        call()
