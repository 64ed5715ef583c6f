"""The books' best perplexities against enumeration of every book a tiny process can write."""

import math
from collections import Counter, defaultdict
from itertools import combinations, product

import numpy as np
import pytest

from repro.data import corpus, synthetic
from repro.data.synthetic import NAMES, OPENINGS, TEMPLATES, TOPICS, SyntheticBooks, bounds
from repro.errors import ReproError
from repro.windows import windows

TOPICAL = SyntheticBooks(n_topics=2, n_names=2, cast_size=1, n_nouns=2, n_verbs=1, n_adjectives=1, stray=0.5,
                         book_words=9)
PEOPLED = SyntheticBooks(n_topics=1, n_names=4, cast_size=3, n_nouns=1, n_verbs=1, n_adjectives=1, stray=0.0,
                         book_words=16)


def every_book(process: SyntheticBooks) -> dict[tuple[str, ...], float]:
    """Probability of each book: a plain walk through every topic, cast, gender, template and word."""
    sizes = {"NOUN": (0, process.n_nouns), "VERB": (1, process.n_verbs), "ADJ": (2, process.n_adjectives)}

    def options(part, topic, cast, genders, named):
        if part == "NAME":
            return [(NAMES[name], name, 1 / len(cast)) for name in cast]
        if part in ("HE", "HIS"):
            return [({"HE": "he she", "HIS": "his her"}[part].split()[genders[cast.index(named)]], named, 1.0)]
        if part in sizes:
            place, size = sizes[part]
            chance = defaultdict(float)
            for other in range(process.n_topics):
                for word in TOPICS[other][place][:size]:
                    chance[word] += (process.stray / process.n_topics + (1 - process.stray) * (other == topic)) / size
            return [(word, named, p) for word, p in chance.items() if p]
        return [(part, named, 1.0)]

    books = defaultdict(float)
    casts = list(combinations(range(process.n_names), process.cast_size))
    for topic, cast in product(range(process.n_topics), casts):
        for genders in product((0, 1), repeat=process.cast_size):
            latent = 1 / process.n_topics / len(casts) / 2**process.cast_size

            def write(words, rest, named, p, topic=topic, cast=cast, genders=genders):
                if len(words) == process.book_words:
                    books[words] += p
                elif not rest:
                    templates = TEMPLATES if words else OPENINGS
                    for template, weight in templates.items():
                        write(words, tuple(template.split()), named, p * weight / sum(templates.values()))
                else:
                    for word, who, chance in options(rest[0], topic, cast, genders, named):
                        write((*words, word), rest[1:], who, p * chance)

            write((), (), None, latent)
    return dict(books)


@pytest.fixture(scope="module", params=[TOPICAL, PEOPLED], ids=["topics", "people"])
def tiny(request):
    books = every_book(request.param)
    pieces = defaultdict(float)  # (place, words standing there) -> probability
    n = request.param.book_words
    for book, p in books.items():
        for start in range(n):
            for stop in range(start, n + 1):
                pieces[start, book[start:stop]] += p
    return request.param, books, pieces


def test_enumeration_is_a_distribution(tiny):
    assert math.isclose(sum(tiny[1].values()), 1, rel_tol=1e-12)


@pytest.mark.parametrize(("window", "overlap"), [(1, 0), (3, 0), (4, 3), (5, 2), (7, 0), (8, 4), (13, 12), (40, 0)])
def test_bounds_equal_enumeration_over_all_books(tiny, window, overlap):
    process, books, pieces = tiny
    draw = np.random.default_rng(window)
    every = sorted(books)
    chosen = [every[i] for i in draw.choice(len(every), min(len(every), 300), replace=False)]
    found = process.bounds([" ".join(book) for book in chosen], window, overlap)
    limited, unlimited = [], []
    for book in chosen:
        for w in windows(len(book) + 1, window, overlap):
            begin = max(w.start - 1, 0)  # token 0 is <|endoftext|>, so token i is word i - 1
            limited += [math.log(pieces[begin, book[begin:i]] / pieces[begin, book[begin:i + 1]])
                        for i in range(w.first_target - 1, w.stop)]
        unlimited += [math.log(pieces[0, book[:i]] / pieces[0, book[:i + 1]]) for i in range(len(book))]
    np.testing.assert_allclose(found.window_nll, limited, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.unlimited_nll, unlimited, rtol=0, atol=1e-9)
    assert found.window_perplexity == pytest.approx(math.exp(np.mean(limited)))
    assert found.unlimited_perplexity == pytest.approx(math.exp(np.mean(unlimited)))


def test_books_are_written_as_often_as_they_are_probable(tiny):
    process, books, _ = tiny
    short = defaultdict(float)
    for book, p in books.items():
        short[book[:8]] += p
    n = 4000
    counts = Counter(tuple(process.book("train", i).split())[:8] for i in range(n))
    assert set(counts) <= set(short)
    chi_square = sum((counts[book] - n * p)**2 / (n * p) for book, p in short.items())
    spread = math.sqrt(2 * len(short) + sum(1 / (n * p) for p in short.values()))
    assert abs(chi_square - len(short)) < 5 * spread


def test_a_pronoun_before_the_first_name_tells_of_somebody():
    """By hand: one of the 3 in the cast is "she", and the one named now is that one with 1/3: so 2/3 against 1/3."""
    verb, noun = TOPICS[0][1][0], TOPICS[0][0][0]
    start = f"{NAMES[0]} {verb} her {noun} . {NAMES[1]} {verb}"
    her, his = (PEOPLED.bounds([f"{start} {word}"], 6, 5).window_nll[-1] for word in ("her", "his"))
    assert his - her == pytest.approx(math.log(2))  # the window is "her noun . name verb"


def test_same_book_for_same_seed_only():
    assert SyntheticBooks().book("train", 3) == SyntheticBooks().book("train", 3)
    different = {SyntheticBooks(seed=s).book(split, i) for s in (0, 1) for split in ("train", "test") for i in (0, 1)}
    assert len(different) == 8


def test_written_book_is_what_it_was():
    """A golden line: the corpus must not change under people's feet."""
    assert synthetic.BOOKS.book("test", 0).startswith(
        "near the costume Jordan directed her wild curtain . Robin directed the masked script . Robin rehearsed")


def test_lexicon_has_each_word_once_and_every_word_written():
    lexicon = synthetic.BOOKS.lexicon()
    assert len(lexicon) == len(set(lexicon)) == 204
    words = synthetic.BOOKS.book("train", 0).split(" ")
    assert len(words) == 2500
    assert set(words) <= set(lexicon)


def test_long_context_is_worth_at_least_15_percent():
    books = corpus("synthetic-books").documents("test", 4)
    for window in (32, 64):
        found = bounds(books, window, 0)
        assert found.window_perplexity > 1.15 * found.unlimited_perplexity
    assert 4 < found.unlimited_perplexity < 15


def test_more_context_is_never_worse_on_average():
    books = corpus("synthetic-books").documents("test", 4)
    found = [bounds(books, window, overlap).window_perplexity
             for window, overlap in ((16, 0), (32, 0), (32, 16), (64, 32), (128, 96))]
    assert found == sorted(found, reverse=True)


def test_kinds_and_their_sums():
    text = "near the anchor Robin moored her salty sail . then she"
    assert synthetic.kinds(text).tolist() == ["other", "other", "topic", "name", "topic", "pronoun", "topic", "topic",
                                              "other", "other", "pronoun"]
    found = bounds(corpus("synthetic-books").documents("test", 2), 32, 0)
    assert sum(kind["words"] for kind in found.by_kind.values()) == 5000 == found.n_words.sum()
    assert sum(kind["window"] for kind in found.by_kind.values()) == pytest.approx(found.window_nll.sum())
    assert found.by_kind["name"]["unlimited"] == pytest.approx(found.unlimited_nll[found.kinds == "name"].sum())
    gains = {kind: sums["window"] - sums["unlimited"] for kind, sums in found.by_kind.items()}
    assert min(gains["topic"], gains["name"], gains["pronoun"]) > 10 * abs(gains["other"])


def test_share_of_the_gain():
    found = bounds(corpus("synthetic-books").documents("test", 1), 32, 0)
    assert found.share(found.window_nll.sum()) == 0
    assert found.share(found.unlimited_nll.sum()) == 1


@pytest.mark.parametrize(("change", "told"), [
    ({"n_topics": 13}, "n_topics=13 of synthetic books: allowed are 1 to 12"),
    ({"cast_size": 41}, "cast_size=41 of synthetic books: allowed are 1 to 40"),
    ({"stray": 1.5}, "stray=1.5"),
    ({"book_words": 0}, "book_words=0")])
def test_impossible_parameters(change, told):
    with pytest.raises(ReproError, match=told):
        SyntheticBooks(**change)


@pytest.mark.parametrize(("text", "told"), [
    ("Robin moored the ocean", "'ocean' is not a word"),
    ("Robin moored moored", "word 3 of book 2 cannot follow"),
    ("she moored", "word 1 of book 2 cannot follow"),
    ("Robin moored his sail . she", "word 6 of book 2 cannot follow"),
    ("", "no empty one")])
def test_a_text_that_is_no_such_book(text, told):
    with pytest.raises(ReproError, match=told):
        bounds(["Robin moored the salty sail .", text], 8, 0)
