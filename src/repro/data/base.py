"""Corpora: their splits with expected counts, and reading, fetching, checking and fingerprinting their files.

A corpus of text yields `Document`s, a corpus of examples yields rows of one of the kinds in `repro.data.examples`. Both
are declared in `repro.data.registry`.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

from repro import paths
from repro.data import apart, files
from repro.data.fetch import Archive, Hub, fetch, verify
from repro.data.normalisation import Normalisation
from repro.errors import ReproError, check_text, check_whole, unknown


@dataclass(frozen=True)
class Document:
    """One book or article. `text` is exactly as in the corpus: joining the documents of a split gives its text.

    >>> Document("a-tale", "Once upon a time.").content
    b'Once upon a time.'
    """

    kind: ClassVar[str] = "text"
    id: str
    text: str

    def __post_init__(self) -> None:
        check_text(self.id, "the id of a document")
        check_text(self.text, "the text of a document")

    @property
    def content(self) -> bytes:
        """The text's bytes. If a text was cut inside a character (enwik8), `text` has a surrogate for each such
        byte."""
        return self.text.encode(errors="surrogateescape")

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its text."""
        return (self.text,)


Documents = list[Document]
HELD_OUT = ("validation", "test")  # evaluation splits, whose text can be removed from other corpora


class Generator(Protocol):
    """The generator of an embedded corpus."""

    def fingerprint(self) -> str:
        """sha256 (hex) that changes whenever the output changes."""

    def lexicon(self) -> list[str]:
        """Every word it can generate, each once."""


@dataclass(frozen=True)
class Reader:
    """How a split is read: `rows(corpus, split)` yields rows of the class `row`.

    settings: describe what a reader of examples takes from the files; they are part of the fingerprint.

    >>> corpus("synthetic-books").read.row.__name__
    'Document'
    """

    row: type
    rows: Callable[["Corpus", str], Iterator[Any]]
    settings: str = ""


@dataclass(frozen=True)
class Split:
    """A part of a corpus, its files, and the counts it must have (None: unknown).

    files: one pattern, or several if there are several kinds of files.
    rows: which rows of the files belong to it, by their column `split`; None: all of them.
    For text: n_words counts whitespace-separated words, n_words_with_ends adds one for every line end (the denominator
    of WikiText's published perplexities), n_bytes counts UTF-8 bytes.
    For examples: n_examples counts rows, and `counts` their content, such as {"hyperpartisan": 192} for labels. For
    text with passages left out, `counts` has "words left out", or "words left out of question-*" for the documents
    whose names match. For text with words that are never predicted, `counts` has their number.

    >>> corpus("synthetic-books").split("test").n_words
    100000
    """

    description: str
    files: str | tuple[str, ...] = ""
    n_documents: int | None = None
    n_words: int | None = None
    n_words_with_ends: int | None = None
    n_bytes: int | None = None
    rows: str | None = None
    n_examples: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckRow:
    """One line of `Corpus.check`: the quantity counted in `split`, its expected value, and the value found.

    >>> CheckRow("test", "words", expected=10, found=9).ok
    False
    """

    split: str
    what: str
    expected: int
    found: int

    @property
    def ok(self) -> bool:
        """Whether the expected and the found value are equal."""
        return self.expected == self.found


@dataclass(frozen=True)
class Corpus:
    """A corpus with its splits, always the same. `source`: hub id, another origin, or "embedded".

    >>> books = corpus("synthetic-books")
    >>> books.source, list(books.splits)
    ('embedded', ['train', 'validation', 'test'])
    >>> books.n_words("Three plain words")
    3
    """

    name: str
    licence: str
    source: str
    splits: dict[str, Split]
    read: Reader = field(repr=False)
    part_of: str | None = None  # the corpus that it is a part of, for tables; None if it is whole
    folder: str = ""
    origin: Callable[[], Hub | Archive] | None = field(default=None, repr=False)  # for `fetch`; None: impossible
    joined: bool = False  # one running text (WikiText): no separator between documents, line ends count as words
    labels: tuple[str, ...] = ()  # for examples: the names of the labels 0, 1, ...
    generator: Generator | None = None  # the generator of an embedded corpus
    made_of: tuple["Corpus", ...] = ()  # corpora whose files it reads, if it has none of its own
    normalise: Normalisation | None = None  # for text: character replacements
    never_targets: tuple[str, ...] = ()  # for text: words that are read but never predicted, such as "<unk>"; no spaces
    known_bytes: tuple[str, ...] = ("train",)  # for text: the splits whose bytes a byte tokenizer knows
    apart_from: tuple["Corpus", ...] = ()  # for text: corpora whose validation and test texts are removed from this one

    @property
    def content_kind(self) -> str:
        """Its contents: "text", or the kind of its examples."""
        return self.read.row.kind

    @property
    def is_text(self) -> bool:
        """Whether it contains documents; otherwise examples."""
        return self.read.row is Document

    def of_text(self) -> "Corpus":
        """The corpus itself; ReproError if it contains examples."""
        if not self.is_text:
            raise ReproError(f"{self.name} contains examples ({self.content_kind}), not running text: read it with "
                             f"corpus('{self.name}').examples(SPLIT), where SPLIT is one of {', '.join(self.splits)}.")
        return self

    def documents(self, split: str, n_books: int | None = None) -> Documents:
        """The documents of `split` in order, the first `n_books` of them if given.

        Raises ReproError for an unknown split, missing or damaged files, too large n_books, and a corpus of
        examples.
        """
        if n_books is not None:
            check_whole(n_books, "n_books", of=f"documents of {self.name}")
        found = list(islice(self.stream(split), n_books))
        if n_books is not None and len(found) < n_books:
            raise ReproError(f"n_books={n_books}: {self.name} {split} has only {len(found)} documents.")
        return found

    def stream(self, split: str) -> Iterator[Document]:
        """`documents(split)` one at a time, for corpora that do not fit into memory."""
        self.split(split)
        self.of_text()
        return self._some(split, self._apart(split) if self.apart_from else self._whole(split))

    def dropped(self, split: str) -> list[apart.Dropped]:
        """The passages left out of `split` because an evaluation text of another corpus contains them.

        Finding them takes a minute or two per hundred megabytes; they are cached in the work folder.
        """
        if not self.apart_from:
            return []
        kept = paths.work() / "overlap" / f"{self.name}-{split}-{self.fingerprint([split])[:16]}.json"
        found = apart.read(kept)
        if found is None:
            found = list(apart.dropped(((one.id, one.text) for one in self._whole(split)), self._others()))
            apart.write(kept, found)
        return found

    def examples(self, split: str) -> Iterator[Any]:
        """The examples of `split` in order, one at a time: rows of a class in `repro.data.examples`.

        Raises ReproError for an unknown split, missing or damaged files, a corpus of text, and, naming the row and the
        field, for a row that lacks a field or contradicts itself.
        """
        self.split(split)
        if self.is_text:
            raise ReproError(f"{self.name} contains text, not examples: read it with "
                             f"corpus('{self.name}').documents('{split}').")
        return self._some(split, self.read.rows(self, split))

    def _some(self, split: str, rows: Iterator[Any]) -> Iterator[Any]:
        """`rows`; ReproError if there are none: a file was truncated, or belongs to another corpus."""
        found = False
        for row in rows:
            found = True
            yield row
        if not found:
            raise ReproError(f"corpus {self.name}, {split}, has no row in its files; {self.way}.")

    def texts(self, split: str) -> Iterator[str]:
        """All text in `split`, one text at a time, for documents and examples.

        Raises ReproError for an unknown split, missing or damaged files, and rows without text.
        """
        if not hasattr(self.read.row, "texts"):
            raise ReproError(f"{self.name} has no text to train a tokenizer on: it contains {self.content_kind}.")
        for row in self.stream(split) if self.is_text else self.examples(split):
            yield from row.texts

    def n_words(self, text: str) -> int:
        """The number of words of `text` in this corpus's word-level perplexity: those that are predicted."""
        ends = check_text(text, "the text").count("\n") * self.joined
        return len(text.split()) + ends - sum(map(text.count, self.never_targets))

    def paths(self, split: str) -> list[Path]:
        """The files of `split` ([] for embedded corpora); ReproError if they are missing."""
        patterns = self.split(split).files
        if self.generator:
            return []
        here, every = root() / self.folder, []
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            found = files.shards(here, pattern)
            if not found:
                fetched = (f", or run `repro data fetch {self.name}`" if self.origin else
                           f"; it cannot be fetched automatically, its source is {self.source}")
                raise ReproError(f"corpus {self.name} has no {split} files ({pattern}) in {here}: set REPRO_DATA="
                                 f"<folder that holds {Path(self.folder, pattern)}>{fetched}.")
            every += found
        return every

    @property
    def layout(self) -> list[str]:
        """Its files in the folder REPRO_DATA, as patterns; [] if it has none of its own."""
        every = [pattern for split in self.splits.values()
                 for pattern in ((split.files,) if isinstance(split.files, str) else split.files)]
        return [str(Path(self.folder, pattern)) for pattern in dict.fromkeys(filter(None, every))]

    @property
    def way(self) -> str:
        """How to get it if it is missing or incomplete."""
        if self.made_of:
            parts = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from))
            return f"it consists of {', '.join(parts)}, which must be here first"
        if self.origin:
            return f"get it with: repro data fetch {self.name}"
        return f"it cannot be fetched: put {', '.join(self.layout)}, from {self.source}, into the folder REPRO_DATA"

    def available(self) -> bool:
        """Whether the files of every split are here."""
        try:
            return (all(self.paths(split) is not None for split in self.splits)
                    and all(one.paths(split) is not None for one, split in self._held_out()))
        except ReproError:
            return False

    def fingerprint(self, splits: Sequence[str] | None = None) -> str:
        """sha256 (hex) over the names and contents of the files behind `splits` (default: all of them).

        For an embedded corpus: over the generator's parameters, word lists and output, and its number of documents.
        For examples also over the reader's settings and the names of the labels. For text also over its normalization,
        the words that are never predicted, and the files and settings of the evaluation texts removed from it.
        """
        digest = hashlib.sha256(self.name.encode())
        for split in splits or self.splits:
            part = self.split(split)
            if self.generator:
                n = part.n_documents if self.is_text else part.n_examples
                digest.update(f"\n{split} {n} {self.generator.fingerprint()}".encode())
            if not self.is_text:
                kind = self.content_kind.replace("labeled", "labelled")  # as in the records
                digest.update(f"\n{split} {part.rows} {kind} {self.read.settings} {self.labels}".encode())
            for path in self.paths(split):
                digest.update(f"\n{split} {path.name} {files.sha256(path)}".encode())
        if self.normalise:
            digest.update(f"\nnormalise {self.normalise}".encode())
        if self.never_targets:
            digest.update(f"\nnever targets {self.never_targets}".encode())
        for other, split in self._held_out():
            rows = f"\napart {apart.VERSION} {other.name} {split} {other.splits[split].rows} {other.read.settings}"
            for path in other.paths(split):
                digest.update(f"{rows} {path.name} {files.sha256(path)}".encode())
        return digest.hexdigest()

    def check(self) -> list[CheckRow]:
        """Count every split, and compare with published counts or counts at the source.

        For text, it counts documents, words and bytes; for examples, rows and their `counts`, such as labels. A fetched
        corpus is also compared with its checksums at download.
        """
        fetched, rows = verify(self.name, root() / self.folder), []
        for name in self.splits:
            counts = self._count_documents(name) if self.is_text else self._count_examples(name)
            if fetched and self.is_text and not self.joined:  # the hub's copies of the books differ in places
                counts = counts[:1]  # (line ends, placeholders)
            rows += [CheckRow(name, what, expected, found) for what, expected, found in counts if expected is not None]
        if fetched:
            rows.append(CheckRow("all", "files as they were fetched", len(fetched), sum(fetched.values())))
        return rows

    def fetch(self, folder: Path | str | None = None, progress: bool = True) -> None:
        """Download the corpus into `folder` (default: $REPRO_DATA). Set REPRO_DATA to `folder` to use it.

        Resumes where it was stopped.

        Raises ReproError if it is embedded or cannot be fetched, if the source fails, or if the disk is full.
        """
        place = Path(folder or root()) / self.folder
        if os.path.exists(folder or root()) and not os.path.isdir(folder or root()):
            raise ReproError(f"{folder or root()} is a file; give the folder into which {self.name} is fetched.")
        if self.generator:
            raise ReproError(f"{self.name} is generated by the library; there is nothing to fetch.")
        if self.made_of:
            needed = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from) if one.origin)
            others = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from) if not one.origin)
            rest = (f"; {', '.join(others)} cannot be fetched: put the files into {folder or root()} (`repro "
                    "data show NAME` names their source)" if others else "")
            raise ReproError(f"corpus {self.name} consists of others: run `repro data fetch NAME` for each of "
                             f"{', '.join(needed)}{rest}.")
        if self.origin is None:
            raise ReproError(f"corpus {self.name} cannot be fetched; put {', '.join(self.layout)} (from {self.source}) "
                             f"below {folder or root()}, or set REPRO_DATA to the folder that holds them.")
        fetch(self.name, place, self.origin(), progress=progress)

    def split(self, name: str) -> Split:
        """The split of this name; ReproError if there is none."""
        if not isinstance(name, str) or name not in self.splits:
            raise unknown(f"split of {self.name}", name, self.splits)
        return self.splits[name]

    def _whole(self, split: str) -> Iterator[Document]:
        """The documents after normalization, with nothing left out."""
        for one in self.read.rows(self, split):
            text = self.normalise and self.normalise(one.text, f"corpus {self.name}, {split}, document {one.id}")
            yield one if text is None else replace(one, text=text)

    def _apart(self, split: str) -> Iterator[Document]:
        left_out = {(one.document, one.passage) for one in self.dropped(split)}
        for one in self._whole(split):
            kept = [part for k, part in enumerate(apart.passages(one.text)) if (one.id, k) not in left_out]
            if kept:
                yield replace(one, text="".join(kept))

    def _held_out(self) -> list[tuple["Corpus", str]]:
        """The evaluation texts removed from this corpus: (corpus, split)."""
        return [(one, split) for one in self.apart_from for split in HELD_OUT if split in one.splits]

    def _others(self) -> apart.Runs:
        """The runs and titles of the evaluation texts removed from this corpus."""
        texts, titles = [], []
        for one, split in self._held_out():
            for row in one.read.rows(one, split):
                texts += [(f"{one.name} {split} {row.id}", text) for text in row.texts]
                titles += [row.id] if one.joined else getattr(row, "titles", ())
        return apart.Runs(texts, titles)

    def _count_documents(self, split: str) -> list[tuple[str, int | None, int]]:
        """(what, expected, found) for a split of text."""
        part, documents, words, ends, size = self.splits[split], 0, Counter(), 0, 0
        never = dict.fromkeys(self.never_targets, 0)
        for document in self.stream(split):
            documents += 1
            never = {one: n + document.text.count(one) for one, n in never.items()}
            words[document.id] += len(document.text.split())
            ends += document.text.count("\n")
            size += len(document.content)
        left_out = self.dropped(split)
        found = dict(never)
        for of in {what.partition(" of ")[2] for what in part.counts}:  # documents whose names match, or ("") all
            gone = [one.n_words for one in left_out if fnmatchcase(one.document, of or "*")]
            counts = len(gone), sum(gone), sum(n for name, n in words.items() if fnmatchcase(name, of or "*"))
            names = "passages left out", "words left out", "words"
            found |= {f"{name} of {of}" if of else name: n for name, n in zip(names, counts, strict=True)}
        return [("documents", part.n_documents, documents), ("words", part.n_words, words.total()),
                ("words with line ends", part.n_words_with_ends, words.total() + ends), ("bytes", part.n_bytes, size),
                *((what, part.counts[what], found[what]) for what in part.counts)]

    def _count_examples(self, split: str) -> list[tuple[str, int | None, int]]:
        """(what, expected, found) for a split of examples."""
        part, found, n = self.splits[split], Counter(), 0
        for example in self.examples(split):
            n += 1
            found.update(example.counts(self.labels))
        return [("examples", part.n_examples, n), *((what, part.counts[what], found[what]) for what in part.counts)]


def root() -> Path:
    """The folder of real corpora: $REPRO_DATA, else `data` in the project's root.

    >>> bool(root().name)
    True
    """
    return paths.data() or paths.home() / "data"
