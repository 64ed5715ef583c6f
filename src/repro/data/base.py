"""What a corpus is: its splits, the counts they must have, and its files, read, fetched, checked and fingerprinted.

A corpus of text yields `Document`s, a corpus of examples yields rows of one of the kinds in `repro.data.examples`. Both
are declared in `repro.data.registry`.
"""

import hashlib
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
    """One book or article. `text` is exactly what the corpus holds: joined, the documents of a split are its text.

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
        """The text's bytes. Where a text was cut inside a character (enwik8), `text` has a surrogate for each byte."""
        return self.text.encode(errors="surrogateescape")

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is to be read in it."""
        return (self.text,)


Documents = list[Document]
HELD_OUT = ("validation", "test")  # the splits of a corpus that others may have to be apart from


class Generator(Protocol):
    """What writes an embedded corpus."""

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with anything that changes what is written."""

    def lexicon(self) -> list[str]:
        """Every word it can write, each once."""


@dataclass(frozen=True)
class Reader:
    """How a split is read: `rows(corpus, split)` yields rows of the class `row`.

    settings: what a reader of examples is told to take from the files, in words; they enter the fingerprint.

    >>> corpus("synthetic-books").read.row.__name__
    'Document'
    """

    row: type
    rows: Callable[["Corpus", str], Iterator[Any]]
    settings: str = ""


@dataclass(frozen=True)
class Split:
    """A part of a corpus, its files, and the counts it must have (None: not known beforehand).

    files: one pattern, or several where it has files of several kinds.
    rows: those of the files' rows that belong to it, by their column `split`; None: all of them.
    Of text: n_words counts whitespace-separated words, n_words_with_ends adds one for every line end (the denominator
    of WikiText's published perplexities), n_bytes counts UTF-8 bytes.
    Of examples: n_examples counts rows; `counts` what is in them, such as {"hyperpartisan": 192} of labels. Of text
    that is apart from another: `counts` what was left out, "words left out", or "words left out of question-*" for the
    documents whose names match. Of text in which something is never predicted: how often.

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
    """One line of `Corpus.check`: what was counted in `split`, what it must be, what was found.

    >>> CheckRow("test", "words", expected=10, found=9).ok
    False
    """

    split: str
    what: str
    expected: int
    found: int

    @property
    def ok(self) -> bool:
        """Whether it is as it must be."""
        return self.expected == self.found


@dataclass(frozen=True)
class Corpus:
    """A corpus with its splits, always the same. `source`: hub id, where else it is from, or "embedded".

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
    part_of: str | None = None  # what it is a part of, in words for tables; None when it is the whole
    folder: str = ""
    origin: Callable[[], Hub | Archive] | None = field(default=None, repr=False)  # what `fetch` gets; None: nothing can
    joined: bool = False  # one running text (WikiText): no separator between documents, line ends count as words
    labels: tuple[str, ...] = ()  # of examples: what the labels 0, 1, ... of its rows mean
    generator: Generator | None = None  # what writes an embedded corpus
    made_of: tuple["Corpus", ...] = ()  # those whose files it reads, when it has none of its own
    normalise: Normalisation | None = None  # of text: which characters are read as which others
    never_targets: tuple[str, ...] = ()  # of text: what is read but never predicted, such as "<unk>"; without blanks
    apart_from: tuple["Corpus", ...] = ()  # of text: those whose validation and test texts are left out of this one

    @property
    def kind(self) -> str:
        """What its rows are: "text", or the kind of its examples."""
        return self.read.row.kind

    @property
    def is_text(self) -> bool:
        """Whether it holds documents; else it holds examples."""
        return self.read.row is Document

    def of_text(self) -> "Corpus":
        """The corpus itself; ReproError when it holds examples."""
        if not self.is_text:
            raise ReproError(f"{self.name} is no running text but examples ({self.kind}): read it with "
                             f"corpus('{self.name}').examples(SPLIT), SPLIT being one of {', '.join(self.splits)}.")
        return self

    def documents(self, split: str, n_books: int | None = None) -> Documents:
        """The documents of `split` in order, the first `n_books` of them if given.

        Raises ReproError for an unknown split, missing or damaged files, n_books beyond what there is, and a corpus of
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
        """The passages that are left out of `split` because a text that this corpus is apart from has them too.

        Finding them takes a minute or two for a hundred megabytes; they are kept in the work folder.
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
            raise ReproError(f"{self.name} is text and has no examples: read it with "
                             f"corpus('{self.name}').documents('{split}').")
        return self._some(split, self.read.rows(self, split))

    def _some(self, split: str, rows: Iterator[Any]) -> Iterator[Any]:
        """`rows`; ReproError when there is none: a file that was cut short, or is of another corpus."""
        found = False
        for row in rows:
            found = True
            yield row
        if not found:
            raise ReproError(f"corpus {self.name}, {split}, has no row in its files; {self.way}.")

    def texts(self, split: str) -> Iterator[str]:
        """What there is to be read in `split`, one text at a time, of documents as of examples.

        Raises ReproError for an unknown split, missing or damaged files, and rows that hold no text.
        """
        if not hasattr(self.read.row, "texts"):
            raise ReproError(f"{self.name} has no text that a tokeniser could be trained on: it holds {self.kind}.")
        for row in self.stream(split) if self.is_text else self.examples(split):
            yield from row.texts

    def n_words(self, text: str) -> int:
        """How many words `text` counts as in this corpus' word-level perplexity: those that are predicted."""
        ends = check_text(text, "the text").count("\n") * self.joined
        return len(text.split()) + ends - sum(map(text.count, self.never_targets))

    def paths(self, split: str) -> list[Path]:
        """The files `split` is read from ([] for embedded corpora); ReproError when there are none."""
        patterns = self.split(split).files
        if self.generator:
            return []
        here, every = root() / self.folder, []
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            found = files.shards(here, pattern)
            if not found:
                fetched = (f", or run `repro data fetch {self.name}`" if self.origin else
                           f"; nothing fetches it, it is from {self.source}")
                raise ReproError(f"corpus {self.name} has no {split} files ({pattern}) in {here}: set REPRO_DATA="
                                 f"<folder that holds {Path(self.folder, pattern)}>{fetched}.")
            every += found
        return every

    @property
    def layout(self) -> list[str]:
        """Its files below the folder that REPRO_DATA names, as patterns; [] where it has none of its own."""
        every = [pattern for split in self.splits.values()
                 for pattern in ((split.files,) if isinstance(split.files, str) else split.files)]
        return [str(Path(self.folder, pattern)) for pattern in dict.fromkeys(filter(None, every))]

    @property
    def way(self) -> str:
        """What to do where it is not here, or not whole."""
        if self.made_of:
            parts = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from))
            return f"it is made of {', '.join(parts)}, which have to be here"
        if self.origin:
            return f"get it with: repro data fetch {self.name}"
        return f"nothing fetches it: put {', '.join(self.layout)}, from {self.source}, below the folder of REPRO_DATA"

    def available(self) -> bool:
        """Whether the files of every split are here."""
        try:
            return (all(self.paths(split) is not None for split in self.splits)
                    and all(one.paths(split) is not None for one, split in self._held_out()))
        except ReproError:
            return False

    def fingerprint(self, splits: Sequence[str] | None = None) -> str:
        """sha256 (hex) over the names and contents of the files behind `splits` (default: all of them).

        Of an embedded corpus: over the generator's parameters, word lists and output, and the number of its documents.
        Of examples also over what is taken from the files, and over the names of the labels. Of text also over its
        normalisation, over what in it is never predicted, and over the files of the texts that it is apart from and
        what is taken from those.
        """
        digest = hashlib.sha256(self.name.encode())
        for split in splits or self.splits:
            part = self.split(split)
            if self.generator:
                n = part.n_documents if self.is_text else part.n_examples
                digest.update(f"\n{split} {n} {self.generator.fingerprint()}".encode())
            if not self.is_text:
                digest.update(f"\n{split} {part.rows} {self.kind} {self.read.settings} {self.labels}".encode())
            for path in self.paths(split):
                digest.update(f"\n{split} {path.name} {files.sha256(path)}".encode())
        if self.normalise:
            digest.update(f"\nnormalise {self.normalise}".encode())
        if self.never_targets:
            digest.update(f"\nnever targets {self.never_targets}".encode())
        for other, split in self._held_out():
            told = f"\napart {apart.VERSION} {other.name} {split} {other.splits[split].rows} {other.read.settings}"
            for path in other.paths(split):
                digest.update(f"{told} {path.name} {files.sha256(path)}".encode())
        return digest.hexdigest()

    def check(self) -> list[CheckRow]:
        """Count what is in every split against what is published or was counted at the source.

        Of text documents, words and bytes; of examples the rows and what their `counts` tell, such as labels. A corpus
        that was fetched is also compared with the checksums taken then.
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
        """Get the corpus from its source into `folder`, which is then what REPRO_DATA names (default: what it names).

        Goes on where it was stopped.

        Raises ReproError when it is embedded, nothing says how to fetch it, the source fails, or the disk refuses.
        """
        place = Path(folder or root()) / self.folder
        if self.generator:
            raise ReproError(f"{self.name} is embedded: it is generated, there is nothing to fetch.")
        if self.made_of:
            needed = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from) if one.origin)
            others = dict.fromkeys(one.name for one in (*self.made_of, *self.apart_from) if not one.origin)
            rest = (f"; nothing fetches {', '.join(others)}, whose files must be put below {folder or root()} (`repro "
                    "data list` tells where they are from)" if others else "")
            raise ReproError(f"corpus {self.name} is made of others: run `repro data fetch NAME` for each of "
                             f"{', '.join(needed)}{rest}.")
        if self.origin is None:
            raise ReproError(f"corpus {self.name} cannot be fetched; put {', '.join(self.layout)} (from {self.source}) "
                             f"below {folder or root()}, or set REPRO_DATA to the folder that holds them.")
        fetch(self.name, place, self.origin(), progress=progress)

    def split(self, name: str) -> Split:
        """What is known of a split; ReproError if there is none of that name."""
        if not isinstance(name, str) or name not in self.splits:
            raise unknown(f"split of {self.name}", name, self.splits)
        return self.splits[name]

    def _whole(self, split: str) -> Iterator[Document]:
        """The documents as they are read, normalised, nothing left out."""
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
        """What this corpus is apart from: (corpus, split)."""
        return [(one, split) for one in self.apart_from for split in HELD_OUT if split in one.splits]

    def _others(self) -> apart.Runs:
        """The runs and the titles of the texts that this corpus is apart from, as their files hold them."""
        texts, titles = [], []
        for one, split in self._held_out():
            for row in one.read.rows(one, split):
                texts += [(f"{one.name} {split} {row.id}", text) for text in row.texts]
                titles += [row.id] if one.joined else getattr(row, "titles", ())
        return apart.Runs(texts, titles)

    def _count_documents(self, split: str) -> list[tuple[str, int | None, int]]:
        """(what, expected, found) of a split of text."""
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
            told = len(gone), sum(gone), sum(n for name, n in words.items() if fnmatchcase(name, of or "*"))
            names = "passages left out", "words left out", "words"
            found |= {f"{name} of {of}" if of else name: n for name, n in zip(names, told, strict=True)}
        return [("documents", part.n_documents, documents), ("words", part.n_words, words.total()),
                ("words with line ends", part.n_words_with_ends, words.total() + ends), ("bytes", part.n_bytes, size),
                *((what, part.counts[what], found[what]) for what in part.counts)]

    def _count_examples(self, split: str) -> list[tuple[str, int | None, int]]:
        """(what, expected, found) of a split of examples."""
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
