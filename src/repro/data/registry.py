"""The corpora of the study: what each is, where its files lie, how many words it must have.

To add a corpus, add one `Corpus(...)` to the list at the end of this file.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from repro import paths
from repro.data import books, files, synthetic
from repro.data.synthetic import SyntheticBooks
from repro.errors import ReproError, unknown


@dataclass(frozen=True)
class Document:
    """One book or article. `text` is exactly what the corpus holds: joined, the documents of a split are its text."""

    id: str
    text: str

    @property
    def content(self) -> bytes:
        """The text's bytes. Where a text was cut inside a character (enwik8), `text` has a surrogate for each byte."""
        return self.text.encode(errors="surrogateescape")


Documents = list[Document]


@dataclass(frozen=True)
class Split:
    """A part of a corpus, its files, and the counts it must have (None: not known beforehand).

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
        """Whether it is as it must be."""
        return self.expected == self.found


@dataclass(frozen=True)
class Corpus:
    """A text corpus with its splits, always the same text. `source`: hub id, where else it is from, or "embedded"."""

    name: str
    licence: str
    source: str
    splits: dict[str, Split]
    read: Callable[["Corpus", str], Iterator[Document]] = field(repr=False)
    part_of: str | None = None  # what it is a part of, in words for tables; None when it is the whole
    folder: str = ""
    joined: bool = False  # one running text (WikiText): no separator between documents, line ends count as words
    generator: SyntheticBooks | None = None  # what writes an embedded corpus

    def documents(self, split: str, n_books: int | None = None) -> Documents:
        """The documents of `split` in order, the first `n_books` of them if given.

        Raises ReproError for an unknown split, missing or damaged files, or n_books beyond what there is.
        """
        if n_books is not None and n_books < 1:
            raise ReproError(f"n_books={n_books} of {self.name}: at least 1 is needed.")
        found = list(islice(self.stream(split), n_books))
        if n_books is not None and len(found) < n_books:
            raise ReproError(f"n_books={n_books}: {self.name} {split} has only {len(found)} documents.")
        return found

    def stream(self, split: str) -> Iterator[Document]:
        """`documents(split)` one at a time, for corpora that do not fit into memory."""
        self._split(split)
        return self.read(self, split)

    def n_words(self, text: str) -> int:
        """How many words `text` counts as in this corpus' word-level perplexity."""
        return len(text.split()) + (text.count("\n") if self.joined else 0)

    def paths(self, split: str) -> list[Path]:
        """The files `split` is read from ([] for embedded corpora); ReproError when there are none."""
        pattern = self._split(split).files
        if self.generator:
            return []
        here = root() / self.folder
        found = files.shards(here, pattern)
        if not found:
            raise ReproError(f"corpus {self.name} has no {split} files ({pattern}) in {here}: set REPRO_DATA=<folder "
                             f"that holds {self.folder}/>, or run `repro data fetch {self.name}`.")
        return found

    def available(self) -> bool:
        """Whether the files of every split are here."""
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
        """Count documents, words and bytes of every split against what is published or was counted at the source.

        A corpus that was fetched is also compared with the checksums taken then.
        """
        from repro.data.fetch import verify

        fetched, rows = verify(self.name, root() / self.folder), []
        for name in self.splits:
            split = self._split(name)
            documents, words, ends, size = 0, 0, 0, 0
            for document in self.stream(name):
                documents += 1
                words += len(document.text.split())
                ends += document.text.count("\n")
                size += len(document.content)
            counts = [("documents", split.n_documents, documents), ("words", split.n_words, words),
                      ("words with line ends", split.n_words_with_ends, words + ends), ("bytes", split.n_bytes, size)]
            if fetched and not self.joined:  # the hub's copies of the books differ in places (line ends, placeholders)
                counts = counts[:1]
            rows += [CheckRow(name, what, expected, found) for what, expected, found in counts if expected is not None]
        if fetched:
            rows.append(CheckRow("all", "files as they were fetched", len(fetched), sum(fetched.values())))
        return rows

    def fetch(self, folder: Path | str | None = None, progress: bool = True) -> None:
        """Get the corpus from its source into `folder`, which is then what REPRO_DATA names (default: what it names).

        Goes on where it was stopped.

        Raises ReproError when it has no source to be fetched from, the source fails, or the disk refuses.
        """
        from repro.data.fetch import fetch

        fetch(self.name, Path(folder or root()) / self.folder, progress=progress)

    def _split(self, name: str) -> Split:
        if name not in self.splits:
            raise unknown(f"split of {self.name}", name, self.splits)
        return self.splits[name]


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

TITLE = re.compile(r"^ = [^=\n].* = \n(?= \n)", re.MULTILINE)


def articles(text: str) -> list[Document]:
    """WikiText's running text cut before each article's title line; joined again it is `text`.

    What precedes the first title (a blank line) belongs to the first article.
    """
    titles = list(TITLE.finditer(text))
    cuts = [0, *(title.start() for title in titles[1:]), len(text)]
    names = [title[0].strip(" =\n") for title in titles] or ["untitled"]
    return [Document(name, text[start:stop]) for name, start, stop in zip(names, cuts[:-1], cuts[1:], strict=True)]


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


def _books_with_held_out(corpus: Corpus, split: str) -> Iterator[Document]:
    for book in _books(corpus, split):
        if (int(book.id) in books.PRETRAIN_VALIDATION) == (split == "validation"):
            yield book


def _generated(corpus: Corpus, split: str) -> Iterator[Document]:
    for index in range(corpus.splits[split].n_documents):
        yield Document(f"{split}-{index}", corpus.generator.book(split, index))


def _cut_text(corpus: Corpus, split: str) -> Iterator[Document]:
    """One text cut into train, validation and test by the byte counts of the splits."""
    path, = corpus.paths(split)
    content = files.content(path)
    start = 0
    for name, part in corpus.splits.items():
        if name == split:
            text = content[start:start + part.n_bytes].decode(errors="surrogateescape")
            yield Document(f"{corpus.name}-{split}", text)
        start += part.n_bytes


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
            "wikitext-103-full", "CC BY-SA 3.0", "Salesforce/wikitext", joined=True, folder="wikitext-103-full",
            read=_wikitext,
            splits={
                "train": Split("complete", "wikitext-103.train-*-of-*.parquet",
                               n_words=101_425_671, n_words_with_ends=103_227_021),
                "validation": Split("complete", "wiki.valid.raw.xz", 60, 213_886, 217_646, 1_146_846),
                "test": Split("complete", "wiki.test.raw.xz", 60, 241_211, 245_569, 1_290_590),
            }),
        Corpus(
            "pg19", "public domain in the USA", "emozilla/pg19", folder="pg19", read=_books,
            splits={
                "train": Split("complete", "train-*-of-*.parquet", 28_602),
                "validation": Split("complete", "validation.parquet", 50),
                "test": Split("complete", "test.parquet", 100),
            }),
        Corpus(
            "pg19-subset", "public domain in the USA", "emozilla/pg19", folder="pg19-subset", read=_books,
            part_of="PG-19: 384 of 28,602 training books, 26 validation books of our own choice, 33 of 100 test books",
            splits={
                "train": Split("384 training books", "train-*-of-*.parquet", 384, 26_120_407),
                "validation": Split("26 held-out books", "validation*.parquet", 26, 1_789_300),
                "test": Split("33 official test books", "test*.parquet", 33, 2_285_427),
            }),
        Corpus(
            "gutenberg-pretrain", "public domain in the USA", "emozilla/pg19", folder="gutenberg-pretrain",
            part_of="PG-19: 262 of 28,602 training books, none of them in pg19-subset", read=_books_with_held_out,
            splits={
                "train": Split("all but the last 3 books", "train-*-of-*.parquet", 259),
                "validation": Split("the last 3 books", "train-*-of-*.parquet", 3),
            }),
        Corpus(
            "text8-prefix", "CC BY-SA / GFDL", "text8.zip of Matt Mahoney's page", folder="text8", read=_cut_text,
            part_of="text8: the first 6,877,825 of 100,000,000 bytes, cut 90/5/5",
            splits=_cut("text8-first-6877825-bytes.xz", 6_190_043, 343_891)),
        Corpus(
            "enwik8-prefix", "CC BY-SA / GFDL", "enwik8.zip of Matt Mahoney's page", folder="enwik8", read=_cut_text,
            part_of="enwik8: the first 4,154,399 of 100,000,000 bytes, cut 90/5/5",
            splits=_cut("enwik8-first-4154399-bytes.xz", 3_739_399, 207_500)),
        Corpus(
            "text8", "CC BY-SA / GFDL", "text8.zip of Matt Mahoney's page", folder="text8", read=_cut_text,
            splits=_cut("text8", 90_000_000, 5_000_000)),
        Corpus(
            "enwik8", "CC BY-SA / GFDL", "enwik8.zip of Matt Mahoney's page", folder="enwik8", read=_cut_text,
            splits=_cut("enwik8", 90_000_000, 5_000_000)),
        Corpus(
            "synthetic-books", "MIT, written by this package", "embedded", generator=synthetic.BOOKS, read=_generated,
            splits={split: Split("books of known best perplexity", n_documents=n,
                                 n_words=n * synthetic.BOOKS.book_words) for split, n in synthetic.SIZES.items()}),
    ]
    return {corpus.name: corpus for corpus in declared}


def _cut(file: str, train: int, rest: int) -> dict[str, Split]:
    return {"train": Split(f"the first {train:,} bytes", file, 1, n_bytes=train),
            "validation": Split(f"the next {rest:,} bytes", file, 1, n_bytes=rest),
            "test": Split(f"the last {rest:,} bytes", file, 1, n_bytes=rest)}
