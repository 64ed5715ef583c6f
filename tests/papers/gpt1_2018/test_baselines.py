"""What is told without a language model."""

import numpy as np
import pytest

from repro.data.examples import LabelledText, MultipleChoice
from repro.papers.gpt1_2018.baselines import Words, baselines, ridge


def test_rows_have_length_1_and_rare_words_weigh_more():
    words = Words(["the cat", "the dog", "the the cat"])
    found = words(["the dog", "a fish", "the cat the"]).toarray()
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 0, 1])
    assert found[0, words.place["dog"]] > found[0, words.place["the"]] > 0
    assert found[2, words.place["cat the"] if "cat the" in words.place else words.place["the cat"]] > 0


def test_ridge_is_the_closed_form():
    from scipy.sparse import csr_matrix

    draw = np.random.default_rng(0)
    x, y, new = draw.normal(size=(20, 5)), draw.normal(size=(20, 2)), draw.normal(size=(4, 5))
    weights = np.linalg.solve(x.T @ x + np.eye(5), x.T @ (y - y.mean(0)))
    found = ridge(csr_matrix(x), y, csr_matrix(new))
    np.testing.assert_allclose(found, new @ weights + y.mean(0), atol=1e-4)


def test_labels_that_the_second_text_gives_away():
    def rows(n, seed):
        draw = np.random.default_rng(seed)
        return [LabelledText(str(k), f"text {draw.integers(9)}", label, f"it is {'not' if label else 'so'}")
                for k, label in enumerate([0, 0, 1] * n)]
    told, labels = baselines(rows(10, 0), rows(5, 1), 2), [0, 0, 1] * 5
    assert told["alone"].tolist() == told["words"].tolist() == labels and set(told["majority"]) == {0}


def test_scores_that_hang_on_what_two_texts_share_and_not_on_one_of_them():
    def rows(n, seed):
        draw = np.random.default_rng(seed)
        pairs = [draw.integers(12, size=2) for _ in range(n)]
        return [LabelledText(str(k), f"word{a}", 5 * int(a == b), f"word{b}")
                for k, (a, b) in enumerate([*pairs, *[(a, a) for a, _ in pairs]])]
    others = rows(40, 1)
    told, labels = baselines(rows(300, 0), others, 1), [row.label for row in others]
    assert np.corrcoef(told["words"], labels)[0, 1] > 0.9 > 0.5 > abs(np.corrcoef(told["alone"], labels)[0, 1])
    assert len(set(told["majority"])) == 1 and 2 < told["majority"][0] < 3


def test_candidates_near_the_text_and_those_that_look_right():
    rows = [MultipleChoice(str(k), f"What is in box{k}?", (f"ball{k}", f"cat{k} never"), 0, (f"In box{k} is ball{k}.",))
            for k in range(6)]
    told = baselines(rows, [MultipleChoice("x", "What?", ("this never", "that one", "a third"), 2, ("A third.",))], 1)
    assert told["words"].tolist() == [2] and told["alone"].tolist() != [0] and told["majority"].tolist() == [0]
    assert "alone" not in baselines([LabelledText("a", "b", 0), LabelledText("c", "d", 1)], [LabelledText("e", "d", 1)],
                                    2)
