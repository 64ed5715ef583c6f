"""Removing passages of evaluation texts from training text: a declared step of a corpus, `Corpus.apart_from`.

A passage (text between blank lines) is left out if it shares a run of 13 words with an evaluation text, or if its first
line is the title of one. Titles are those of WikiText's articles, and of paragraphs that a question is about.
Evaluation texts are documents, or all text in an example (its `texts`); `repro.data.registry` lists their corpora.
Words are runs of letters and digits, lowercased, so that neither punctuation nor WikiText's spacing hides a copy. Whole
documents are never left out: a book that quotes a line of the Bible or the constitution, or the credits of Project
Gutenberg, shares just that run with another book.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations, count, pairwise
from pathlib import Path

import numpy as np

from repro.paths import write_atomic

VERSION = 1  # part of the fingerprints: increase it whenever different text is left out
RUN = 13  # words, as in Brown et al. 2020, appendix C
TITLE = "title"
WORD = re.compile(r"[^\W_]+")
BLANK = re.compile(r"\n\s*\n")
FACTOR, SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


@dataclass(frozen=True)
class Dropped:
    """A passage that was left out: its number in the document, its words, and the text that shares a run with it, or
    "title" for the title of one."""

    document: str
    passage: int
    n_words: int
    shared_with: str


def words(text: str) -> list[str]:
    """The words of a text, as used to compare texts."""
    return WORD.findall(text.lower())


def passages(text: str) -> list[str]:
    """`text` split after every blank line; joining the parts gives `text`."""
    cuts = [0, *(blank.end() for blank in BLANK.finditer(text)), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts) if start < stop]


class Runs:
    """Every run of 13 words of some texts, as 64-bit hashes: two different runs collide with probability 5e-20.

    texts: (name, text) pairs. titles: of texts, of which a copy begins with one.
    """

    def __init__(self, texts: Iterable[tuple[str, str]], titles: Iterable[str] = ()):
        self.numbers: dict[str, int] = {}  # of each word
        self.names: list[str] = []
        self.titles = {tuple(words(title)) for title in titles} - {()}
        hashes, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)]
        for number, (name, text) in enumerate(texts):
            self.names.append(name)
            hashes.append(_hashes([self.numbers.setdefault(word, len(self.numbers)) for word in words(text)]))
            owners.append(np.full(len(hashes[-1]), number, np.int32))
        self.hashes, first = np.unique(np.concatenate(hashes), return_index=True)
        self.owners = np.concatenate(owners)[first]

    def shared(self, found: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The runs in a list of words that a text shares: where each begins, and the number of the text."""
        unknown = len(self.numbers)
        hashes = _hashes([self.numbers.get(word, unknown) for word in found])
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        starts = np.flatnonzero(self.hashes[at] == hashes) if len(self.hashes) else np.zeros(0, int)
        return starts, self.owners[at[starts]]


def near_copies(texts: Sequence[tuple[str, str]], more_than: float = 0.5) -> list[tuple[str, str, float]]:
    """The pairs of texts that share more than this part of their runs of 13 words, the largest part first.

    texts: (name, text) pairs. A pair is given as the name of the text with fewer different runs, that of the other, and
    the part of the first one's runs that the other has, from 0 to 1. So a chapter is a near copy of its book. Texts of
    fewer than 13 words have no run, so they never are.

    >>> verse = " ".join(map(str, range(20)))
    >>> near_copies([("book", f"{verse} and much more of it"), ("page", verse), ("other", "No word of it.")])
    [('page', 'book', 1.0)]
    """
    numbers: dict[str, int] = defaultdict(count().__next__)
    runs = [np.unique(_hashes([numbers[word] for word in words(text)])) for _, text in texts]
    sizes = list(map(len, runs))
    hashes, owners = np.concatenate([*runs, np.zeros(0, np.uint64)]), np.repeat(np.arange(len(runs)), sizes)
    order = np.argsort(hashes, kind="stable")  # the texts that have a run stay in order
    hashes, owners = hashes[order], owners[order]
    starts = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] + np.uint64(1)))
    stops = np.append(starts[1:], len(hashes))
    several = stops - starts > 1
    groups = Counter(tuple(owners[start:stop].tolist())
                     for start, stop in zip(starts[several], stops[several], strict=True))
    shared: Counter[tuple[int, int]] = Counter()
    for group, n in groups.items():  # what many texts share, such as a license, is one group
        for pair in combinations(group, 2):
            shared[pair] += n
    found = []
    for pair, n in shared.items():
        less, more = sorted(pair, key=sizes.__getitem__)
        if n > more_than * sizes[less]:
            found.append((texts[less][0], texts[more][0], n / sizes[less]))
    return sorted(found, key=lambda one: -one[2])


def dropped(documents: Iterable[tuple[str, str]], runs: Runs) -> Iterator[Dropped]:
    """The passages of `documents`, (id, text) pairs, to remove so that no run of 13 words is shared, in order.

    Removes every passage that a shared run touches, then checks the rest again, because removal joins other passages.
    """
    for document, text in documents:
        parts = passages(text)
        found = [words(part) for part in parts]
        reasons = {k: TITLE for k, part in enumerate(parts)
                   if tuple(words(part.lstrip().partition("\n")[0])) in runs.titles}
        while True:
            kept = [k for k in range(len(parts)) if k not in reasons]
            starts, owners = runs.shared([word for k in kept for word in found[k]])
            if not len(starts):
                break
            ends = np.cumsum([len(found[k]) for k in kept])
            first, last = (np.searchsorted(ends, at, side="right") for at in (starts, starts + RUN - 1))
            for begin, end, owner in zip(first, last, owners, strict=True):
                for place in range(begin, end + 1):
                    if found[kept[place]]:
                        reasons.setdefault(kept[place], runs.names[owner])
        for k in sorted(reasons):
            yield Dropped(document, k, len(parts[k].split()), reasons[k])


def write(path: Path, found: Iterable[Dropped]) -> None:
    """Cache the result."""
    write_atomic(path, json.dumps([astuple(one) for one in found]))


def read(path: Path) -> list[Dropped] | None:
    """The cached result; None if there is none, or it cannot be read."""
    try:
        return [Dropped(*one) for one in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return None


def _hashes(numbers: list[int]) -> np.ndarray:
    """A hash of every run of 13 numbers, (n - 12,) uint64."""
    found = np.array(numbers, np.uint64)
    mixed = np.zeros(max(0, len(found) - RUN + 1), np.uint64)
    for k in range(RUN):
        mixed = (mixed ^ found[k:k + len(mixed)]) * FACTOR
        mixed ^= mixed >> SHIFT
    return mixed
