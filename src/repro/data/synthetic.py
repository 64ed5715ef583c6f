"""Books written by a small known process, so that the best possible perplexity with any context is known too.

A book has one topic and a cast of characters with a gender each, both drawn for the book and never told. Sentences
follow templates: a NAME is drawn from the cast, HE and HIS agree with the character named last, and a NOUN, VERB or
ADJ comes from the book's topic (with probability `stray` from any topic). All names are given to women and men alike,
so only the book tells whether Robin is "he" or "she". What is worth remembering over thousands of words is
therefore: the topic, who is in the cast, and everyone's gender. A book is the first `book_words` words of an endless
story, on one line, "." being a word.
"""

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from repro.errors import ReproError, check_ranges
from repro.windows import Window, windows

VERSION = 1  # raise it when the books of a given seed change

TEMPLATES = {  # sentence: weight. At most one NAME, and never after a HE or HIS
    "NAME VERB the ADJ NOUN .": 3,
    "NAME VERB HIS NOUN .": 3,
    "near the NOUN NAME VERB HIS ADJ NOUN .": 2,
    "HE VERB the NOUN .": 2,
    "HE VERB HIS ADJ NOUN .": 2,
    "then HE VERB the ADJ NOUN .": 1,
}
OPENINGS = {template: weight for template, weight in TEMPLATES.items() if "NAME" in template}  # a book's first sentence
PRONOUNS = {"HE": ("he", "she"), "HIS": ("his", "her")}
NAMES = """Robin Alex Sam Jordan Casey Morgan Taylor Riley Jamie Avery Quinn Rowan Sasha Kim Lee Drew Blair Charlie
    Dana Ellis Finley Frankie Glenn Harper Hayden Indigo Jesse Kai Kelly Kerry Lane Leslie Logan Marley Nico Parker
    Pat Reese Remy Shannon""".split()
TOPICS = [tuple(words.split() for words in topic) for topic in (  # NOUNs, VERBs, ADJs; no word in two topics
    ("anchor sail deck harbour mast lighthouse", "moored steered hoisted caulked", "salty stormy tidal"),
    ("barn plough orchard fence haystack tractor", "ploughed harvested watered fenced", "muddy fertile rustic"),
    ("kettle oven recipe dough pan spoon", "baked stirred tasted peeled", "spicy sweet crisp"),
    ("fiddle drum melody choir piano trumpet", "played tuned hummed composed", "loud mellow rhythmic"),
    ("lesson blackboard exam pupil textbook classroom", "taught studied graded copied", "clever strict tedious"),
    ("bandage nurse fever syringe ward patient", "healed examined disinfected vaccinated", "sterile feverish pale"),
    ("oak fern deer trail mushroom creek", "tracked felled climbed gathered", "mossy shady wild"),
    ("engine wagon platform signal tunnel conductor", "coupled shunted boarded derailed", "steamy punctual rusty"),
    ("judge verdict witness lawyer trial jury", "sued accused acquitted questioned", "guilty lawful sworn"),
    ("actor curtain stage costume script audience", "rehearsed applauded directed staged", "comic tragic masked"),
    ("rocket planet comet telescope orbit crater", "launched observed charted photographed", "lunar distant airless"),
    ("ledger coin stall price merchant customer", "sold bought weighed bargained", "cheap costly profitable"),
)]
CONTENT = ("NOUN", "VERB", "ADJ")
KINDS = ("topic", "name", "pronoun", "other")


@dataclass(frozen=True)
class SyntheticBooks:
    """The process that writes the books; every book is a function of these numbers, its split and its index.

    n_topics, n_names: how many there are to draw from; cast_size: characters in a book; n_nouns, n_verbs,
    n_adjectives: content words per topic; stray: probability that a content word comes from any topic;
    book_words: length of a book. Raises ReproError for a number outside what the word lists allow.
    """

    n_topics: int = 12
    n_names: int = 40
    cast_size: int = 6
    n_nouns: int = 6
    n_verbs: int = 4
    n_adjectives: int = 3
    stray: float = 0.2
    book_words: int = 2500
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"n_topics": (1, len(TOPICS)), "n_names": (1, len(NAMES)), "cast_size": (1, self.n_names),
                  "n_nouns": (1, 6), "n_verbs": (1, 4), "n_adjectives": (1, 3), "stray": (0, 1),
                  "book_words": (1, math.inf)}
        check_ranges(self, limits, "synthetic books")

    def book(self, split: str, index: int) -> str:
        """The text of book `index` of `split`: `book_words` words separated by single blanks."""
        draw = random.Random(f"{VERSION}/{self.seed}/{split}/{index}")  # random() is the same on every machine
        topic = _below(draw, self.n_topics)
        left = list(range(self.n_names))
        cast = [left.pop(_below(draw, len(left))) for _ in range(self.cast_size)]
        gender = {name: _below(draw, 2) for name in cast}
        words, named = [], None
        while len(words) < self.book_words:
            templates = OPENINGS if named is None else TEMPLATES
            place = _below(draw, sum(templates.values()))
            for part in next(t for t, upto in _running(templates) if place < upto).split():
                if part == "NAME":
                    named = cast[_below(draw, self.cast_size)]
                    words.append(NAMES[named])
                elif part in PRONOUNS:
                    words.append(PRONOUNS[part][gender[named]])
                elif part in CONTENT:
                    source = _below(draw, self.n_topics) if draw.random() < self.stray else topic
                    choice = self._content(source, part)
                    words.append(choice[_below(draw, len(choice))])
                else:
                    words.append(part)
        return " ".join(words[:self.book_words])

    def lexicon(self) -> list[str]:
        """Every word a book can hold, each once."""
        return [word for words in self._categories.values() for word in words]

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter, with the word lists and with how books are written."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:  # asked for with every record, and writing a book takes milliseconds
        told = f"{self} {VERSION} {TEMPLATES} {self.lexicon()} {self.book('train', 0)}"
        return hashlib.sha256(told.encode()).hexdigest()

    def kinds(self, text: str) -> np.ndarray:
        """What carries each word of `text`: (words,) of "topic", "name", "pronoun" or "other" (the grammar's own)."""
        return np.array(KINDS)[self._tables.kind[self._ids(text)]]

    def bounds(self, books: Sequence, window: int, overlap: int) -> "Bounds":
        """Exact nll of `books` (texts or Documents) under the two best possible predictors.

        (a) predicts each word from the words its window shows it, P(w_i+1 | w_s .. w_i): windows are those of
        `repro.windows.windows` over <|endoftext|> and the book, and s is the window's start. What came before s is
        unknown and summed out under the process itself: where in a sentence the window starts (its exact
        distribution at that place of the book), who was named last, topic, cast and genders.
        (b) predicts each word from everything before it in the book.

        Both are the process' own conditional probabilities, so no predictor with the same context has a lower
        expected nll; on a given sample one can be a little lower by luck. (a) may use how far into the book the
        window starts; a model that is not told this can on average only be worse.

        Why it is exact. Every word has one category, and templates are drawn whatever topic and cast are, so
        P(words) = P(categories) P(words | categories). The first factor is a forward pass over the grammar's
        states. In the second the topic is independent of the cast and has `n_topics` values. Names are drawn evenly
        from a cast that is an even draw itself, so a name that was seen has probability 1/C, and the others share
        (C - seen)/C evenly. A pronoun of somebody whose gender was seen is certain, else 1/2, with one
        exception: if a pronoun came before the window's first name, it tells the gender of an unknown member r of
        the cast. A priori r is each of the C members alike; against a member of unseen gender, one of the same
        gender as r is twice as likely to be r and one of the other gender is not r. So somebody of unseen gender
        is r with probability 1 / (2 same + C - gender seen), and has r's gender with 1/2 more than half of that.

        Raises ReproError for a text that these parameters cannot have written.
        """
        texts = [getattr(book, "text", book) for book in books]
        if not texts or not all(texts):
            raise ReproError("bounds of synthetic books need at least one book, and no empty one.")
        ids = [self._ids(text) for text in texts]
        return Bounds(
            window_nll=self._nll(ids, [windows(len(words) + 1, window, overlap) for words in ids]),
            unlimited_nll=self._nll(ids, [windows(len(words) + 1, len(words) + 1, 0) for words in ids]),
            kinds=np.concatenate([self.kinds(text) for text in texts]),
            n_words=np.array([len(words) for words in ids]))

    def _content(self, topic: int, category: str) -> list[str]:
        sizes = (self.n_nouns, self.n_verbs, self.n_adjectives)
        place = CONTENT.index(category)
        return TOPICS[topic][place][:sizes[place]]

    @cached_property
    def _categories(self) -> dict[str, list[str]]:
        """The words of each category; a word that stands in the templates is a category of its own."""
        parts = dict.fromkeys(part for template in TEMPLATES for part in template.split())
        known = {"NAME": NAMES[:self.n_names], **{part: list(words) for part, words in PRONOUNS.items()},
                 **{part: [word for k in range(self.n_topics) for word in self._content(k, part)] for part in CONTENT}}
        return {part: known.get(part, [part]) for part in parts}

    @cached_property
    def _tables(self) -> "_Tables":
        return _Tables(self)

    def _ids(self, text: str) -> np.ndarray:
        number = self._tables.number
        try:
            return np.array([number[word] for word in text.split()], np.int64)
        except KeyError as error:
            raise ReproError(f"'{error.args[0]}' is not a word of these synthetic books.") from None

    def _nll(self, books: list[np.ndarray], covers: list[list[Window]], rows: int = 8192) -> np.ndarray:
        """nll (nats) of every word of `books` (each (words,) lexicon ids) when read in the windows of `covers`."""
        first = np.cumsum([0, *(len(words) for words in books)])
        stream = np.concatenate(books)
        # one row a window: where its first and last word and its first scored word are in `stream`, and in the book
        table = np.array([(at + max(w.start, 1) - 1, at + w.stop - 1, at + w.first_target - 1, w.start)
                          for at, cover in zip(first, covers, strict=False) for w in cover])
        table = table[np.argsort(table[:, 0] - table[:, 1], kind="stable")]  # long ones first
        nll = np.full(len(stream), np.nan)
        for some in (table[i:i + rows] for i in range(0, len(table), rows)):
            belief = _Belief(self, some[:, 3])
            for step in range(some[0, 1] - some[0, 0] + 1):
                some = some[some[:, 0] + step <= some[:, 1]]
                place = some[:, 0] + step
                with np.errstate(divide="ignore"):
                    found = -np.log(belief.read(stream[place]))
                scored = place >= some[:, 2]
                nll[place[scored]] = found[scored]
        if not np.isfinite(nll).all():
            place = int(np.flatnonzero(~np.isfinite(nll))[0])
            raise ReproError(f"word {place - first[first <= place][-1] + 1} of book {np.sum(first <= place)} cannot "
                             "follow what stands before it; these books were not written with these parameters.")
        return nll


class _Tables:
    """Arrays that describe a process: of words (V,), of grammar states (S,)."""

    def __init__(self, process: SyntheticBooks):
        categories = process._categories
        self.words = process.lexicon()
        self.number = {word: i for i, word in enumerate(self.words)}
        self.category = np.array([c for c, words in enumerate(categories.values()) for _ in words])
        self.within = np.array([i for words in categories.values() for i in range(len(words))])
        kind = [0 if part in CONTENT else 1 if part == "NAME" else 2 if part in PRONOUNS else 3 for part in categories]
        self.kind = np.array(kind)[self.category]
        # probability of each content word in each topic (K, V)
        self.topic = np.zeros((process.n_topics, len(self.words)))
        for part in CONTENT:
            every = [self.number[word] for word in categories[part]]
            self.topic[:, every] = process.stray / len(every)
            for k in range(process.n_topics):
                own = [self.number[word] for word in process._content(k, part)]
                self.topic[k, own] += (1 - process.stray) / len(own)
        # grammar: a state is a place in a template
        states = [(template, i) for template in TEMPLATES for i in range(len(template.split()))]
        place = {state: s for s, state in enumerate(states)}
        order = list(categories)
        self.emits = np.zeros((len(categories), len(states)))  # (categories, S)
        self.moves = np.zeros((len(states), len(states)))
        begin, self.begin = np.zeros((2, len(states)))
        for templates, start in ((TEMPLATES, begin), (OPENINGS, self.begin)):
            for template, weight in templates.items():
                start[place[template, 0]] = weight / sum(templates.values())
        for (template, i), s in place.items():
            parts = template.split()
            self.emits[order.index(parts[i]), s] = 1
            self.moves[s] = begin if i + 1 == len(parts) else np.eye(len(states))[place[template, i + 1]]

    def state_distribution(self, n: int) -> np.ndarray:
        """(n + 1, S): distribution of the grammar's state at a book's words 1 .. n+1, nothing being read."""
        states = [self.begin]
        for _ in range(n):
            states.append(states[-1] @ self.moves)
        return np.array(states)


class _Belief:
    """What windows know (rows R; the first rows are the longest windows and outlive the rest)."""

    def __init__(self, process: SyntheticBooks, start: np.ndarray):
        """`start` (R,): where windows begin; 0 is <|endoftext|>, i the book's i-th word."""
        self.tables = process._tables
        self.n_names, self.cast_size = process.n_names, process.cast_size
        self.state = self.tables.state_distribution(max(start.max() - 1, 0))[np.maximum(start - 1, 0)]  # (R, S)
        self.topic = np.full((len(start), process.n_topics), 1 / process.n_topics)  # (R, K)
        self.seen = np.zeros((len(start), process.n_names), bool)
        # genders seen: 0 unknown, 1 or -1; the last column is whoever was named last before the window
        self.gender = np.zeros((len(start), process.n_names + 1), np.int8)
        self.last = np.full(len(start), process.n_names)

    def read(self, words: np.ndarray) -> np.ndarray:
        """Probability of the next `words` (R',) in the first R' windows, which then have read them."""
        n = len(words)
        for name in ("state", "topic", "seen", "gender", "last"):
            setattr(self, name, getattr(self, name)[:n])
        kind, within = self.tables.kind[words], self.tables.within[words]
        allowed = self.state * self.tables.emits[self.tables.category[words]]
        chance = allowed.sum(1)
        self.state = allowed @ self.tables.moves / np.where(chance, chance, 1)[:, None]
        for number, read in enumerate((self._topic, self._name, self._pronoun)):
            rows = np.flatnonzero(kind == number)
            chance[rows] *= read(rows, words[rows] if number == 0 else within[rows])
        return chance

    def _topic(self, rows: np.ndarray, words: np.ndarray) -> np.ndarray:
        joint = self.topic[rows] * self.tables.topic[:, words].T
        chance = joint.sum(1)
        self.topic[rows] = joint / np.where(chance, chance, 1)[:, None]
        return chance

    def _name(self, rows: np.ndarray, names: np.ndarray) -> np.ndarray:
        n_seen = self.seen[rows].sum(1)
        unseen = (self.cast_size - n_seen) / self.cast_size / np.maximum(self.n_names - n_seen, 1)
        chance = np.where(self.seen[rows, names], 1 / self.cast_size, unseen)
        self.seen[rows, names] = True
        self.last[rows] = names
        return chance

    def _pronoun(self, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
        gender, last, before = np.where(which == 0, 1, -1), self.last[rows], self.gender[rows, -1]
        known = self.gender[rows, last]
        others = self.gender[rows, :-1]
        same = ((others == before[:, None]) & (others != 0)).sum(1)
        is_before = 1 / (2 * same + self.cast_size - (others != 0).sum(1)).clip(1)
        chance = np.where(known == 0, 0.5 + gender * before * is_before / 2, known == gender)
        self.gender[rows, last] = gender
        return chance


@dataclass(frozen=True)
class Bounds:
    """Best possible nll (nats) of every word of some books, in order; see `SyntheticBooks.bounds`.

    window_nll, unlimited_nll, kinds: (words,). n_words: (books,).
    """

    window_nll: np.ndarray = field(repr=False)
    unlimited_nll: np.ndarray = field(repr=False)
    kinds: np.ndarray = field(repr=False)
    n_words: np.ndarray = field(repr=False)

    @property
    def window_perplexity(self) -> float:
        """Per word, seeing the current window only."""
        return math.exp(self.window_nll.mean())

    @property
    def unlimited_perplexity(self) -> float:
        """Per word, seeing the whole book so far."""
        return math.exp(self.unlimited_nll.mean())

    @property
    def by_kind(self) -> dict[str, dict[str, float]]:
        """For each kind of word: {"words": how many, "window": summed nll, "unlimited": summed nll}, in nats."""
        masks = {kind: self.kinds == kind for kind in KINDS}
        return {kind: {"words": int(mask.sum()), "window": float(self.window_nll[mask].sum()),
                       "unlimited": float(self.unlimited_nll[mask].sum())} for kind, mask in masks.items()}

    def share(self, nll: float) -> float:
        """Which share of the possible gain a summed nll (nats, of the same words) has: 0 window, 1 unlimited."""
        window, unlimited = self.window_nll.sum(), self.unlimited_nll.sum()
        return float((window - nll) / (window - unlimited))


BOOKS = SyntheticBooks()  # the corpus `synthetic-books`
SIZES = {"train": 240, "validation": 6, "test": 40}


def bounds(books: Sequence, window: int, overlap: int) -> Bounds:
    """`SyntheticBooks.bounds` of the corpus `synthetic-books`."""
    return BOOKS.bounds(books, window, overlap)


def kinds(text: str) -> np.ndarray:
    """`SyntheticBooks.kinds` of the corpus `synthetic-books`."""
    return BOOKS.kinds(text)


def _below(draw: random.Random, n: int) -> int:
    return int(draw.random() * n)


def _running(templates: dict[str, int]) -> Iterator[tuple[str, int]]:
    upto = 0
    for template, weight in templates.items():
        upto += weight
        yield template, upto
