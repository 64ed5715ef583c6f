"""Pages that contain tasks in natural form, so that a plain language model can be tested on them.

A page is a short story of `repro.data.synthetic`, written without spaces before periods, and one addition of the kind
that people make to a text. Additions are drawn evenly: its first sentence again after "TL;DR:", a question with its
answer, the narrator, or four phrases with their translations into a second language. In that language every word is
spelled backwards, and an adjective follows its noun. Every answer follows from the page, or from the phrase, with
certainty: a model that has learned everything answers without mistakes. Each kind of task is also a corpus of its own,
on stories of its own.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from repro.data.examples import Cloze, MultipleChoice, Paragraph, Question, Summary
from repro.data.synthetic import NAMES, TOPICS, SyntheticBooks

VERSION = 1  # raise it when the pages of a given seed change
KINDS = ("pages", "last words", "clozes", "questions", "summaries", "translations")
ADDED = ("summary", "question", "teller", "phrase")
SIZES = {"train": 2_400, "validation": 80, "test": 120}
BLANK = "XXXXX"
CANDIDATES = 4  # of a cloze


@dataclass(frozen=True)
class SyntheticWeb:
    """The generator of one of `KINDS`; every page or example is a function of these numbers, its split and its index.

    story_words: length of a story before it is cut after its last full sentence.
    """

    kind: str = "pages"
    story_words: int = 36
    seed: int = 0

    def story(self, split: str, index: int) -> list[str]:
        """The sentences of a story; the first one contains a name."""
        text = self._books.book(f"web {self.kind} {split}", index).replace(" .", ".")
        return [f"{one}." for one in text[:text.rindex(".")].split(". ")]

    def book(self, split: str, index: int) -> str:
        """A page: the story on one line, then the addition on lines of its own. It ends with a newline."""
        sentences, draw = self.story(split, index), random.Random(f"web {VERSION}/{self.seed}/{split}/{index}")
        added = ADDED[int(draw.random() * len(ADDED))]
        if added == "phrase":
            lines = "\n".join("{} = {}".format(*phrase(draw)) for _ in range(4))
        else:
            lines = {"summary": f"TL;DR: {sentences[0]}", "teller": f"All this was told by {first_name(sentences[0])}",
                     "question": f"Q: Who comes first?\nA: {first_name(sentences[0])}"}[added]
        return f"{' '.join(sentences)}\n{lines}\n"

    def example(self, split: str, index: int):
        """Example `index` of `split`, for all kinds but "pages"."""
        sentences, name = self.story(split, index), f"{split}-{index}"
        text, first = " ".join(sentences), first_name(sentences[0])
        draw = random.Random(f"web {VERSION}/{self.seed}/{self.kind}/{split}/{index}")
        if self.kind == "last words":
            return Cloze(name, f"{text} All this was told by {first}", first)
        if self.kind == "questions":
            return Question(name, "Who comes first?", (Paragraph("", (text,)),), first)
        if self.kind == "summaries":
            return Summary(name, "", text, sentences[0])
        if self.kind == "translations":
            return Summary(name, "", *phrase(draw))
        others = [one for one in NAMES if one != first]
        candidates = sorted([first, *(others.pop(int(draw.random() * len(others))) for _ in range(CANDIDATES - 1))])
        asked = f"All this was told by {BLANK}"
        return MultipleChoice(name, asked, tuple(candidates), candidates.index(first), (text,))

    def lexicon(self) -> list[str]:
        """Every word of a story, each once."""
        return self._books.lexicon()

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the stories and with what is added."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        written = [self.book("train", k) if self.kind == "pages" else str(self.example("train", k)) for k in range(20)]
        return hashlib.sha256(f"{self} {VERSION} {written} {self._books.fingerprint()}".encode()).hexdigest()

    @cached_property
    def _books(self) -> SyntheticBooks:
        return SyntheticBooks(book_words=self.story_words, seed=self.seed)


def phrase(draw: random.Random) -> tuple[str, str]:
    """An adjective and a noun of one topic, and their translation into the second language: "salty anchor", "rohcna
    ytlas"."""
    nouns, _, adjectives = TOPICS[int(draw.random() * len(TOPICS))]
    pair = adjectives[int(draw.random() * len(adjectives))], nouns[int(draw.random() * len(nouns))]
    return " ".join(pair), " ".join(word[::-1] for word in reversed(pair))


def first_name(sentence: str) -> str:
    """The name in a sentence of a story."""
    return next(word for word in sentence.rstrip(".").split() if word in NAMES)


WEB = {kind: SyntheticWeb(kind) for kind in KINDS}  # the corpora `synthetic-web`, `synthetic-last-words`, ...
