"""Questions with four candidates in the form of WikiHop: the story that decides between them comes last.

A text is a list of names, which carries no information, and then a story of one topic. The candidates are things of
four topics; the thing of the story's topic is right. The story does not mention it: books of `repro.data.synthetic`
teach which words belong together. So a reader of the story always knows the answer, and any other reader guesses.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from repro.data.examples import MultipleChoice
from repro.data.synthetic import NAMES, TOPICS
from repro.data.synthetic_hops import WHICH, SyntheticHops
from repro.errors import check_ranges

VERSION = 1  # raise it when the questions of a given seed change
CONTENT = frozenset(word for topic in TOPICS for words in topic for word in words)  # a story's words with a topic


@dataclass(frozen=True)
class SyntheticCandidates:
    """The process that writes the questions; each is a function of these numbers, its split and its index.

    n_names: names before the story. story_words: length of the story. Raises ReproError for numbers out of range.
    """

    n_names: int = 64
    story_words: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, {"n_names": (0, float("inf")), "story_words": (8, float("inf"))}, "synthetic candidates")

    def example(self, split: str, index: int) -> MultipleChoice:
        """Question `index` of `split`; its paragraphs are the names and the story."""
        draw = random.Random(f"candidates {VERSION}/{self.seed}/{split}/{index}")
        names = [NAMES[int(draw.random() * len(NAMES))] for _ in range(self.n_names)]
        one = self._hops.example(split, index)
        candidates = tuple(one.paragraphs[2].text.split()[1::2])  # "the X the Y the Z ."
        return MultipleChoice(one.id, WHICH, candidates, candidates.index(one.answer),
                              (" ".join(names), one.paragraphs[0].text))

    def best_score(self, example: MultipleChoice, n_words: int | None = None) -> float:
        """The probability that the best possible reader of the text's first `n_words` words (None: all) is right."""
        words = " ".join(example.paragraphs).split()
        return 1.0 if CONTENT & set(words[:n_words]) else 1 / len(example.candidates)

    def lexicon(self) -> list[str]:
        """Every word of a question and its text, each once."""
        return self._hops.lexicon()

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how questions are written."""
        identity = f"{self} {VERSION} {self._hops.fingerprint()} {self.example('train', 0)}"
        return hashlib.sha256(identity.encode()).hexdigest()

    @cached_property
    def _hops(self) -> SyntheticHops:
        return SyntheticHops(self.story_words, n_names=0, yes_no=0, seed=self.seed)


CANDIDATES = SyntheticCandidates()  # the corpus `synthetic-candidates`
SIZES = {"train": 1_600, "test": 200}
