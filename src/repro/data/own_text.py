"""A reader's own text: a folder of .txt files, one document each, as a corpus for `repro replicate`."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.data.apart import RUN, near_copies
from repro.data.base import Corpus, Document, Reader, Split
from repro.data.normalisation import PLAIN
from repro.data.registry import corpora
from repro.errors import ReproError

VERSION = 2  # part of every fingerprint: increase it when the same files give other documents
MOST_BYTES = 200_000_000  # of all files together: about 500 books
SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}  # of each document, if it trains a model


@dataclass(frozen=True)
class OwnText(Corpus):
    """The text in a folder of the reader.

    Its files are read as UTF-8, with plain line ends and, like the study's corpora, with plain quotes and dashes. If it
    trains a model, the first 80% of each document are training text and the rest is held out. If not, there is no
    training split, and validation and test are both the whole text.
    """

    files: tuple[Path, ...] = ()
    trains: bool = False

    def paths(self, split: str) -> list[Path]:
        """The files, the same for every split."""
        self.split(split)
        return list(self.files)

    def fingerprint(self, splits: Sequence[str] | None = None) -> str:
        """sha256 (hex) of the names and contents of the files, and of how they are read and divided."""
        read = f"{super().fingerprint(splits)}\nown text {VERSION} {self.trains} {PLAIN}"
        return hashlib.sha256(read.encode()).hexdigest()


def own_text(folder: Path | str, trains: bool = False) -> OwnText:
    """The corpus of the .txt files in `folder`, one document each, named like the folder. `trains`: whether a model
    learns from it.

    Raises ReproError for a folder that is missing, has no .txt file or too much text, and for a file that cannot be
    read, has no word, or is not UTF-8 in text or name. Copies are refused too, because they are not independent
    documents: two files with the same text, or a file that shares more than half of its runs of 13 words with another
    (`near_copies`).

    >>> (folder / "letters").mkdir()
    >>> (folder / "letters" / "one.txt").write_text("Dear Ada, all is well.")
    22
    >>> letters = own_text(folder / "letters")
    >>> letters.name, [document.id for document in letters.documents("test")]
    ('letters', ['one.txt'])
    """
    folder = Path(folder)
    if not os.path.isdir(folder):  # False also for a name that no file can have
        raise ReproError(f"{folder} is {'a file' if os.path.exists(folder) else 'not here'}; give a folder with .txt "
                         "files, one document each.")
    try:
        here = sorted(path for path in folder.resolve().iterdir() if not path.name.startswith("."))
        files = tuple(path for path in here if path.suffix.lower() == ".txt" and path.is_file())
        n_bytes = sum(path.stat().st_size for path in files)
    except OSError as error:
        raise ReproError(f"cannot read the folder {folder}: {error.strerror}.") from error
    if not files:
        raise ReproError(f"{folder} has no .txt file among its {len(here)} entries; put one document into each file.")
    if n_bytes > MOST_BYTES:
        raise ReproError(f"{folder} has {n_bytes:,} bytes of text; at most {MOST_BYTES:,} are read. Take some files "
                         "out.")
    for path in (folder.resolve(), *files):
        if path.name.encode(errors="replace") != os.fsencode(path.name):
            raise ReproError(f"the name {os.fsencode(path.name)} is not UTF-8; rename it, records contain it.")
    first: dict[bytes, Path] = {}
    texts = []
    for path in files:
        text = read(path)
        if not re.search(r"\w", text):
            raise ReproError(f"{path} has no word; take it out of the folder.")
        same = first.setdefault(hashlib.sha256(" ".join(text.split()).encode()).digest(), path)
        if same != path:
            raise ReproError(f"{path} has the same text as {same.name}; copies are not independent documents. Take one "
                             "of the two out of the folder.")
        texts.append((path.name, text))
    if near := near_copies(texts):
        name, other, share = near[0]
        pairs = len(near) - 1
        more = f" ({pairs} more pair{'s' * (pairs > 1)} like this)" if pairs else ""
        raise ReproError(f"{folder / name} shares {share:.0%} of its runs of {RUN} words with {other}{more}; more than "
                         "50% makes them near copies, which are not independent documents. Take one of the two out of "
                         "the folder.")
    whole = "the whole text of the folder"
    splits = {name: Split(f"{100 * start:.0f} to {100 * stop:.0f}% of each document" if trains else whole)
              for name, (start, stop) in SHARES.items() if trains or name != "train"}
    return OwnText(_name(folder), "the reader's", str(folder.resolve()), splits, READER, files=files, trains=trains,
                   known_bytes=tuple(splits))


def read(path: Path) -> str:
    """The text of a file, with plain line ends, quotes and dashes.

    Raises ReproError for one that cannot be read or is not UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ReproError(f"cannot read {path}: {error.strerror}.") from error
    if b"\0" in content:
        raise ReproError(f"{path} is not UTF-8 text but binary, or UTF-16: byte {content.index(0):,} is zero. Save it "
                         "as UTF-8, or take it out of the folder.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReproError(f"{path} is not UTF-8: byte {error.start:,} is {content[error.start]:#04x}. Save it as UTF-8, "
                         "or take it out of the folder.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(str.maketrans(dict(PLAIN.plain)))


def _rows(corpus: OwnText, split: str) -> Iterator[Document]:
    start, stop = SHARES[split] if corpus.trains else (0.0, 1.0)
    for path in corpus.paths(split):
        text = read(path)
        yield Document(path.name, text[int(start * len(text)):int(stop * len(text))])


READER = Reader(Document, _rows)


def _name(folder: Path) -> str:
    """The name of a folder as a corpus name: letters, digits, underscores, dots and hyphens, not the name of a corpus
    of the study."""
    name = re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip("-.")[:60] or "text"
    return f"{name}-folder" if name in {one.name for one in corpora()} else name
