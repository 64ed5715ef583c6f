"""Rank the paragraphs of a long input: the extraction stage of Liu et al. (2018, section 4.1).

All but "identity" rank the paragraphs; the model then reads the first L tokens of the title and the ranked paragraphs.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from repro.errors import ReproError, unknown

METHODS = ("identity", "tf-idf", "textrank", "sumbasic", "cheating")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")


def paragraphs(text: str, most: int = 80) -> list[str]:
    """The lines of a text that hold words; of longer lines stretches of whole sentences, of about `most` words at most.

    Raises ReproError for an empty text.
    """
    found: list[str] = []
    for line in text.splitlines():
        held = 0
        for sentence in SENTENCE.split(line.strip()):
            n = len(sentence.split())
            if held and held + n <= most:
                found[-1] += f" {sentence}"
                held += n
            elif words(sentence):
                found.append(sentence)
                held = n
    if not found:
        raise ReproError("the document is empty; there must be at least one word to extract.")
    return found


def words(text: str) -> list[str]:
    """Its words in lower case."""
    return re.findall(r"\w+", text.lower())


def ranked(method: str, title: str, passages: Sequence[str], target: str = "") -> list[int]:
    """The indices of the passages, the most important first; ties in text order.

    target: the reference summary, only for "cheating". Raises ReproError for an unknown method, no passage, and
    cheating without a target.
    """
    if method not in METHODS:
        raise unknown("extraction method", method, METHODS)
    if not passages:
        raise ReproError("there is no passage to rank; the document is empty.")
    if method == "cheating" and not target.strip():
        raise ReproError("method is 'cheating', which needs the reference summary; give it as target.")
    passage_words = [words(passage) for passage in passages]
    if method == "identity":
        return list(range(len(passage_words)))
    if method == "sumbasic":
        return sumbasic(passage_words)
    scores = {"tf-idf": lambda: tf_idf(words(title), passage_words), "textrank": lambda: textrank(passage_words),
              "cheating": lambda: bigram_recall(words(target), passage_words)}[method]()
    return np.argsort(-np.asarray(scores), kind="stable").tolist()


def tf_idf(query: Sequence[str], passages: Sequence[Sequence[str]]) -> list[float]:
    """For each passage, the sum over the query's words of N_w log(N_d / N_dw): how often it has the word, and how few
    of the passages do (Liu et al. 2018, section 4.1)."""
    counts = [Counter(passage) for passage in passages]
    within = {word: sum(word in count for count in counts) for word in set(query)}
    return [sum(count[word] * math.log(len(counts) / within[word]) for word in query if count[word])
            for count in counts]


def textrank(passages: Sequence[Sequence[str]], damping: float = 0.85) -> np.ndarray:
    """PageRank (networkx) over passages that are linked by the words they share (Mihalcea and Tarau 2004, section 4).
    """
    import networkx

    lengths = np.array([max(math.log(len(passage)), 1e-9) if len(passage) > 1 else 0.0 for passage in passages])
    sets = _incidence(passages)
    links = sets @ sets.T / np.maximum(lengths[:, None] + lengths, 1e-9)
    np.fill_diagonal(links, 0)
    scores = networkx.pagerank(networkx.from_numpy_array(links), damping, max_iter=1000, tol=1e-12)
    return np.round(list(scores.values()), 9)  # so that equals are equal


def sumbasic(passages: Sequence[Sequence[str]]) -> list[int]:
    """An order: of those left always the one with the highest mean probability of its words, whose probabilities are
    then squared (Nenkova and Vanderwende 2005). Among those that hold the most probable word, as there."""
    sets = _incidence(passages) > 0
    places = {word: k for k, word in enumerate(sorted({word for passage in passages for word in passage}))}
    total = sum(map(len, passages))
    counts = np.zeros(len(places))
    for passage in passages:
        for word in passage:
            counts[places[word]] += 1
    chance, left, order = counts / max(total, 1), np.ones(len(passages), bool), []
    rows = [np.array([places[word] for word in passage], int) for passage in passages]
    means = np.array([chance[row].mean() if len(row) else 0.0 for row in rows])
    while left.any():
        open_words = sets[left].any(0)
        best = np.flatnonzero(open_words)[np.argmax(chance[open_words])] if open_words.any() else None
        able = left & sets[:, best] if best is not None else left
        one = int(np.flatnonzero(able)[np.argmax(means[able])])
        order.append(one)
        left[one] = False
        changed = sets[one]
        chance[changed] **= 2
        for k in np.flatnonzero(left & sets[:, changed].any(1)):
            means[k] = chance[rows[k]].mean()
    return order


def bigram_recall(target: Sequence[str], passages: Sequence[Sequence[str]]) -> list[float]:
    """Which share of the target's different bigrams each passage has (Liu et al. 2018, section 4.1)."""
    wanted = set(zip(target, target[1:], strict=False))
    return [len(wanted & set(zip(passage, passage[1:], strict=False))) / max(len(wanted), 1) for passage in passages]


def _incidence(passages: Sequence[Sequence[str]]) -> np.ndarray:
    """(passages, words) float: 1 where a passage has a word."""
    places = {word: k for k, word in enumerate(sorted({word for passage in passages for word in passage}))}
    found = np.zeros((len(passages), len(places)))
    for row, passage in enumerate(passages):
        found[row, [places[word] for word in passage]] = 1
    return found
