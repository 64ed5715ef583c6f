"""The kinds of examples in corpora: one frozen dataclass per kind, which rejects inconsistent rows.

Spans are half-open like Python slices: `text[start:stop]`. A row with a missing field or inconsistent fields raises
BadField; the readers turn it into a one-line error that also names corpus, split and row.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from repro.errors import ReproError


class BadField(ReproError):
    """A field of an example is invalid: its name, and what is wrong with it."""

    def __init__(self, field: str, wrong: str):
        super().__init__(f"field {field} {wrong}")
        self.field, self.wrong = field, wrong


@dataclass(frozen=True)
class LabelledText:
    """A text, or a pair of texts, and its label (an index into `Corpus.labels`) or score (float)."""

    kind: ClassVar[str] = "labeled text"
    id: str
    text: str
    label: int | float
    pair: str | None = None

    def __post_init__(self) -> None:
        _text(self, "text")
        if self.pair is not None:
            _text(self, "pair")
        if not isinstance(self.label, (int, float)) or not self.label >= 0:
            raise BadField("label", f"is {self.label!r}, neither a label's place nor a score")

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its text."""
        return (self.text,) if self.pair is None else (self.text, self.pair)

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up: this row counts for its label."""
        return {labels[self.label]: 1} if labels else {}


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a question's context; `text` is its `sentences`, joined by `between`."""

    title: str
    sentences: tuple[str, ...]
    between: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.title, str) or not all(isinstance(one, str) for one in self.sentences):
            raise BadField("paragraphs", f"has something that is not text in the paragraph '{self.title}'")

    @property
    def text(self) -> str:
        """The paragraph as one text."""
        return self.between.join(self.sentences)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each sentence begins and ends in the text, in characters."""
        stops = accumulate(len(one) + len(self.between) for one in self.sentences)
        return [(stop - len(one) - len(self.between), stop - len(self.between))
                for one, stop in zip(self.sentences, stops, strict=True)]


@dataclass(frozen=True)
class Span:
    """Characters start .. stop-1 of the text of paragraph number `paragraph`."""

    paragraph: int
    start: int
    stop: int


ANSWER_TYPES = ("span", "yes", "no")  # a question's answer is words of its text, or yes or no


@dataclass(frozen=True)
class Question:
    """A question about paragraphs, its answer, and the sentences that support it (HotpotQA).

    aliases: other right answers (TriviaQA).
    spans: the positions of the answer, in order; none for "yes" and "no", or if the text words it differently.
    supporting: (number of the paragraph, number of the sentence in it; None if only the paragraph is known).
    """

    kind: ClassVar[str] = "question"
    id: str
    question: str
    paragraphs: tuple[Paragraph, ...]
    answer: str
    spans: tuple[Span, ...] = ()
    supporting: tuple[tuple[int, int | None], ...] = ()
    type: str = ""
    level: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _text(self, "question", "answer")
        _texts(self, "aliases")
        n = len(self.paragraphs)
        for span in self.spans:
            found = self.paragraphs[span.paragraph].text if 0 <= span.paragraph < n else ""
            if not 0 <= span.start < span.stop <= len(found):
                raise BadField("spans", f"has {span.start}:{span.stop} of paragraph {span.paragraph}, which is outside "
                                        f"its {len(found)} characters")
            if not re.fullmatch(re.escape(self.answer), found[span.start:span.stop], re.IGNORECASE):
                raise BadField("spans", f"has '{found[span.start:span.stop]}' where the answer is '{self.answer}'")
        for paragraph, sentence in self.supporting:
            if not 0 <= paragraph < n:
                raise BadField("supporting", f"names paragraph {paragraph} of {n}")
            if sentence is not None and not 0 <= sentence < len(self.paragraphs[paragraph].sentences):
                raise BadField("supporting", f"names sentence {sentence} of paragraph {paragraph}, which has "
                                             f"{len(self.paragraphs[paragraph].sentences)}")

    @property
    def answers(self) -> tuple[str, ...]:
        """All right answers."""
        return self.answer, *self.aliases

    @property
    def answer_type(self) -> str:
        """One of `ANSWER_TYPES`."""
        return self.answer if self.answer in ANSWER_TYPES[1:] else ANSWER_TYPES[0]

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of its paragraphs, decoded: some in the files contain HTML entities."""
        return tuple(html.unescape(one.title).strip() for one in self.paragraphs)

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its text: the question, and each paragraph below its title."""
        return (self.question, *(f"{title}\n{one.text}" for title, one in zip(self.titles, self.paragraphs,
                                                                              strict=True)))

    @property
    def supported_spans(self) -> tuple[Span, ...]:
        """The spans in a supporting sentence; if there are none, those in its paragraph; else all."""
        for facts in (self.supporting, [(paragraph, None) for paragraph, _ in self.supporting]):
            found = tuple(span for span in self.spans if any(self._inside(span, *fact) for fact in facts))
            if found:
                return found
        return self.spans

    def _inside(self, span: Span, paragraph: int, sentence: int | None) -> bool:
        """Whether a span lies in this sentence; None: anywhere in this paragraph."""
        if span.paragraph != paragraph or sentence is None:
            return span.paragraph == paragraph
        start, stop = self.paragraphs[paragraph].places[sentence]
        return start <= span.start and span.stop <= stop

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"paragraphs": len(self.paragraphs), "supporting facts": len(self.supporting)}


@dataclass(frozen=True)
class MultipleChoice:
    """A question with candidates, of which number `answer` is right, and the paragraphs it is about (maybe none)."""

    kind: ClassVar[str] = "multiple choice"
    id: str
    question: str
    candidates: tuple[str, ...]
    answer: int
    paragraphs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _text(self, "question")
        _texts(self, "candidates", "paragraphs")
        if not isinstance(self.answer, int) or not 0 <= self.answer < len(self.candidates):
            raise BadField("answer", f"is {self.answer!r}, not one of the {len(self.candidates)} candidates")

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"candidates": len(self.candidates)}


@dataclass(frozen=True)
class Cloze:
    """A passage and its last word, to be predicted from all text before it (LAMBADA)."""

    kind: ClassVar[str] = "last word"
    id: str
    text: str
    target: str

    def __post_init__(self) -> None:
        _text(self, "text", "target")
        if not self.text.endswith(self.target) or not self.context:
            raise BadField("target", f"is '{self.target}', but the text ends in '{self.text[-20:]}'")

    @property
    def context(self) -> str:
        """The text before the target, with the space between them."""
        return self.text.removesuffix(self.target)

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its text."""
        return (self.text,)

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {}


@dataclass(frozen=True)
class Coreference:
    """A document's sentences of tokens, and its clusters of mentions (start, stop), counted in tokens of the document.

    A mention is in exactly one cluster; a cluster may have a single mention (a singleton). speakers: the speaker of
    each token; empty if the corpus has none. genre: the index of the document's genre in `Corpus.labels`.
    """

    kind: ClassVar[str] = "coreference"
    id: str
    sentences: tuple[tuple[str, ...], ...]
    clusters: tuple[tuple[tuple[int, int], ...], ...]
    speakers: tuple[str, ...] = ()
    genre: int = 0

    def __post_init__(self) -> None:
        if not self.tokens or not all(isinstance(token, str) for token in self.tokens):
            raise BadField("sentences", "has no tokens, or something that is not text among them")
        n, seen = len(self.tokens), set()
        if len(self.speakers) not in (0, n):
            raise BadField("speakers", f"has {len(self.speakers)} for {n} tokens")
        for start, stop in (mention for cluster in self.clusters for mention in cluster):
            if not 0 <= start < stop <= n:
                raise BadField("clusters", f"has a mention of tokens {start}:{stop}, which is outside the {n} tokens")
            if (start, stop) in seen:
                raise BadField("clusters", f"has the mention of tokens {start}:{stop} twice")
            seen.add((start, stop))

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens of the document in order."""
        return tuple(token for sentence in self.sentences for token in sentence)

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"tokens": len(self.tokens), "clusters": len(self.clusters), "mentions": sum(map(len, self.clusters))}


@dataclass(frozen=True)
class Mention:
    """The words `text`, which begin at character `start`."""

    text: str
    start: int


@dataclass(frozen=True)
class Pronoun:
    """A text, a pronoun in it, and two names `a` and `b`; the pronoun refers to at most one of them (GAP)."""

    kind: ClassVar[str] = "pronoun"
    id: str
    text: str
    pronoun: Mention
    a: Mention
    b: Mention
    is_a: bool
    is_b: bool

    def __post_init__(self) -> None:
        _text(self, "text")
        for name in ("pronoun", "a", "b"):
            one = getattr(self, name)
            if not one.text or one.start < 0 or self.text[one.start:one.start + len(one.text)] != one.text:
                raise BadField(name, f"is '{one.text}' at character {one.start}, where the text has "
                                     f"'{self.text[max(one.start, 0):][:len(one.text)]}'")
        if self.is_a and self.is_b:
            raise BadField("is_b", "is true as is_a is; the pronoun means one of them or neither")

    @property
    def gender(self) -> str:
        """The gender of the pronoun, "feminine" or "masculine", by which GAP's scores are split."""
        return "feminine" if self.pronoun.text.casefold() in ("she", "her", "hers") else "masculine"

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"a": int(self.is_a), "b": int(self.is_b), self.gender: 1}


@dataclass(frozen=True)
class Summary:
    """A document, its title, and its reference summary."""

    kind: ClassVar[str] = "summary"
    id: str
    title: str
    document: str
    summary: str

    def __post_init__(self) -> None:
        _text(self, "document", "summary")

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its text."""
        return tuple(filter(None, (self.title, self.document, self.summary)))

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"words": len(self.document.split())}


@dataclass(frozen=True, eq=False)
class Image:
    """`pixels` (height, width, 3) uint8 in the order red, green, blue, and the label's place in `Corpus.labels`."""

    kind: ClassVar[str] = "image"
    id: str
    pixels: np.ndarray = field(repr=False)
    label: int

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != np.uint8:
            raise BadField("pixels", f"is {self.pixels.dtype} of shape {self.pixels.shape}, not uint8 (height, width, "
                                     "3)")

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up: this row counts for its label."""
        return {labels[self.label]: 1}


@dataclass(frozen=True, eq=False)
class Audio:
    """A recording: `codes` (samples,) uint8, 8-bit mu-law (mu = 255; 128 is about silence), `rate` samples a second."""

    kind: ClassVar[str] = "audio"
    id: str
    title: str
    codes: np.ndarray = field(repr=False)
    rate: int

    def __post_init__(self) -> None:
        if self.codes.ndim != 1 or not len(self.codes) or self.codes.dtype != np.uint8:
            raise BadField("codes", f"is {self.codes.dtype} of shape {self.codes.shape}, not uint8 (samples,)")

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.codes) / self.rate

    def waveform(self) -> np.ndarray:
        """(samples,) float32 in -1 .. 1: the decoded samples."""
        value = 2 * self.codes.astype(np.float32) / 255 - 1
        return np.sign(value) * (np.float32(256) ** np.abs(value) - 1) / 255

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """The numbers that `Corpus.check` adds up."""
        return {"samples": len(self.codes)}


def _text(row: object, *names: str) -> None:
    for name in names:
        value = getattr(row, name)
        if not isinstance(value, str) or not value.strip():
            raise BadField(name, "is empty" if value == "" or isinstance(value, str) else f"is {value!r}, not text")


def _texts(row: object, *names: str) -> None:
    for name in names:
        if not all(isinstance(one, str) for one in getattr(row, name)):
            raise BadField(name, "has something in it that is not text")


def rewritten(given: Any, rewrite: Callable[[str], str]) -> Any:
    """A text, or an example with all its texts, rewritten; spans of a question move with their text.

    rewrite: must treat each part of a text as it treats the whole, as a character replacement does.

    >>> row = Question("1", "Who?", (Paragraph("A", ("“It’s” Ann…", "she"), " "),), "ann…", (Span(0, 7, 11),))
    >>> plain = rewritten(row, lambda text: text.replace("“", "``").replace("…", "..."))
    >>> plain.answer, plain.paragraphs[0].text[plain.spans[0].start:plain.spans[0].stop]
    ('ann...', 'Ann...')
    """
    if isinstance(given, str):
        return rewrite(given)
    if isinstance(given, tuple):
        return tuple(rewritten(one, rewrite) for one in given)
    if not is_dataclass(given):
        return given
    parts = {one.name: rewritten(getattr(given, one.name), rewrite) for one in fields(given)}
    if isinstance(given, Question):
        parts["spans"] = tuple(Span(one.paragraph, *(len(rewrite(given.paragraphs[one.paragraph].text[:place]))
                                                     for place in (one.start, one.stop))) for one in given.spans)
    return replace(given, **parts)
