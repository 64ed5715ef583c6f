"""Questions that take two steps, whose best possible score is known for a reader of everything and of single windows.

A text is a story of one topic, followed by the names of people who were there and by four things of four topics. The
question is which of the things fits the story, or whether one does. The right thing does not occur in the story: only
its topic shows that it fits, and books of `repro.data.synthetic` teach the topics. So a reader of the things without
the story can only guess, and a reader of both always knows the answer.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from repro.data.examples import Paragraph, Question, Span
from repro.data.synthetic import NAMES, TEMPLATES, TOPICS
from repro.errors import check_ranges

VERSION = 1  # raise it when the questions of a given seed change
WHICH, WHETHER = "what fits", "does one fit"
N_THINGS = 4
STORIES = tuple(template for template in TEMPLATES if "NAME" in template)


@dataclass(frozen=True)
class SyntheticHops:
    """The process that writes the questions; each is a function of these numbers, its split and its index.

    story_words: length of the story. n_names: how many people were there; their names carry no information. n_topics:
    topics to draw from. yes_no: probability that a question asks whether a thing fits; half of these have the answer
    yes. Raises ReproError for numbers out of range.
    """

    story_words: int = 24
    n_names: int = 4
    n_topics: int = 6
    yes_no: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"story_words": (8, float("inf")), "n_names": (0, len(NAMES)), "yes_no": (0, 1),
                  "n_topics": (N_THINGS + 1, len(TOPICS))}
        check_ranges(self, limits, "synthetic hops")

    def example(self, split: str, index: int) -> Question:
        """Question `index` of `split`; its paragraphs are the story, the names, and the things."""
        draw = random.Random(f"hops {VERSION}/{self.seed}/{split}/{index}")
        whether = draw.random() < self.yes_no
        fits = not whether or draw.random() < 0.5
        topics = list(range(self.n_topics))
        topic, *others = (topics.pop(int(draw.random() * len(topics))) for _ in range(N_THINGS + 1))
        nouns = list(TOPICS[topic][0])
        thing = nouns.pop(int(draw.random() * len(nouns)))
        things = [_one(draw, TOPICS[other][0]) for other in others]
        place = int(draw.random() * N_THINGS)
        if fits:
            things[place] = thing
        story = self._story(draw, nouns, *TOPICS[topic][1:])
        names = list(NAMES)
        there = [names.pop(int(draw.random() * len(names))) for _ in range(self.n_names)]
        listed = " ".join(f"the {one}" for one in things) + " ."
        paragraphs = tuple(Paragraph("", (text,)) for text in (story, " ".join([*there, "."]), listed))
        answer = ("yes" if fits else "no") if whether else thing
        start = listed.find(f"the {thing} ") + 4
        spans = () if whether else (Span(2, start, start + len(thing)),)
        return Question(f"{split}-{index}", WHETHER if whether else WHICH, paragraphs, answer, spans,
                        ((0, 0), (2, 0)), "whether" if whether else "which")

    def lexicon(self) -> list[str]:
        """Every word of a question and its text, each once."""
        content = [word for topic in TOPICS[:self.n_topics] for words in topic for word in words]
        grammar = {part for template in STORIES for part in template.split() if not part.isupper()}
        return [*NAMES, *content, *sorted(grammar | {"his", "her", *WHICH.split(), *WHETHER.split()})]

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how questions are written."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        identity = f"{self} {VERSION} {STORIES} {TOPICS} {NAMES} {WHICH} {WHETHER} {self.example('train', 0)}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def best_score(self, example: Question, windows: Sequence[str] | None = None) -> float:
        """The probability that the best possible reader, which knows the process, is right: 1, 0 or that of a guess.

        windows: the texts that it reads one at a time, with no information passed between them; None: all at once.
        Exact match and F1 are the same, since things are single words. A window with part of the story shows whether
        the things in the same window fit. All other things are equally likely to fit. Once some things are known not to
        fit, "does one fit" is more likely answered "no".
        """
        story = set(example.paragraphs[0].text.split()) & self._content
        things = set(example.paragraphs[-1].text.split()) & self._content
        right = {thing for thing in things if self._topic(thing) == self._topic(next(iter(story)))}
        known = set()
        for text in [" ".join(one.text for one in example.paragraphs)] if windows is None else windows:
            words = set(text.split())
            if words & story:
                known |= words & things
        if known & right or known == things:
            return 1.0
        if example.answer_type != "span":
            return float(example.answer == "no") if known else 0.5
        return 1 / (len(things) - len(known))

    def _story(self, draw: random.Random, nouns: Sequence[str], verbs: Sequence[str], adjectives: Sequence[str]) -> str:
        words: list[str] = []
        values = {"NAME": NAMES, "HIS": ("his", "her"), "NOUN": nouns, "VERB": verbs, "ADJ": adjectives}
        while len(words) < self.story_words:
            words += [_one(draw, values[part]) if part in values else part for part in _one(draw, STORIES).split()]
        return " ".join(words[:self.story_words])

    @cached_property
    def _content(self) -> set[str]:
        return {word for topic in TOPICS for words in topic for word in words}

    def _topic(self, word: str) -> int:
        return next(number for number, topic in enumerate(TOPICS) if any(word in words for words in topic))


def _one(draw: random.Random, values: Sequence[str]) -> str:
    return values[int(draw.random() * len(values))]


@dataclass(frozen=True)
class FarHops(SyntheticHops):
    """Such questions with several lists of people who were there, so that the things are far from the story. Each
    paragraph has a name as its title, which carries no information.

    n_lists: lists of `n_names` names each, between the story and the things.
    """

    story_words: int = 48
    n_names: int = 5
    n_lists: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"n_lists": (1, len(NAMES) - 2)}, "synthetic far hops")

    def example(self, split: str, index: int) -> Question:
        """Question `index` of `split`; its paragraphs are the story, the lists of names, and the things."""
        near = super().example(split, index)
        draw = random.Random(f"far hops {VERSION}/{self.seed}/{split}/{index}")
        story, _, things = near.paragraphs
        lists = [Paragraph("", (" ".join([*draw.sample(NAMES, self.n_names), "."]),)) for _ in range(self.n_lists)]
        titles = draw.sample(NAMES, self.n_lists + 2)
        parts, last = [story, *lists, things], self.n_lists + 1
        paragraphs = tuple(replace(one, title=title) for title, one in zip(titles, parts, strict=True))
        return replace(near, paragraphs=paragraphs, supporting=((0, 0), (last, 0)),
                       spans=tuple(replace(one, paragraph=last) for one in near.spans))


HOPS = SyntheticHops()  # the corpus `synthetic-hops`
FAR_HOPS = FarHops()  # the corpus `synthetic-far-hops`
SIZES = {"train": 3_000, "validation": 200}
