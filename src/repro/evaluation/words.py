"""The loss of each word of a text and its kind, for figures that show a page of text."""

import re
from collections.abc import Collection

import numpy as np

from repro.errors import ReproError, check_text, check_whole
from repro.evaluation.consistency import genders, names
from repro.evaluation.inputs import numbers
from repro.evaluation.topics import WORD


def spans(text: str) -> np.ndarray:
    """The positions of the words in `text`, split at whitespace: (words, 2) int, first character and end."""
    return np.array([found.span() for found in re.finditer(r"\S+", check_text(text, "the text"))], int).reshape(-1, 2)


def word_of(words: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The word of each token, (tokens,) int: the one it ends in, or the next one if it ends between two words.

    words, tokens: (n, 2) int, positions in one text, such as `spans(text)` and `Tokeniser.offsets(text)`. So each loss
    counts once, and the loss of a space counts for the next word; tokens after the last word get the number of words.
    """
    for name, spans_of in (("words", words), ("tokens", tokens)):
        numbers(spans_of, name, (None, 2))
    return np.searchsorted(np.asarray(words)[:, 1], np.asarray(tokens)[:, 1])


def kind_of(word: str, common: Collection[str], topical: Collection[str]) -> str:
    """"pronoun" (with a gender), "name", "topic" or "other".

    common: words that are not names (`consistency.common_words`). topical: see `topics.keywords`.
    """
    for name, some in (("common", common), ("topical", topical)):
        if isinstance(some, str) or not isinstance(some, Collection):
            raise ReproError(f"{name} is {some!r:.60}; give a set of words.")
    if genders(word):
        return "pronoun"
    if names(word, common):
        return "name"
    return "topic" if any(part in topical for part in WORD.findall(word)) else "other"


def whole_words(which: np.ndarray, first: int, stop: int) -> tuple[int, int]:
    """The words, as (first, one past the last), that lie completely in the tokens `first` to `stop` - 1.

    which: (tokens,), from `word_of`. Raises ReproError for tokens out of range.
    """
    check_whole(stop, "stop", 1, len(numbers(which, "which")), of="tokens")
    check_whole(first, "first", 0, len(which) - 1, of="tokens")
    cut = first > 0 and which[first - 1] == which[first]  # the page may begin inside a word
    return int(which[first] + cut), int(which[stop] if stop < len(which) else which[-1] + 1)
