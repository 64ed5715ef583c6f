"""Topics, their divergence and the sign test, against sums written out and against scipy."""

import math
import random

import numpy as np
import pytest

from repro.errors import ReproError
from repro.evaluation.topics import fit_topics, from_other_books, jensen_shannon, sign_test

SEA = "anchor sail deck harbour mast lighthouse moored steered hoisted".split()
FARM = "barn plough orchard fence haystack tractor harvested watered fenced".split()


def text_about(words, n, seed):
    draw = random.Random(seed)
    return " ".join(draw.choice([*words, "the", "and", "Robin"]) for _ in range(n))


@pytest.fixture(scope="module")
def texts():
    return [text_about(words, 60, seed) for seed in range(30) for words in (SEA, FARM)]


@pytest.fixture(scope="module")
def topics(texts):
    return fit_topics(texts, n_topics=2, piece=40, passes=3)


def test_texts_with_different_words_belong_to_different_topics(topics):
    sea, farm = topics.distributions([text_about(SEA, 40, 100), text_about(FARM, 40, 101)])
    assert sea.sum() == pytest.approx(1) and farm.sum() == pytest.approx(1)
    assert sea.max() > 0.9 and farm.max() > 0.9 and sea.argmax() != farm.argmax()
    assert set(topics.top_words(int(sea.argmax()), 9)) == set(SEA)
    assert topics.words_of("the anchor fence sail") <= {*SEA, *FARM}


def test_the_words_of_a_text_are_those_its_leading_topic_makes_likely(texts):
    many = fit_topics([*texts, *(text_about(["judge", "verdict", "witness"], 60, seed) for seed in range(30)),
                       *(text_about(["rocket", "planet", "comet"], 60, seed) for seed in range(30))],
                      n_topics=4, piece=40, passes=10)
    found = many.words_of("anchor sail deck deck fence")
    chances = many.lda.get_topics()
    leading = many.distributions(["anchor sail deck deck fence"])[0].argmax()
    expected = {word for i, word in many.lda.id2word.items()
                if chances[leading][i] >= 3 * sum(row[i] for row in chances) / 4}
    assert found == expected and {"anchor", "sail", "deck"} <= found and not found & {*FARM, "judge", "rocket"}


def test_names_stop_words_and_rare_words_are_not_counted(topics):
    assert topics.n_words("the anchor Anchor and Robin ANCHOR zebra, anchor's sail.") == 3  # anchor, anchor, sail
    assert topics.n_words("isn’t it") == topics.n_words("Robin the zebra") == topics.n_words("") == 0


def test_a_text_without_a_known_word_is_about_everything_alike(topics):
    np.testing.assert_allclose(topics.distributions(["", "the zebra"]), 0.5)


def test_the_topics_of_a_text_are_its_own(topics):
    """Neither the texts before it nor an earlier call may change what is said of a text."""
    some = [text_about(SEA, 7, 5), text_about(FARM, 3, 6), "anchor fence"]
    alone = np.concatenate([topics.distributions([text]) for text in some])
    np.testing.assert_array_equal(topics.distributions(some), alone)
    np.testing.assert_array_equal(topics.distributions(some[::-1]), alone[::-1])


def test_inference_is_the_fixed_point_of_the_variational_equations(topics):
    """gamma_k = alpha_k + sum_w n_w phi_wk with phi_wk ~ p(w | k) exp(digamma(gamma_k)) (Blei et al. 2003)."""
    from scipy.special import digamma

    words = "anchor anchor sail fence".split()
    chances = topics.lda.get_topics().astype(float)
    gamma = np.ones(2)
    for _ in range(500):
        phi = np.array([chances[:, topics.lda.id2word.token2id[word]] for word in words]) * np.exp(digamma(gamma))
        gamma = topics.lda.alpha + (phi / phi.sum(1, keepdims=True)).sum(0)
    np.testing.assert_allclose(topics.distributions([" ".join(words)])[0], gamma / gamma.sum(), atol=2e-3)


def test_the_seed_decides_the_topics(texts, topics):
    same, other = (fit_topics(texts, n_topics=2, piece=40, passes=3, seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(same.lda.get_topics(), topics.lda.get_topics())
    assert np.abs(other.lda.get_topics() - topics.lda.get_topics()).max() > 1e-6


@pytest.mark.parametrize(("given", "arguments", "words"), [
    ([], {}, "of 0 in 0 pieces"),
    (["the and of"] * 9, {"piece": 3}, "no words left"),
    (["Robin Anchor SAIL"] * 9, {"piece": 3}, "no words left"),  # nothing in lower case
    ([" ".join(SEA)] * 9, {"piece": 9}, "in at most 50%"),  # every word in every piece
    (["anchor"] * 4 + ["fence"] * 4, {"piece": 1}, "at least 5 pieces"),
    ([" ".join(SEA)], {"n_topics": 1}, "n_topics is 1"), ([" ".join(SEA)], {"piece": 0}, "piece is 0"),
    ([" ".join(SEA)], {"passes": 0}, "passes is 0")])
def test_an_empty_vocabulary_and_impossible_numbers_are_refused(given, arguments, words):
    with pytest.raises(ReproError, match=words):
        fit_topics(given, **arguments)


def test_pieces_decide_which_words_are_too_common():
    """Four anchors are too few, five are enough; what is left at the end of a text is a piece as well."""
    fill = [" ".join(FARM)] * 30
    with pytest.raises(ReproError, match="no words left"):
        fit_topics(fill + [" ".join(SEA)] * 4, piece=9)
    kept = fit_topics(fill + [" ".join(SEA)] * 5, piece=9)
    assert set(kept.lda.id2word.values()) == set(SEA)
    cut = fit_topics(fill + [" ".join(SEA)] * 5, piece=5)
    assert set(SEA) <= set(cut.lda.id2word.values())


def test_divergence_is_scipys_distance_squared_and_the_sum_written_out():
    from scipy.spatial.distance import jensenshannon

    generator = np.random.default_rng(0)
    p, q = generator.dirichlet(np.full(20, 0.05), 50), generator.dirichlet(np.full(20, 0.05), 50)
    p[0], q[0] = np.eye(20)[3], np.eye(20)[3]
    p[1], q[1] = np.eye(20)[3], np.eye(20)[4]
    found = jensen_shannon(p, q)
    np.testing.assert_allclose(found, jensenshannon(p, q, axis=1) ** 2, atol=1e-12)
    assert found[0] == 0 and found[1] == pytest.approx(math.log(2))
    for a, b, value in zip(p, q, found, strict=True):
        half = [sum(x * math.log(x / ((x + y) / 2)) for x, y in pairs if x > 0)
                for pairs in (list(zip(a, b, strict=True)), list(zip(b, a, strict=True)))]
        assert value == pytest.approx(sum(half) / 2, abs=1e-12)


def exact(smaller, n):
    """Two-sided p by adding up every outcome that is no likelier than the one seen."""
    ways = [math.comb(n, k) for k in range(n + 1)]
    return sum(way for way in ways if way <= ways[smaller]) / 2**n


@pytest.mark.parametrize(("smaller", "larger", "ties"), [(0, 1, 0), (5, 5, 3), (9, 2, 0), (2, 9, 4), (40, 17, 1)])
def test_the_sign_test_is_exact_and_leaves_ties_out(smaller, larger, ties):
    pairs = [(1, 2)] * smaller + [(2, 1)] * larger + [(1, 1)] * ties
    random.Random(0).shuffle(pairs)
    found = sign_test(*zip(*pairs, strict=True))
    assert (found.smaller, found.ties, found.n) == (smaller, ties, smaller + larger + ties)
    assert found.p == pytest.approx(exact(smaller, smaller + larger), rel=1e-9)


def test_a_sign_test_of_nothing_says_nothing():
    assert sign_test([1, 2], [1, 2]).p == 1
    for pair in (([], []), ([1], [1, 2])):
        with pytest.raises(ReproError, match="same cases"):
            sign_test(*pair)


@pytest.mark.parametrize("books", [[0, 1], [0, 0, 0, 1, 1, 2], [2, 0, 1, 0, 2, 1, 0, 1, 3, 0], [0] * 5 + [1] * 5])
def test_partners_are_a_permutation_and_from_other_books(books):
    books = np.array(books)
    partner = from_other_books(books)
    assert sorted(partner) == list(range(len(books)))
    assert (books[partner] != books).all()
    np.testing.assert_array_equal(partner, from_other_books(books))


def test_partners_are_random_and_need_enough_books():
    books = np.repeat(np.arange(4), 25)
    partner = from_other_books(books)
    assert (partner != from_other_books(books, 1)).any()
    pairs = np.bincount(4 * books + books[partner], minlength=16).reshape(4, 4)
    assert pairs.trace() == 0 and (pairs + 99 * np.eye(4)).min() >= 2  # 8.3 on average; every book meets every other
    with pytest.raises(ReproError, match="3 of 5 passages"):
        from_other_books([0, 0, 0, 1, 2])


def test_keywords_are_frequent_here_and_not_elsewhere():
    from repro.evaluation.topics import keywords

    text = "sail mast " * 5 + "deck " * 4 + "the " * 80 + "gull " * 6  # 100 words
    others = ["the " * 160, "sail " * 2 + "mast " * 3 + "gull " * 35]  # 200 words
    assert keywords(text, others) == {"sail"}  # mast: 5 % here, 1.5 % there
    assert keywords(text, others, least=4, lift=3.3) == {"sail", "deck", "mast"}
    assert keywords(text, others, lift=3.4) == {"sail"}
    assert keywords("sail " * 5, []) == {"sail"}
