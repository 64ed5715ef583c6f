"""Questions on the names of a book, in the form of WikiHop: which of the names in a long excerpt completes a sentence?

An excerpt is 1,024 tokens of whole sentences. Its candidates are the four to ten names that occur at least twice in
it. The question is the next sentence after the excerpt with one of them, in which that name is left out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from repro.data.clozes import BLANK, NO_NAME, sentences
from repro.data.examples import MultipleChoice

VERSION = 1  # part of the fingerprints: increase it whenever the questions change
LENGTH = 1_024  # tokens of an excerpt: words and punctuation marks
CANDIDATES = range(4, 11)  # how many names a question has
AFTER = 20  # sentences after the excerpt that may be the question
ASKED = range(5, 61)  # tokens of that sentence
TOKEN = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*|[^\sA-Za-z]")
TITLES = NO_NAME | set("Mr Dr St Jr Captain Doctor Illustration Fig Chap Page Plate Vol".split())


@dataclass(frozen=True)
class Share:
    """The part of each book that a split takes: up to `most` questions on its first `characters`."""

    most: int
    characters: int


SHARES = {"train": Share(4, 70_000), "test": Share(28, 200_000)}


def questions(name: str, text: str, most: int) -> Iterator[MultipleChoice]:
    """Up to `most` questions on a text, spread over it. Each has an excerpt of its own; candidates are in
    alphabetical order."""
    parts = sentences(text)
    tokens = [TOKEN.findall(part) for part in parts]
    small = {word for words in tokens for word in words if word[0].islower()}
    found = [one for start, stop in excerpts([len(words) for words in tokens])
             if (one := _question(name, parts, tokens, small, start, stop))]
    step = max(len(found) / most, 1)
    yield from (found[int(k * step)] for k in range(min(most, len(found))))


def excerpts(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where excerpts start and stop, in sentences of these `lengths`: as many as fit into LENGTH tokens, and at least
    one. The last sentences of a text, which nothing follows, are left out."""
    start = total = 0
    for stop, length in enumerate(lengths):
        if total + length > LENGTH and stop > start:
            yield start, stop
            start, total = stop, 0
        total += length


def names(tokens: Sequence[Sequence[str]], small: set[str]) -> list[str]:
    """The names in some sentences: words that occur at least twice, at least once inside a sentence, always with a
    capital. small: the words that the book also has in lower case."""
    every = Counter(word for words in tokens for word in words)
    inside = {word for words in tokens for word in words[1:]}
    return sorted(word for word, n in every.items()
                  if n >= 2 and word in inside and word[0].isupper() and not word.isupper() and len(word) > 2
                  and "'" not in word and word.lower() not in small and word not in TITLES)


def most_frequent(example: MultipleChoice) -> list[int]:
    """The numbers of the candidates that occur most often in the text."""
    words = Counter(TOKEN.findall(" ".join(example.paragraphs)))
    most = max(words[name] for name in example.candidates)
    return [k for k, name in enumerate(example.candidates) if words[name] == most]


def latest(example: MultipleChoice) -> list[int]:
    """The number of the candidate that occurs last in the text, in a list."""
    words = TOKEN.findall(" ".join(example.paragraphs))
    last = next((word for word in reversed(words) if word in example.candidates), example.candidates[0])
    return [example.candidates.index(last)]


def _question(name: str, parts: Sequence[str], tokens: Sequence[Sequence[str]], small: set[str], start: int,
              stop: int) -> MultipleChoice | None:
    """The question after the sentences from `start` to `stop`; None if there are too few or too many names in them, or
    if none of the names follows soon."""
    candidates = names(tokens[start:stop], small)
    if len(candidates) not in CANDIDATES:
        return None
    for at in range(stop, min(stop + AFTER, len(parts))):
        able = [word for word in candidates if tokens[at].count(word) == 1 and parts[at].count(word) == 1]
        if able and len(tokens[at]) in ASKED:
            identity = f"{name}-{at}"
            answer = min(able, key=lambda word, key=identity: sha256(f"{key}/{word}".encode()).hexdigest())
            return MultipleChoice(identity, parts[at].replace(answer, BLANK), tuple(candidates),
                                  candidates.index(answer), (" ".join(parts[start:stop]),))
    return None
