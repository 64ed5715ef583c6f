"""The corpora of the study: what each is, where its files lie, how many words it must have.

To add a corpus, add one `Corpus(...)` to the list at the end of this file.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro import paths
from repro.data import files, synthetic
from repro.data.synthetic import SyntheticBooks
from repro.errors import ReproError, unknown


@dataclass(frozen=True)
class Document:
    """One book or article. `text` is exactly what the corpus holds: joined, the documents of a split are its text."""

    id: str
    text: str


Documents = list[Document]


@dataclass(frozen=True)
class Split:
    """A part of a corpus and the counts it must have (None: not known beforehand).

    n_words counts whitespace-separated words, n_words_with_ends adds one for every line end (the denominator
    of WikiText's published perplexities), n_bytes counts UTF-8 bytes.
    """

    description: str
    files: str = ""
    n_documents: int | None = None
    n_words: int | None = None
    n_words_with_ends: int | None = None
    n_bytes: int | None = None


@dataclass(frozen=True)
class CheckRow:
    """One line of `Corpus.check`: what was counted in `split`, what it must be, what was found."""

    split: str
    what: str
    expected: int
    found: int

    @property
    def ok(self) -> bool:
        return self.expected == self.found


@dataclass(frozen=True)
class Corpus:
    """A text corpus with its splits. `source`: hub id or "embedded". `part_of`: what it is a part of, None if whole."""

    name: str
    licence: str
    source: str
    part_of: str | None
    splits: dict[str, Split]
    read: Callable[["Corpus", str], Iterator[Document]] = field(repr=False)
    folder: str = ""
    joined: bool = False  # one running text (WikiText): no separator between documents, line ends count as words
    generator: SyntheticBooks | None = None  # what writes an embedded corpus

    def documents(self, split: str, n_books: int | None = None) -> Documents:
        """The documents of `split` in order, the first `n_books` of them if given.

        Raises ReproError for an unknown split, missing or damaged files, or n_books beyond what there is.
        """
        self._known(split)
        if n_books is not None and n_books < 1:
            raise ReproError(f"n_books={n_books} of {self.name}: at least 1 is needed.")
        found = []
        for document in self.read(self, split):
            found.append(document)
            if len(found) == n_books:
                break
        if n_books is not None and len(found) < n_books:
            raise ReproError(f"n_books={n_books}: {self.name} {split} has only {len(found)} documents.")
        return found

    def n_words(self, text: str) -> int:
        """How many words `text` counts as in this corpus' word-level perplexity."""
        return len(text.split()) + (text.count("\n") if self.joined else 0)

    def paths(self, split: str) -> list[Path]:
        """The files `split` is read from ([] for embedded corpora); ReproError when there are none."""
        self._known(split)
        if self.generator:
            return []
        here = root() / self.folder
        found = files.shards(here, self.splits[split].files)
        if not found:
            raise ReproError(f"corpus {self.name} has no {split} files ({self.splits[split].files}) in {here}: "
                             f"set REPRO_DATA to the folder that holds {self.folder}/, "
                             f"or run `repro data fetch {self.name}`.")
        return found

    def available(self) -> bool:
        """Whether every split can be read here."""
        try:
            return all(self.paths(split) is not None for split in self.splits)
        except ReproError:
            return False

    def fingerprint(self, splits: Sequence[str] | None = None) -> str:
        """sha256 (hex) over the names and contents of the files behind `splits` (default: all of them).

        Of an embedded corpus: over the generator's parameters, word lists and output, and the number of books.
        """
        digest = hashlib.sha256(self.name.encode())
        for split in splits or self.splits:
            if self.generator:
                told = f"\n{split} {self.splits[split].n_documents} {self.generator.fingerprint()}"
                digest.update(told.encode())
            for path in self.paths(split):
                digest.update(f"\n{split} {path.name} {files.sha256(path)}".encode())
        return digest.hexdigest()

    def check(self) -> list[CheckRow]:
        """Count documents, words and bytes of every split against what is published or was counted at the source."""
        rows = []
        for name, split in self.splits.items():
            documents = self.documents(name)
            words = sum(len(document.text.split()) for document in documents)
            ends = sum(document.text.count("\n") for document in documents)
            n_bytes = sum(len(document.text.encode()) for document in documents)
            counts = [("documents", split.n_documents, len(documents)), ("words", split.n_words, words),
                      ("words with line ends", split.n_words_with_ends, words + ends),
                      ("bytes", split.n_bytes, n_bytes)]
            rows += [CheckRow(name, what, expected, found) for what, expected, found in counts if expected is not None]
        return rows

    def _known(self, split: str) -> None:
        if split not in self.splits:
            raise unknown(f"split of {self.name}", split, self.splits)


def root() -> Path:
    """The folder of real corpora: $REPRO_DATA, else `data` in the project's root."""
    return paths.data() or paths.home() / "data"


def corpus(name: str) -> Corpus:
    """The corpus called `name`; ReproError with the nearest name if there is none."""
    if name not in _corpora():
        raise unknown("corpus", name, _corpora())
    return _corpora()[name]


def corpora() -> list[Corpus]:
    """All corpora of the study."""
    return list(_corpora().values())


# How each kind of corpus is read.

ARTICLE = re.compile(r"^ = [^=\n].* = \n(?= \n)", re.MULTILINE)


def articles(text: str) -> list[Document]:
    """WikiText's running text cut before each article's title line; joined again it is `text`.

    What precedes the first title (a blank line) belongs to the first article.
    """
    starts = [match.start() for match in ARTICLE.finditer(text)]
    cuts = [0, *starts[1:], len(text)]
    return [Document(text[start:stop].strip(" \n").split("\n")[0].strip(" ="), text[start:stop])
            for start, stop in zip(cuts, cuts[1:], strict=False)]


def _wikitext(corpus: Corpus, split: str) -> Iterator[Document]:
    parts = []
    for path in corpus.paths(split):
        if path.suffix == ".xz":
            parts.append(files.xz_text(path))
        else:
            parts += [row["text"] for row in files.parquet_rows(path, ["text"])]
    yield from articles("".join(parts))


def _books(corpus: Corpus, split: str) -> Iterator[Document]:
    for path in corpus.paths(split):
        for row in files.parquet_rows(path, ["id", "text"]):
            yield Document(str(row["id"]), row["text"])


def _generated(corpus: Corpus, split: str) -> Iterator[Document]:
    for index in range(corpus.splits[split].n_documents):
        yield Document(f"{split}-{index}", corpus.generator.book(split, index))


HELD_OUT = 3  # books of gutenberg-pretrain kept for validation


def _books_with_held_out(corpus: Corpus, split: str) -> Iterator[Document]:
    books = list(_books(corpus, split))
    yield from books[-HELD_OUT:] if split == "validation" else books[:-HELD_OUT]


@functools.cache
def _corpora() -> dict[str, Corpus]:
    declared = [
        Corpus(
            "wikitext-103", "CC BY-SA 3.0", "Salesforce/wikitext", joined=True, folder="wikitext", read=_wikitext,
            part_of="WikiText-103: its training text is WikiText-2's (2 %), validation and test are complete",
            splits={
                "train": Split("WikiText-2's training text", "wikitext-2.train.parquet",
                               n_words=2_051_910, n_words_with_ends=2_088_628),
                "validation": Split("complete", "wiki.valid.raw.xz", 60, 213_886, 217_646, 1_146_846),
                "test": Split("complete", "wiki.test.raw.xz", 60, 241_211, 245_569, 1_290_590),
            }),
        Corpus(
            "pg19-subset", "public domain in the USA", "emozilla/pg19", folder="pg19-subset", read=_books,
            part_of="PG-19: 384 of 28,602 training books, 26 validation books of our own choice, 33 of 100 test books",
            splits={
                "train": Split("384 training books", "train-*-of-*.parquet", 384, 26_120_407),
                "validation": Split("26 held-out books", "validation.parquet", 26, 1_789_300),
                "test": Split("33 official test books", "test.parquet", 33, 2_285_427),
            }),
        Corpus(
            "gutenberg-pretrain", "public domain in the USA", "emozilla/pg19", folder="gutenberg-pretrain",
            part_of="PG-19: 262 of 28,602 training books, none of them in pg19-subset", read=_books_with_held_out,
            splits={
                "train": Split("all but the last 3 books", "train-*-of-*.parquet", 259),
                "validation": Split("the last 3 books", "train-*-of-*.parquet", 3),
            }),
        Corpus(
            "synthetic-books", "MIT, written by this package", "embedded", None, generator=synthetic.BOOKS,
            read=_generated,
            splits={split: Split("books of known best perplexity", n_documents=n,
                                 n_words=n * synthetic.BOOKS.book_words) for split, n in synthetic.SIZES.items()}),
    ]
    return {corpus.name: corpus for corpus in declared}
