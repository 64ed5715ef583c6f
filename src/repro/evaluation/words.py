"""Loss by word of a text, and what kind of word each is: what a picture of a page is made of."""

import re
from collections.abc import Collection

import numpy as np

from repro.errors import ReproError, check_text, check_whole
from repro.evaluation.consistency import genders, names
from repro.evaluation.inputs import numbers
from repro.evaluation.topics import WORD


def spans(text: str) -> np.ndarray:
    """Where the words of `text`, which blanks separate, lie in it: (words, 2) int, first character and end."""
    return np.array([found.span() for found in re.finditer(r"\S+", check_text(text, "the text"))], int).reshape(-1, 2)


def word_of(words: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Which word each token counts to, (tokens,) int: the one it ends in, or the next one if it ends between two.

    words, tokens: (n, 2) int, where they lie in one text, such as `spans(text)` and `Tokeniser.offsets(text)`. So each
    loss counts once, that of a blank for the word after it; tokens after the last word get the number of words.
    """
    for name, spans_of in (("words", words), ("tokens", tokens)):
        numbers(spans_of, name, (None, 2))
    return np.searchsorted(np.asarray(words)[:, 1], np.asarray(tokens)[:, 1])


def kind_of(word: str, common: Collection[str], topical: Collection[str]) -> str:
    """"pronoun" (with a gender), "name", "topic" or "other".

    common: the words that begin no name (`consistency.common_words`). topical: see `topics.keywords`.
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
    """The words, from the first one to the one after the last, all of whose tokens are `first` to `stop` - 1.

    which: (tokens,), from `word_of`. Raises ReproError for tokens that are not there.
    """
    check_whole(stop, "stop", 1, len(numbers(which, "which")), of="tokens")
    check_whole(first, "first", 0, len(which) - 1, of="tokens")
    cut = first > 0 and which[first - 1] == which[first]  # the page begins inside a word
    return int(which[first] + cut), int(which[stop] if stop < len(which) else which[-1] + 1)
