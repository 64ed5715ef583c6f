"""Long documents to classify, whose best possible accuracy with any window is known.

A document is a book of `repro.data.synthetic` in which some words are replaced by words of praise or of blame, none of
them among the first `far` words. Its label, praise or blame, is drawn first; each of these cues agrees with it
with probability `reliability`. Nothing else in the document depends on the label. So a reader of the beginning can only
guess, and a reader of everything can at best follow the majority of the cues.
"""

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from repro.data.examples import LabelledText
from repro.data.synthetic import SyntheticBooks
from repro.errors import check_ranges

VERSION = 1  # raise it when the documents of a given seed change
LABELS = ("blame", "praise")
CUES = tuple(words.split() for words in (
    "dreadful clumsy dull tiresome hollow careless", "splendid graceful brilliant delightful honest thoughtful"))


@dataclass(frozen=True)
class SyntheticDocuments:
    """The process that writes the documents; each is a function of these numbers, its split and its index.

    n_words: length of a document. far: the number of words at its beginning without cues. n_cues: the number of cues,
    at random positions after them. reliability: probability that a cue agrees with the label. Raises ReproError for
    numbers that do not fit together.
    """

    n_words: int = 512
    far: int = 128
    n_cues: int = 3
    reliability: float = 0.9
    seed: int = 0
    cues: ClassVar = CUES

    def __post_init__(self) -> None:
        limits = {"n_words": (1, float("inf")), "far": (0, self.n_words - 1), "n_cues": (1, self.n_words - self.far),
                  "reliability": (0.5, 1)}
        check_ranges(self, limits, "synthetic documents")

    def example(self, split: str, index: int) -> LabelledText:
        """Document `index` of `split`: `n_words` words separated by single spaces, and its label."""
        draw = random.Random(f"documents {VERSION}/{self.seed}/{split}/{index}")
        words = self._books.book(split, index).split()
        label = int(draw.random() * 2)
        places = list(range(self.far, self.n_words))
        for _ in range(self.n_cues):
            shown_label = label if draw.random() < self.reliability else 1 - label
            place = places.pop(int(draw.random() * len(places)))
            words[place] = self.cues[shown_label][int(draw.random() * len(self.cues[shown_label]))]
        return LabelledText(f"{split}-{index}", " ".join(words), label)

    def lexicon(self) -> list[str]:
        """Every word that a document can contain, each once."""
        return [*self._books.lexicon(), *self.cues[0], *self.cues[1]]

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how documents are written."""
        identity = f"{self} {VERSION} {self.cues} {self.example('train', 0)} {self._books.fingerprint()}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def best_hits(self, examples: Iterable[LabelledText], window: int | None = None) -> list[float]:
        """For each example, the probability that the best classifier with this window is right: 1, 0, or 1/2 (a
        guess)."""
        hits = []
        for example in examples:
            seen = example.text.split()[:window]
            lead = sum((word in self.cues[example.label]) - (word in self.cues[1 - example.label]) for word in seen)
            hits.append(0.5 if self.reliability == 0.5 or lead == 0 else float(lead > 0))
        return hits

    @cached_property
    def _books(self) -> SyntheticBooks:
        return SyntheticBooks(book_words=self.n_words, seed=self.seed)


@dataclass(frozen=True)
class SyntheticReviews(SyntheticDocuments):
    """Short documents whose label most of five cues show. The cues are words of the generated books, but of topics that
    do not occur otherwise in these documents.

    With a single cue, small models would guess for a long time: attention starts as a mean over all words, in which one
    word counts too little.
    """

    n_words: int = 128
    far: int = 64
    n_cues: int = 5
    reliability: float = 0.95
    cues: ClassVar = (("tedious", "guilty"), ("clever", "comic"))

    @cached_property
    def _books(self) -> SyntheticBooks:
        return SyntheticBooks(n_topics=4, book_words=self.n_words, seed=self.seed)


DOCUMENTS = SyntheticDocuments()  # the corpus `synthetic-documents`
REVIEWS = SyntheticReviews()  # the corpus `synthetic-reviews`
REVIEW_SIZES = {"train": 1_200, "validation": 100, "test": 200}
SIZES = {"train": 800, "validation": 100, "test": 200}
