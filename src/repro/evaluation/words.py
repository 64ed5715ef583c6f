"""Loss by word of a text, and what kind of word each is: what a picture of a page is made of."""

import re
from collections.abc import Collection

import numpy as np

from repro.evaluation.consistency import genders, names
from repro.evaluation.topics import WORD


def spans(text: str) -> np.ndarray:
    """Where the words of `text`, which blanks separate, lie in it: (words, 2) int, first character and end."""
    return np.array([found.span() for found in re.finditer(r"\S+", text)], int).reshape(-1, 2)


def word_of(words: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Which word each token counts to, (tokens,) int: the one it ends in, or the next one if it ends between two.

    words, tokens: (n, 2) int, where they lie in one text, such as `spans(text)` and `Tokeniser.offsets(text)`. So each
    loss counts once, that of a blank for the word after it; tokens after the last word get the number of words.
    """
    return np.searchsorted(words[:, 1], tokens[:, 1])


def kind_of(word: str, common: Collection[str], topical: Collection[str]) -> str:
    """"pronoun" (with a gender), "name", "topic" or "other".

    common: the words that begin no name (`consistency.common_words`). topical: see `topics.keywords`.
    """
    if genders(word):
        return "pronoun"
    if names(word, common):
        return "name"
    return "topic" if any(part in topical for part in WORD.findall(word)) else "other"


def whole_words(which: np.ndarray, first: int, stop: int) -> tuple[int, int]:
    """The words, from the first one to the one after the last, all of whose tokens are `first` to `stop` - 1.

    which: (tokens,), from `word_of`.
    """
    cut = first > 0 and which[first - 1] == which[first]  # the page begins inside a word
    return int(which[first] + cut), int(which[stop] if stop < len(which) else which[-1] + 1)
