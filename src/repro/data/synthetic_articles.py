"""Articles to summarize, whose best possible log-perplexity, with and without any part of the input, is known.

The lead of an article says a few facts about a person, always in the same order, and nothing else: "Robin raised Leeds
taught chess ..." Each relation has two wordings, drawn at random for every lead, so they cannot be predicted. Each
value is drawn evenly from those of its relation. One paragraph of the document, at a random position among paragraphs
of filler, states it with both wordings, so that neither is favored: "they born Leeds raised Leeds". About half of the
paragraphs with a value name the person, so that a search for the title finds them; the others say "they". Filler
carries no information. So a reader of part of the document knows the values that it has read and can only guess the
others.
"""

import hashlib
import math
import random
from dataclasses import dataclass
from functools import cached_property

from repro.data.examples import Summary
from repro.data.synthetic import NAMES
from repro.errors import check_ranges

VERSION = 1  # raise it when the articles of a given seed change
RELATIONS = tuple((wordings.split(), values.split()) for wordings, values in (
    ("born raised", "Leeds Porto Lagos Quito Turin Osaka Perth Delhi"),
    ("taught studied", "chess law music physics painting farming medicine sailing"),
    ("loved feared", "dogs storms crowds winter rivers horses silence trains"),
    ("built bought", "boats clocks bridges houses violins engines lamps gardens"),
))
FILLER = "the a of and to in that was with on by at from as it which were this had not are but or an be".split()
ALIAS = "they"  # replaces the person's name


@dataclass(frozen=True)
class SyntheticArticles:
    """The process that writes the articles; each is a function of these numbers, its split and its index.

    n_facts: relations stated. n_paragraphs, paragraph_words: size of a document. n_values: values of each relation.
    named: probability that a paragraph with a fact names the person. Raises ReproError for numbers out of range.
    """

    n_facts: int = 3
    n_paragraphs: int = 10
    paragraph_words: int = 5
    n_values: int = 4
    named: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"n_facts": (1, len(RELATIONS)), "n_paragraphs": (self.n_facts, math.inf),
                  "paragraph_words": (5, math.inf), "n_values": (2, 8), "named": (0, 1)}
        check_ranges(self, limits, "synthetic articles")

    def example(self, split: str, index: int) -> Summary:
        """Article `index` of `split`: its title, its document (one paragraph per line), and its lead."""
        draw = random.Random(f"articles {VERSION}/{self.seed}/{split}/{index}")
        name, lead = _one(draw, NAMES), []
        paragraphs = [[_one(draw, FILLER) for _ in range(self.paragraph_words)] for _ in range(self.n_paragraphs)]
        free = list(range(self.n_paragraphs))
        for wordings, values in RELATIONS[:self.n_facts]:
            value = _one(draw, values[:self.n_values])
            place = free.pop(int(draw.random() * len(free)))
            who = name if draw.random() < self.named else ALIAS
            first = int(draw.random() * 2)
            paragraphs[place][:5] = who, wordings[first], value, wordings[1 - first], value
            lead += [_one(draw, wordings), value]
        return Summary(f"{split}-{index}", name, "\n".join(map(" ".join, paragraphs)), " ".join([name, *lead]))

    def lexicon(self) -> list[str]:
        """Every word of an article, each once."""
        of_facts = [word for wordings, values in RELATIONS for word in (*wordings, *values)]
        return [*NAMES, *of_facts, *FILLER, ALIAS]

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how articles are written."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        identity = f"{self} {VERSION} {RELATIONS} {FILLER} {NAMES} {self.example('train', 0)}"
        return hashlib.sha256(identity.encode()).hexdigest()

    def best_nats(self, example: Summary, seen: str = "") -> float:
        """Nats of the whole lead, its end included, under the best possible reader of the text `seen`.

        The best possible reader knows the process. It knows the name if `seen` has the title or a paragraph with the
        name, and otherwise guesses among all names. It knows each value that is in `seen`, and otherwise guesses among
        the relation's values. It never knows the wordings, and it always knows where the lead ends.
        """
        words = set(seen.split())
        lead = example.summary.split()
        values = lead[2::2]
        guessed = sum(value not in words for value in values)
        return (math.log(len(NAMES)) * (example.title not in words) + len(values) * math.log(2)
                + guessed * math.log(self.n_values))

    def best_rouge(self, example: Summary, seen: str = "") -> dict[str, float]:
        """The F1 of ROUGE-1 and ROUGE-2 that the best possible reader of `seen` can expect, 0 to 1.

        The reader writes a whole lead. It knows what `best_nats` says it knows, and guesses the rest and all wordings.

        >>> ARTICLES.best_rouge(ARTICLES.example("test", 0))["rouge1"] < 0.5
        True
        """
        words = set(seen.split())
        values = example.summary.split()[2::2]
        name = 1.0 if example.title in words else 1 / len(NAMES)
        right = [1.0 if value in words else 1 / self.n_values for value in values]
        pairs = name / 2 + sum(right) / 2 + sum(right[:-1]) / 2  # each bigram has one wording, right half of the time
        return {"rouge1": (name + len(values) / 2 + sum(right)) / (1 + 2 * len(values)),
                "rouge2": pairs / (2 * len(values))}


def _one(draw: random.Random, values: list[str]) -> str:
    return values[int(draw.random() * len(values))]


ARTICLES = SyntheticArticles()  # the corpus `synthetic-articles`
SIZES = {"train": 1_600, "validation": 64, "test": 128}
