"""From its source to the local layout that `Corpus` reads, part by part, so that nothing is lost when it stops.

A corpus of the hub comes in parts. A part is a stretch of the source's rows and becomes one or several files, each
written whole or not at all; `manifest-NAME.json` beside them then gets their sizes and sha256. Whoever starts again
finds the parts that are there and sound, and goes on with the first row that is missing. A corpus that is a zip file
on the web goes on with the first byte that is missing.
"""

import argparse
import hashlib
import io
import json
import logging
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from repro.data import books, files
from repro.errors import ReproError, unknown
from repro.paths import write_atomic

Rows = Callable[[str, int], Iterator[dict]]  # (split, how many rows to leave out) -> the rows of the source from there


@dataclass(frozen=True)
class Part:
    """Rows start .. stop-1 of the source's `split`, and the files they become.

    convert: row -> what to keep of it, None to drop it. write: the kept of all rows -> content of each of `names`.
    """

    split: str
    start: int
    stop: int
    names: tuple[str, ...]
    convert: Callable[[dict], object]
    write: Callable[[list], list[bytes]]


@dataclass(frozen=True)
class Source:
    """Where a corpus comes from on the hub, how many rows each split has there, and its parts."""

    hub: str
    config: str | None
    revision: str | None
    rows: dict[str, int]
    parts: list[Part]

    def stream(self, split: str, skip: int) -> Iterator[dict]:
        """The rows of `split` from row `skip` on, read over the network as they are asked for."""
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise ReproError("fetching needs the package datasets: pip install 'repro[data]'.") from error
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what it retries is told in one line if it fails
        rows = load_dataset(self.hub, self.config, split=split, revision=self.revision, streaming=True)
        yield from rows.skip(skip)


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, the one member of it that is kept, and the md5 that its author publishes for that.

    first: how many bytes of the member are kept, in a compressed file that says so in its name; None: all.
    """

    url: str
    member: str
    md5: str
    first: int | None = None

    @property
    def name(self) -> str:
        """Of the file that is kept."""
        return self.member if self.first is None else f"{self.member}-first-{self.first}-bytes.xz"

    def stream(self, start: int) -> tuple[BinaryIO, int, int]:
        """The bytes of the zip file from byte `start` on if the server can do that, else from 0: an open stream, the
        byte it starts at, and how many bytes the file has."""
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        try:
            answer = urlopen(Request(self.url, headers={"Range": f"bytes={start}-"}), timeout=60)
        except HTTPError as error:
            if error.code != 416:  # what is here is longer than the file: begin again
                raise
            answer = urlopen(self.url, timeout=60)
        start = start if answer.status == 206 else 0
        return answer, start, start + int(answer.headers["Content-Length"])


def fetch(name: str, folder: Path | str, rows: Rows | None = None, progress: bool = True,
          source: Source | Archive | None = None) -> None:
    """Fetch the corpus `name` into `folder`; parts that are there already, with the right checksum, are kept.

    rows: where rows come from (default: the hub). source: default the one of SOURCES.
    Raises ReproError when there is no such source, it fails, it has fewer or more rows than it should, or the disk
    refuses; what was written until then stays and is used next time.
    """
    folder = Path(folder)
    source = source or _source(name, folder)
    if isinstance(source, Archive):
        return _fetch_archive(name, folder, source, progress)
    reader = _Reader(name, source, rows or source.stream)
    manifest = _manifest(name, folder)
    with _bar(name, sum(part.stop - part.start for part in source.parts), progress) as advance:
        for part in source.parts:
            if not all(_sound(folder / file, manifest.get(file)) for file in part.names):
                kept = reader.take(part, advance)
                for file, content in zip(part.names, part.write(kept), strict=True):
                    write_atomic(folder / file, content)
                    manifest[file] = _entry(content)
                _write_manifest(name, folder, source.hub, source.revision, manifest)
            else:
                advance(part.stop - part.start)


def _fetch_archive(name: str, folder: Path, archive: Archive, progress: bool) -> None:
    """Download the zip file beside its place, going on where an earlier try stopped, and keep its member."""
    target, partial = folder / archive.name, folder / f".{archive.member}.zip"
    if _sound(target, _manifest(name, folder).get(archive.name)):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not zipfile.is_zipfile(partial):  # it is one as soon as its last byte is there
            _download(name, archive, partial, progress)
        with zipfile.ZipFile(partial) as opened:
            content = opened.read(archive.member)
    except (OSError, HTTPException) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise ReproError(f"fetching {archive.url} stopped ({reason}). Run `repro data fetch {name}` again: it goes on "
                         "where it was.") from error
    except (zipfile.BadZipFile, zlib.error, KeyError):
        content = b""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != archive.md5:
        partial.unlink(missing_ok=True)
        raise ReproError(f"{archive.url} came damaged, or is not what it was: {archive.member} in it does not have the "
                         f"md5 {archive.md5}. It was deleted; run `repro data fetch {name}` again.")
    # Always compressed alike: the fingerprint of a corpus is that of its files.
    kept = content if archive.first is None else lzma.compress(content[:archive.first],
                                                               preset=9 | lzma.PRESET_EXTREME)
    write_atomic(target, kept)
    _write_manifest(name, folder, archive.url, None, {archive.name: _entry(kept)})
    partial.unlink()


def _download(name: str, archive: Archive, partial: Path, progress: bool) -> None:
    """Append to `partial` what it lacks of the zip file. Raises OSError when the connection ends early."""
    with partial.open("ab") as kept:
        stream, start, total = archive.stream(kept.tell())
        kept.truncate(start)
        with stream, _bar(name, total, progress, "bytes") as advance:
            advance(start)
            while block := stream.read(2**16):
                kept.write(block)
                advance(len(block))
        if kept.tell() != total:
            raise OSError(f"the connection ended after {kept.tell():,} of {total:,} bytes")


def verify(name: str, folder: Path) -> dict[str, bool]:
    """For each file that was fetched for `name`: is it there, with the checksum it had; {} if nothing was fetched."""
    return {file: _sound(folder / file, entry) for file, entry in _manifest(name, folder).items()}


def main(names: Sequence[str], description: str) -> None:
    """The command line of a script in data_scripts: fetch one of `names` (the first unless told otherwise)."""
    from repro.data.registry import corpus

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(names) > 1:
        parser.add_argument("--corpus", choices=names, default=names[0])
    parser.add_argument("folder", nargs="?", metavar="FOLDER")
    told = parser.parse_args()
    try:
        corpus(getattr(told, "corpus", names[0])).fetch(told.folder)
    except ReproError as error:
        sys.exit(f"{parser.prog}: error: {error}")


class _Reader:
    """Reads parts one after the other from one open stream where they touch."""

    def __init__(self, name: str, source: Source, rows: Rows):
        self.name, self.source, self.rows = name, source, rows
        self.place, self.open = (None, 0), iter(())

    def take(self, part: Part, advance: Callable[[int], None]) -> list:
        total = self.source.rows[part.split]
        kept, at = [], part.start
        try:
            if self.place != (part.split, part.start):
                self.open = self.rows(part.split, part.start)
            for row in self.open:
                value = part.convert(row)
                if value is not None:
                    kept.append(value)
                at += 1
                advance(1)
                if at == part.stop:
                    break
            more = at == total and next(self.open, None) is not None
        except ReproError:
            raise
        except Exception as error:  # the network has many ways to fail
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise ReproError(f"reading {self.source.hub} stopped at row {at:,} of {part.split} ({reason}). Run `repro "
                             f"data fetch {self.name}` again: it goes on after the last complete file.") from error
        if at < part.stop or more:
            raise ReproError(f"{self.source.hub} has {'more than' if more else 'only'} {at:,} rows in {part.split} "
                             f"instead of {total:,}: it is not the data this study was written for.")
        self.place = (part.split, part.stop)
        return kept


def _source(name: str, folder: Path) -> Source | Archive:
    if name not in SOURCES:
        from repro.data.registry import corpora

        if name not in [corpus.name for corpus in corpora()]:
            raise unknown("corpus", name, SOURCES)
        raise ReproError(f"corpus {name} cannot be fetched; put its files into {folder}, "
                         "or set REPRO_DATA to the folder that holds them.")
    return SOURCES[name]()


def _manifest(name: str, folder: Path) -> dict[str, dict]:
    path = folder / f"manifest-{name}.json"
    try:
        return json.loads(path.read_text())["files"] if path.exists() else {}
    except (ValueError, KeyError, TypeError) as error:
        raise ReproError(f"{path} cannot be read ({error}). Delete it and run `repro data fetch {name}`.") from error


def _entry(content: bytes) -> dict:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _write_manifest(name: str, folder: Path, source: str, revision: str | None, entries: dict[str, dict]) -> None:
    told = {"corpus": name, "source": source, "revision": revision, "files": entries}
    write_atomic(folder / f"manifest-{name}.json", json.dumps(told, indent=1) + "\n")


def _sound(path: Path, entry: dict | None) -> bool:
    return (entry is not None and path.exists() and path.stat().st_size == entry["bytes"]
            and files.sha256(path) == entry["sha256"])


@contextmanager
def _bar(name: str, total: int, visible: bool, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, on stderr; gives the function that advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not visible) as shown:
        task = shown.add_task(name, total=total)
        yield lambda n: shown.advance(task, n)


# What each corpus is made of.

WIKITEXT2_ROWS = {"train": 36_718, "validation": 3_760, "test": 4_358}
WIKITEXT103_ROWS = WIKITEXT2_ROWS | {"train": 1_801_350}
PG19_ROWS = {"train": 28_602, "validation": 50, "test": 100}


def wikitext2(rows: dict[str, int] = WIKITEXT2_ROWS) -> Source:
    """WikiText-2 raw: the validation and test text of WikiText-103, and 2 % of its training text."""
    return _wikitext("wikitext-2-raw-v1", rows, [(0, rows["train"], "wikitext-2.train.parquet")])


def wikitext103(rows: dict[str, int] = WIKITEXT103_ROWS, per_file: int = 100_000) -> Source:
    """WikiText-103 raw."""
    cuts = _cuts(rows["train"], per_file)
    return _wikitext("wikitext-103-raw-v1", rows, [
        (*cut, f"wikitext-103.train-{k:02}-of-{len(cuts):02}.parquet") for k, cut in enumerate(cuts)])


def _wikitext(config: str, rows: dict[str, int], train: list[tuple[int, int, str]]) -> Source:
    """A row is a line, "" standing for the blank line " \\n" of the original files. train: (start, stop, file)."""
    def line(row: dict) -> str:
        return row["text"] or " \n"

    def xz(lines: list[str]) -> list[bytes]:
        return [lzma.compress("".join(lines).encode())]

    def parquet(lines: list[str]) -> list[bytes]:
        return [_parquet({"text": ["".join(lines)]})]

    parts = [Part(split, 0, rows[split], (file,), line, xz)
             for split, file in (("validation", "wiki.valid.raw.xz"), ("test", "wiki.test.raw.xz"))]
    parts += [Part("train", start, stop, (file,), line, parquet) for start, stop, file in train]
    return Source("Salesforce/wikitext", config, "b08601e04326c79dfdd32d625aee71d232d685c3", rows, parts)


def pg19(rows: dict[str, int] = PG19_ROWS, per_file: int = 500) -> Source:
    """The whole of PG-19: a row is a book."""
    cuts = _cuts(rows["train"], per_file)
    parts = [Part(split, 0, rows[split], (f"{split}.parquet",), _book, _shelf) for split in ("validation", "test")]
    parts += [Part("train", start, stop, (f"train-{k:02}-of-{len(cuts):02}.parquet",), _book, _shelf)
              for k, (start, stop) in enumerate(cuts)]
    return Source("emozilla/pg19", None, None, rows, parts)


def pg19_part(ids: dict[str, tuple[int, ...]], rows: dict[str, int] = PG19_ROWS, per_file: int = 5_000) -> Source:
    """The books of PG-19 with `ids` (split here: ids), wherever they are in the source; a part has one file a split."""
    wanted = {number for numbers in ids.values() for number in numbers}

    def convert(row: dict) -> dict | None:
        book = _book(row)
        return book if book["id"] in wanted else None

    def write(found: list[dict]) -> list[bytes]:
        return [_shelf([book for book in found if book["id"] in numbers])[0] for numbers in ids.values()]

    stretches = [(split, *cut) for split, total in rows.items() for cut in _cuts(total, per_file)]
    parts = [Part(split, start, stop, tuple(f"{name}-{k:02}-of-{len(stretches):02}.parquet" for name in ids),
                  convert, write) for k, (split, start, stop) in enumerate(stretches)]
    return Source("emozilla/pg19", None, None, rows, parts)


TEXT8 = "http://mattmahoney.net/dc/text8.zip", "text8", "3bea1919949baf155f99411df5fada7e"
ENWIK8 = "http://mattmahoney.net/dc/enwik8.zip", "enwik8", "a1fa5ffddb56f4953e226637dabbb36a"
SOURCES: dict[str, Callable[[], Source | Archive]] = {
    "wikitext-103": wikitext2,
    "wikitext-103-full": wikitext103,
    "pg19": pg19,
    "pg19-subset": lambda: pg19_part({"train": books.SUBSET_TRAIN, "validation": books.SUBSET_VALIDATION,
                                      "test": books.SUBSET_TEST}),
    "gutenberg-pretrain": lambda: pg19_part({"train": books.PRETRAIN_TRAIN + books.PRETRAIN_VALIDATION}),
    "text8": lambda: Archive(*TEXT8),
    "text8-prefix": lambda: Archive(*TEXT8, first=6_877_825),
    "enwik8": lambda: Archive(*ENWIK8),
    "enwik8-prefix": lambda: Archive(*ENWIK8, first=4_154_399),
}


def _cuts(total: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def _book(row: dict) -> dict:
    return {"id": int(row["url"].rstrip("/").rsplit("/", 1)[-1]), "title": row["short_book_title"],
            "year": row["publication_date"], "text": row["text"]}


def _shelf(found: list[dict]) -> list[bytes]:
    return [_parquet({key: [book[key] for book in found] for key in ("id", "title", "year", "text")})]


def _parquet(columns: dict[str, list]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    kinds = {"id": pyarrow.int32(), "title": pyarrow.string(), "year": pyarrow.int32(), "text": pyarrow.large_string()}
    buffer = io.BytesIO()
    table = pyarrow.table({key: pyarrow.array(values, kinds[key]) for key, values in columns.items()})
    pyarrow.parquet.write_table(table, buffer, compression="zstd", row_group_size=32)
    return buffer.getvalue()
