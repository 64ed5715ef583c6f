"""Topics of texts, and the distance between two texts (Yoshida et al. 2020, section 5.3.1)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from repro.errors import ReproError, check_text, check_whole
from repro.evaluation.inputs import numbers, texts_of

# Words in lower case: names are not topics, and are counted separately (`repro.evaluation.consistency`).
WORD = re.compile(r"(?<![\w'’])[a-z]{3,}(?!\w|['’]t)")
LIFT = 3  # a word belongs to a topic that makes it this many times as likely as the average topic


class Topics:
    """A fitted topic model: `fit_topics` makes one. lda: gensim's model; its result for a text depends only on
    that text."""

    def __init__(self, lda, seed: int):
        self.lda, self.seed = lda, seed

    def distributions(self, texts: Sequence[str]) -> np.ndarray:
        """The topic distribution of each text: (n, topics), rows sum to 1.

        A text without known words gets the prior, a uniform distribution.
        """
        return np.array([self._distribution(text) for text in texts_of(texts, "texts")])

    def n_words(self, text: str) -> int:
        """The number of words in `text` that the model knows."""
        return sum(n for _, n in self._counts(text))

    def top_words(self, topic: int, n: int = 10) -> list[str]:
        """The `n` most likely words of `topic`, the most likely first."""
        check_whole(topic, "topic", 0, self.lda.num_topics - 1)
        check_whole(n, "n", of="words")
        return [word for word, _ in self.lda.show_topic(topic, n)]

    def words_of(self, text: str) -> set[str]:
        """The topic words of a text: those that its main topic makes at least LIFT times as likely as the average
        topic."""
        chances = self.lda.get_topics()  # (topics, words)
        typical = chances[self._distribution(text).argmax()] >= LIFT * chances.mean(0)
        return {self.lda.id2word[i] for i in np.flatnonzero(typical)}

    def _counts(self, text: str) -> list[tuple[int, int]]:
        return self.lda.id2word.doc2bow(WORD.findall(check_text(text, "the text")))

    def _distribution(self, text: str) -> np.ndarray:
        self.lda.random_state.seed(self.seed)  # inference starts from random numbers; use the same ones for every text
        gamma, _ = self.lda.inference([self._counts(text)])
        return gamma[0].astype(np.float64) / gamma[0].sum(dtype=np.float64)


def fit_topics(texts: Sequence[str], n_topics: int = 20, piece: int = 1000, passes: int = 1, min_pieces: int = 5,
               max_share: float = 0.5, max_words: int = 20_000, seed: int = 0) -> Topics:
    """Latent Dirichlet allocation (gensim) with `n_topics` topics, the same for the same texts and seed.

    Its documents are pieces of `piece` words, because whole books contain much the same words. It uses words in lower
    case of three letters or more, except stop words, words in fewer than `min_pieces` pieces and words in more than a
    share `max_share` of the pieces; at most `max_words`.
    Raises ReproError if no word is left, for anything but a list of texts, and for numbers out of range.
    """
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel
    from gensim.parsing.preprocessing import STOPWORDS

    for name, value, low in (("n_topics", n_topics, 2), ("piece", piece, 1), ("passes", passes, 1), ("seed", seed, 0),
                             ("min_pieces", min_pieces, 0), ("max_words", max_words, 1)):
        check_whole(value, name, low)
    if not 0 < numbers(max_share, "max_share", ()) <= 1:
        raise ReproError(f"max_share is {max_share}; it must be above 0 and at most 1.")
    pieces = _Pieces(list(texts_of(texts, "texts")), piece)
    dictionary = Dictionary(pieces)
    n_words = len(dictionary)
    dictionary.filter_tokens([dictionary.token2id[word] for word in sorted(STOPWORDS & dictionary.token2id.keys())])
    dictionary.filter_extremes(no_below=min_pieces, no_above=max_share, keep_n=max_words)
    if not len(dictionary):
        raise ReproError(f"the topic model has no words left: of {n_words:,} in {dictionary.num_docs:,} pieces of "
                         f"{piece} words, only stop words occur in at least {min_pieces} pieces and in at most "
                         f"{max_share:.0%} of them; give more text, or use smaller pieces.")
    pieces.dictionary = dictionary
    lda = LdaModel(pieces, n_topics, dictionary, passes=passes, random_state=seed, eval_every=None)
    return Topics(lda, seed)


class _Pieces:
    """The texts in pieces, one at a time: lists of words, or word counts once there is a dictionary."""

    def __init__(self, texts: Sequence[str], size: int):
        self.texts, self.size, self.dictionary = texts, size, None

    def __iter__(self) -> Iterator[list]:
        for text in self.texts:
            words = WORD.findall(text)
            for piece in (words[i:i + self.size] for i in range(0, len(words), self.size)):
                yield self.dictionary.doc2bow(piece) if self.dictionary else piece

    def __len__(self) -> int:
        return self.dictionary.num_docs


def keywords(text: str, others: Iterable[str], least: int = 5, lift: float = 5) -> set[str]:
    """The typical words of a text: they occur in it at least `least` times, and at least `lift` times as often as in
    the other texts. Words are defined as in the topic model. Raises ReproError for anything but strings, and for one
    string instead of a list of other texts."""
    check_whole(least, "least", 0)
    numbers(lift, "lift", ())
    text, others = check_text(text, "the text"), list(texts_of(others, "others"))
    here, there = (Counter(word for one in some for word in WORD.findall(one)) for some in ([text], others))
    return {word for word, n in here.items() if n >= least and n * there.total() >= lift * there[word] * here.total()}


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence (n,) in nats, at most ln 2, of distributions `p` and `q` (n, topics).

    The mean of the Kullback-Leibler divergences of both from their average. Divide by ln 2 for bits.
    Raises ReproError for shapes that differ, and for rows that are not distributions.
    """
    from scipy.special import rel_entr

    p, q = (numbers(x, name, None) for x, name in ((p, "p"), (q, "q")))
    if p.shape != q.shape or not p.ndim or any((x < 0).any() or (abs(x.sum(-1) - 1) > 1e-3).any() for x in (p, q)):
        raise ReproError(f"p has shape {p.shape} and q {q.shape}; both need the same shape, and rows of numbers of at "
                         "least 0 that sum to 1.")
    middle = (p + q) / 2
    return (rel_entr(p, middle) + rel_entr(q, middle)).sum(-1) / 2


class SignTest(NamedTuple):
    """How often the first of a pair is smaller, how often both are equal, and the two-sided p value."""

    smaller: int
    ties: int
    n: int
    p: float


def sign_test(first: Sequence[float], second: Sequence[float]) -> SignTest:
    """The exact paired sign test: if both sides were equally likely to be smaller, how often would the split be this
    uneven?

    Ties are left out. Raises ReproError for different or zero lengths, and for NaN.
    """
    from scipy.special import bdtr  # scipy.stats takes seconds to import

    first, second = (numbers(x, name, finite=False) for x, name in ((first, "first"), (second, "second")))
    if first.shape != second.shape or not len(first):
        raise ReproError(f"a sign test needs the same cases on each side; got {len(first)} and {len(second)}.")
    smaller, ties, n = int((first < second).sum()), int((first == second).sum()), len(first)
    rarer = min(smaller, n - ties - smaller)
    return SignTest(smaller, ties, n, min(1.0, 2 * float(bdtr(rarer, n - ties, 0.5))) if n > ties else 1.0)


def from_other_books(books: Sequence[int], seed: int = 0) -> np.ndarray:
    """Pair each passage with one from another book: a random permutation (n,) of indices with that property.

    Nothing that a passage shares with its partner can have been propagated from it.
    Raises ReproError for no passages, and if more than half of them come from one book, so that no such permutation
    exists.
    """
    check_whole(seed, "seed", 0)
    if not len(numbers(books, "books")):
        raise ReproError("there are no passages; give the book of at least two.")
    books, draw = np.asarray(books), np.random.default_rng(seed)
    shift, n = int(np.unique(books, return_counts=True)[1].max()), len(books)
    if 2 * shift > n:
        raise ReproError(f"{shift} of {n} passages come from one book, but partners from other books need at most half "
                         "of them from one book; use passages from more books.")
    order = np.argsort(books, kind="stable")
    partner = np.empty(n, int)
    partner[order] = np.roll(order, shift)  # one such permutation; swaps that preserve the property make it random
    for i, j in draw.integers(n, size=(20 * n, 2)):
        if books[partner[i]] != books[j] and books[partner[j]] != books[i]:
            partner[i], partner[j] = partner[j], partner[i]
    return partner
