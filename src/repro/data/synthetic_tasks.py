"""Short tasks in the language of the generated books, one of each form that GPT reads, whose best score is known.

A label depends on knowledge that the books teach: which words belong together. It is a function of the texts, but with
probability 1 - `reliability` another label replaces it, which bounds the expected accuracy. A model that knows the
language has little left to learn; other models have to learn the language from the labels.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from repro.data.examples import LabelledText, MultipleChoice
from repro.data.synthetic import TOPICS, SyntheticBooks
from repro.errors import ReproError, unknown

VERSION = 1  # raise it when the examples of a given seed change
LABELS = {"topics": ("sea to forest", "railway to market"), "belonging": ("no", "yes"),
          "pairs": ("apart", "together"), "nouns": ()}
N_CANDIDATES = 4


@dataclass(frozen=True)
class SyntheticTask:
    """The process that writes the examples of one task; each is a function of these numbers, its split and its index.

    kind: "topics", a text of one of twelve topics: is it one of the first six? "belonging", a text and an adjective
    with a noun: do they belong to its topic? "pairs", two texts: do they have the same topic? "nouns", a text and four
    nouns: which one belongs to its topic? n_words: length of a text. reliability: probability that the label follows
    from the texts. Raises ReproError for another kind and numbers out of range.
    """

    kind: str
    n_words: int = 16
    reliability: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in LABELS:
            raise unknown("kind of synthetic task", self.kind, LABELS)
        least = max(0.5, 1 / N_CANDIDATES)
        for name, low, high in (("n_words", 6, float("inf")), ("reliability", least, 1)):
            if not low <= getattr(self, name) <= high:
                raise ReproError(f"{name}={getattr(self, name)} of synthetic tasks: allowed are {low} to {high}.")

    def example(self, split: str, index: int) -> LabelledText | MultipleChoice:
        """Example `index` of `split`; words are separated by single spaces."""
        draw = random.Random(f"tasks {VERSION}/{self.kind}/{self.seed}/{split}/{index}")
        return _WAYS[self.kind](self, f"{split}-{index}", draw)

    def best_score(self) -> float:
        """The expected accuracy of the best possible reader."""
        return self.reliability

    def lexicon(self) -> list[str]:
        """Every word that an example can contain: the words of the books."""
        return self._books.lexicon()

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how examples are written."""
        identity = f"{self} {VERSION} {LABELS} {self.example('train', 0)} {self._books.fingerprint()}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def passage(self, draw: random.Random, wanted: Callable[[int], bool] = lambda topic: True) -> tuple[str, int]:
        """A text of one topic for which `wanted` holds, and the number of the topic."""
        while True:
            text = self._books.book("tasks", int(draw.random() * 2**52))
            topic = next(_TOPIC[word] for word in text.split() if word in _TOPIC)
            if wanted(topic):
                return text, topic

    def noisy_label(self, label: int, n: int, draw: random.Random) -> int:
        """The label, or with probability 1 - `reliability` one of the n - 1 others."""
        if draw.random() < self.reliability:
            return label
        return (label + 1 + int(draw.random() * (n - 1))) % n

    @cached_property
    def _books(self) -> SyntheticBooks:
        return SyntheticBooks(stray=0, book_words=self.n_words, seed=self.seed)


_TOPIC = {word: number for number, topic in enumerate(TOPICS) for words in topic for word in words}


def _one(draw: random.Random, values) -> str:
    return values[int(draw.random() * len(values))]


def _topics(task: SyntheticTask, name: str, draw: random.Random) -> LabelledText:
    text, topic = task.passage(draw)
    return LabelledText(name, text, task.noisy_label(int(topic >= len(TOPICS) // 2), 2, draw))


def _belonging(task: SyntheticTask, name: str, draw: random.Random) -> LabelledText:
    text, topic = task.passage(draw)
    same = int(draw.random() * 2)
    others = [number for number in range(len(TOPICS)) if number != topic]
    nouns, _, adjectives = TOPICS[topic if same else others[int(draw.random() * len(others))]]
    hypothesis = f"near the {_one(draw, adjectives)} {_one(draw, nouns)}"
    return LabelledText(name, text, task.noisy_label(same, 2, draw), hypothesis)


def _pairs(task: SyntheticTask, name: str, draw: random.Random) -> LabelledText:
    text, topic = task.passage(draw)
    same = int(draw.random() * 2)
    other, _ = task.passage(draw, lambda found: (found == topic) == bool(same))
    return LabelledText(name, text, task.noisy_label(same, 2, draw), other)


def _nouns(task: SyntheticTask, name: str, draw: random.Random) -> MultipleChoice:
    text, topic = task.passage(draw)
    others = [number for number in range(len(TOPICS)) if number != topic]
    chosen = [others.pop(int(draw.random() * len(others))) for _ in range(N_CANDIDATES)]
    right = int(draw.random() * N_CANDIDATES)
    chosen[right] = topic
    candidates = tuple(_one(draw, TOPICS[number][0]) for number in chosen)
    return MultipleChoice(name, "near the", candidates, task.noisy_label(right, N_CANDIDATES, draw), (text,))


_WAYS = {"topics": _topics, "belonging": _belonging, "pairs": _pairs, "nouns": _nouns}
SIZES = {"train": 600, "test": 200}
