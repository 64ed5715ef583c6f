"""Download a corpus into the local layout that `Corpus` reads, part by part, so that interruptions lose nothing.

A corpus from the hub comes in parts. A part is a range of the source's rows and becomes one or several files, each
written completely or not at all; then their sizes and sha256 go into `manifest-NAME.json` next to them. A restart keeps
valid parts and continues with the first missing row. For a zip file on the web, it continues with the first missing
byte.
"""

import hashlib
import json
import logging
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from repro.data import files
from repro.errors import ReproError
from repro.paths import write_atomic

Rows = Callable[[str, int], Iterator[dict]]  # (split, rows to skip) -> the remaining rows of the source


@dataclass(frozen=True)
class Part:
    """Rows start .. stop-1 of the source's `split`, and the files they become.

    convert: row -> its converted form, or None to drop it. write: all converted rows -> the content of each of `names`.
    """

    split: str
    start: int
    stop: int
    names: tuple[str, ...]
    convert: Callable[[dict], object]
    write: Callable[[list], list[bytes]]


@dataclass(frozen=True)
class Hub:
    """A data set on the hub: its name, the number of rows of each split, and its parts."""

    name: str
    config: str | None
    revision: str | None
    rows: dict[str, int]
    parts: list[Part]

    def stream(self, split: str, skip: int) -> Iterator[dict]:
        """The rows of `split` from row `skip` on, streamed over the network."""
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise ReproError("fetching needs the package datasets. Run: pip install 'repro[data]'.") from error
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # hide its retry messages
        rows = load_dataset(self.name, self.config, split=split, revision=self.revision, streaming=True)
        yield from rows.skip(skip)


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, the member to keep, and the md5 that its author publishes for it.

    first: the number of bytes to keep, in a compressed file whose name says so; None: all.
    """

    url: str
    member: str
    md5: str
    first: int | None = None

    @property
    def name(self) -> str:
        """The name of the stored file."""
        return self.member if self.first is None else f"{self.member}-first-{self.first}-bytes.xz"

    def stream(self, start: int) -> tuple[BinaryIO, int, int]:
        """The bytes of the zip file from byte `start` on if the server can do that, else from 0: an open stream, the
        byte it starts at, and how many bytes the file has."""
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        try:
            answer = urlopen(Request(self.url, headers={"Range": f"bytes={start}-"}), timeout=60)
        except HTTPError as error:
            if error.code != 416:  # the partial file is too long: start again
                raise
            answer = urlopen(self.url, timeout=60)
        start = start if answer.status == 206 else 0
        return answer, start, start + int(answer.headers["Content-Length"])


def fetch(name: str, folder: Path | str, source: Hub | Archive, rows: Rows | None = None,
          progress: bool = True) -> None:
    """Fetch the corpus `name` into `folder`; existing parts with the right checksum are kept.

    rows: where rows come from (default: the hub).
    Raises ReproError if the source fails or has an unexpected number of rows, or if the disk is full; parts written so
    far are kept and used next time.
    """
    folder = Path(folder)
    if isinstance(source, Archive):
        return _fetch_archive(name, folder, source, progress)
    reader = _Reader(name, source, rows or source.stream)
    manifest = _manifest(name, folder)
    with progress_bar(name, sum(part.stop - part.start for part in source.parts), progress) as advance:
        for part in source.parts:
            if not all(_sound(folder / file, manifest.get(file)) for file in part.names):
                kept = reader.take(part, advance)
                for file, content in zip(part.names, part.write(kept), strict=True):
                    write_atomic(folder / file, content)
                    manifest[file] = _entry(content)
                _write_manifest(name, folder, source.name, source.revision, manifest)
            else:
                advance(part.stop - part.start)


def _fetch_archive(name: str, folder: Path, archive: Archive, progress: bool) -> None:
    """Download the zip file, resuming an earlier attempt, and keep its member."""
    target, partial = folder / archive.name, folder / f".{archive.member}.zip"
    if _sound(target, _manifest(name, folder).get(archive.name)):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not zipfile.is_zipfile(partial):  # it is a valid zip file once its last byte is there
            _download(name, archive, partial, progress)
        with zipfile.ZipFile(partial) as opened:
            content = opened.read(archive.member)
    except (OSError, HTTPException) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise ReproError(f"fetching {archive.url} stopped ({reason}). Run `repro data fetch {name}` again: it "
                         "resumes.") from error
    except (zipfile.BadZipFile, zlib.error, KeyError):
        content = b""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != archive.md5:
        partial.unlink(missing_ok=True)
        raise ReproError(f"{archive.url} is damaged or has changed: {archive.member} in it does not have the "
                         f"md5 {archive.md5}. It was deleted; run `repro data fetch {name}` again.")
    # Always use the same compression, because the fingerprint covers the files.
    kept = content if archive.first is None else lzma.compress(content[:archive.first],
                                                               preset=9 | lzma.PRESET_EXTREME)
    write_atomic(target, kept)
    _write_manifest(name, folder, archive.url, None, {archive.name: _entry(kept)})
    partial.unlink()


def _download(name: str, archive: Archive, partial: Path, progress: bool) -> None:
    """Append the missing bytes of the zip file to `partial`. Raises OSError if the connection ends early."""
    with partial.open("ab") as kept:
        stream, start, total = archive.stream(kept.tell())
        kept.truncate(start)
        with stream, progress_bar(name, total, progress, "bytes") as advance:
            advance(start)
            while block := stream.read(2**16):
                kept.write(block)
                advance(len(block))
        if kept.tell() != total:
            raise OSError(f"the connection ended after {kept.tell():,} of {total:,} bytes")


def verify(name: str, folder: Path) -> dict[str, bool]:
    """For each file that was fetched for `name`: whether it is there with its original checksum; {} if nothing was
    fetched."""
    return {file: _sound(folder / file, entry) for file, entry in _manifest(name, folder).items()}


class _Reader:
    """Reads parts in order, from one open stream if they are adjacent."""

    def __init__(self, name: str, source: Hub, rows: Rows):
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
        except Exception as error:  # networks fail in many ways
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise ReproError(f"reading {self.source.name} stopped at row {at:,} of {part.split} ({reason}). Run `repro "
                             f"data fetch {self.name}` again: it goes on after the last complete file.") from error
        if at < part.stop or more:
            raise ReproError(f"{self.source.name} has {'more than' if more else 'only'} {at:,} rows in {part.split} "
                             f"instead of {total:,}: it is not the data this study was written for.")
        self.place = (part.split, part.stop)
        return kept


def _manifest(name: str, folder: Path) -> dict[str, dict]:
    path = folder / f"manifest-{name}.json"
    try:
        return json.loads(path.read_text())["files"] if path.exists() else {}
    except (ValueError, KeyError, TypeError) as error:
        raise ReproError(f"{path} cannot be read ({error}). Delete it and run `repro data fetch {name}`.") from error


def _entry(content: bytes) -> dict:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _write_manifest(name: str, folder: Path, source: str, revision: str | None, entries: dict[str, dict]) -> None:
    manifest = {"corpus": name, "source": source, "revision": revision, "files": entries}
    write_atomic(folder / f"manifest-{name}.json", json.dumps(manifest, indent=1) + "\n")


def _sound(path: Path, entry: dict | None) -> bool:
    return (entry is not None and path.exists() and path.stat().st_size == entry["bytes"]
            and files.sha256(path) == entry["sha256"])


@contextmanager
def progress_bar(name: str, total: int, visible: bool, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left, on stderr; gives the function that advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not visible) as shown:
        task = shown.add_task(name, total=total)
        yield lambda n: shown.advance(task, n)
