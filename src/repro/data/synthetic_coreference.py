"""Stories with one reference to resolve, whose best possible score with and without the story is known.

A story of one of four topics is followed by four people, always the same but in random order, and by "I", the writer of
the story. Each person has a topic of their own, and the writer is the person whose topic the story has; nothing else
shows who it is. So a reader of the whole text can always link "I" to the right person, and a reader of the people alone
can only guess.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from repro.data.examples import Coreference
from repro.data.synthetic import TOPICS
from repro.errors import check_ranges

VERSION = 1  # raise it when the texts of a given seed change
PEOPLE = ("Robin", "Alex", "Sam", "Kim")  # in the order of their topics
BETWEEN = "nobody there had heard it before .".split()
CAME, WRITER, LEFT = ("came", "."), "I", ("left", ".")
TEMPLATES = tuple(template.split() for template in ("the ADJ NOUN VERB the NOUN .", "near the NOUN VERB the NOUN .",
                                                    "then the NOUN VERB the ADJ NOUN ."))


@dataclass(frozen=True)
class SyntheticCoreference:
    """The process that writes the texts; each is a function of these numbers, its split and its index.

    story_words: length of the story. between: how many times the sentence `BETWEEN`, which has no topic, follows it.
    Raises ReproError for numbers out of range.
    """

    story_words: int = 56
    between: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, {"story_words": (7, float("inf")), "between": (0, float("inf"))}, "synthetic coreference")

    def example(self, split: str, index: int) -> Coreference:
        """Text `index` of `split`. Its clusters are "I" with one person, and each of the three others alone."""
        draw = random.Random(f"coreference {VERSION}/{self.seed}/{split}/{index}")
        topic, order = int(draw.random() * len(PEOPLE)), list(range(len(PEOPLE)))
        draw.shuffle(order)
        sentences, left = [], self.story_words
        while left > 0:
            sentence = [_drawn(draw, part, topic) for part in TEMPLATES[int(draw.random() * len(TEMPLATES))]][:left]
            sentences.append(tuple(sentence))
            left -= len(sentence)
        sentences += [tuple(BETWEEN)] * self.between
        mentions = {}
        for person in order:
            mentions[person] = self._next(sentences)
            sentences.append((PEOPLE[person], *CAME))
        writer = self._next(sentences)
        sentences.append((WRITER, *LEFT))
        clusters = [(mentions[person], writer) if person == topic else (mentions[person],) for person in order]
        return Coreference(f"{split}-{index}", tuple(sentences), tuple(clusters))

    def people(self, example: Coreference) -> list[tuple[int, int]]:
        """The mention (start, stop) of each of `PEOPLE` in a text, then that of "I"."""
        places = [example.tokens.index(name) for name in (*PEOPLE, WRITER)]
        return [(place, place + 1) for place in places]

    def lexicon(self) -> list[str]:
        """Every word of a text, each once."""
        content = [word for topic in TOPICS[:len(PEOPLE)] for words in topic for word in words]
        plain = [word for words in (*TEMPLATES, BETWEEN, CAME, (WRITER,), LEFT, PEOPLE) for word in words]
        return [*dict.fromkeys([*content, *(word for word in plain if word not in ("ADJ", "NOUN", "VERB"))])]

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how texts are written."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        identity = f"{self} {VERSION} {self.lexicon()} {TEMPLATES} {self.example('train', 0)}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def _next(self, sentences: list[tuple[str, ...]]) -> tuple[int, int]:
        """The place of the next word in the text, (start, stop)."""
        start = sum(map(len, sentences))
        return start, start + 1


def _drawn(draw: random.Random, part: str, topic: int) -> str:
    """A word of the topic for NOUN, VERB and ADJ, and `part` itself otherwise."""
    if part not in ("NOUN", "VERB", "ADJ"):
        return part
    words = TOPICS[topic][("NOUN", "VERB", "ADJ").index(part)]
    return words[int(draw.random() * len(words))]


COREFERENCE = SyntheticCoreference()  # the corpus `synthetic-coreference`
SIZES = {"train": 240, "validation": 50, "test": 200}
