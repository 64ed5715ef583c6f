"""A tiny folder of real-looking corpora, so that readers are tested offline and without the real ones."""

import lzma
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from repro.data import Corpus, Split, registry

ARTICLES = [
    " \n = Robin ( bird ) = \n \n The robin 's nest , ca . 1 @,@ 900 m up , is <unk> . \n \n = = Song = = \n \n"
    " It sings . \n \n \n",
    " = Second = \n \n 日本 and naïve café — don 't <|endoftext|> \n \n = = = Deep = = = \n \n The  end . \n \n",
    " = 3 = \n \n Last \n ",
]
BOOKS = {
    "train-00-of-02": {101: "First book.\n\n  Indented\tline it's 12 o'clock\r\nEND\n", 102: "Naïve — second"},
    "train-01-of-02": {103: "Third book has\nmore words .  \n"},
    "validation": {104: "held out"},
    "test": {860: "x y z"},
}


def put_parquet(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture
def sample():
    """What `data` holds, and a way to put more there."""
    return SimpleNamespace(articles=ARTICLES, books=BOOKS, put_parquet=put_parquet)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder named by REPRO_DATA with a wikitext-103 and a pg19-subset, read as they are; caches go beside it."""
    folder = tmp_path / "data"
    for name in ("wikitext-103", "pg19-subset"):
        one = registry.corpus(name)
        splits = {split: replace(part, counts={}) for split, part in one.splits.items()}
        monkeypatch.setitem(registry._BY_NAME, name, replace(one, normalise=None, never_targets=(), splits=splits))
    monkeypatch.setenv("REPRO_DATA", str(folder))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    wikitext = folder / "wikitext"
    wikitext.mkdir(parents=True)
    (wikitext / "wiki.valid.raw.xz").write_bytes(lzma.compress("".join(ARTICLES).encode()))
    (wikitext / "wiki.test.raw.xz").write_bytes(lzma.compress("".join(ARTICLES[:2]).encode()))
    put_parquet(wikitext / "wikitext-2.train.parquet", {"text": ARTICLES * 3})
    for name, books in BOOKS.items():
        put_parquet(folder / "pg19-subset" / f"{name}.parquet", {"id": list(books), "text": list(books.values())})
    return folder


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Writes the rows of a corpus of examples and gives the corpus, all from one entry."""
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))

    def declared(read, rows, file="rows.parquet", labels=(), splits=None):
        (tmp_path / "toy").mkdir(exist_ok=True)
        if file.endswith(".npz"):
            np.savez(tmp_path / "toy" / file, **rows)
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "toy" / file)
        return Corpus("toy", "CC0", "elsewhere", splits or {"train": Split("all", file)}, read, folder="toy",
                      labels=labels)

    return declared
