"""Read the files of a corpus; missing or damaged files raise a one-line error."""

import functools
import hashlib
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

from repro.errors import ReproError

MOST_ROWS = 100_000_000  # of a table of a corpus; the largest has 41 million
MOST_BYTES = 300_000_000  # of a compressed text; the largest has 100 million


def shards(folder: Path, pattern: str) -> list[Path]:
    """The files of `folder` matching `pattern`, in order; [] when there are none.

    Names like `train-01-of-03.parquet` give the number of files: ReproError unless each exists exactly once.
    """
    found = sorted(folder.glob(pattern))
    totals = [int(counted[1]) for path in found if (counted := re.search(r"-of-(\d+)\.", path.name))]
    if totals and totals != [len(found)] * len(found):
        raise ReproError(f"{folder} has {len(found)} files {pattern} instead of {totals[0]}: a file is missing, or "
                         "a download is incomplete. Fetch the corpus again; existing files are kept.")
    return found


def parquet_rows(path: Path, columns: list[str]) -> Iterator[dict]:
    """The rows of a parquet file as dicts of `columns`, a few at a time; ReproError when it is damaged."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise ReproError(f"{path} has {file.metadata.num_rows:,} rows; a file of a corpus has at most "
                                 f"{MOST_ROWS:,}. Delete it and fetch the corpus again.")
            lacking = sorted(set(columns) - set(file.schema_arrow.names))
            if lacking:
                raise ReproError(f"{path} has no column {', '.join(lacking)}; it is not a file of this corpus.")
            for batch in file.iter_batches(batch_size=32, columns=columns):
                yield from batch.to_pylist()
    except ReproError:
        raise
    except Exception as error:  # pyarrow raises many types for damaged bytes
        raise _damaged(path, error) from error


def text_rows(path: Path) -> Iterator[tuple[str, str]]:
    """The rows of a parquet file of books as (id, text); ReproError when it is damaged, and for one without a text."""
    for number, row in enumerate(parquet_rows(path, ["id", "text"])):
        if row["id"] is None or not isinstance(row["text"], str):
            raise ReproError(f"{path}, row {number}: id is {row['id']!r:.40} and text {row['text']!r:.40}; a book has "
                             "an id and a text. Fetch the corpus again.")
        yield str(row["id"]), row["text"]


def arrays(path: Path, names: list[str]) -> Iterator[dict]:
    """The rows of an .npz file as dicts of `names`: row i of each array; ReproError when it is damaged."""
    import numpy as np

    try:
        with np.load(path) as file:
            lacking = sorted(set(names) - set(file.files))
            if lacking:
                raise ReproError(f"{path} has no array {', '.join(lacking)}; it is not a file of this corpus.")
            found = {name: file[name] for name in names}
    except ReproError:
        raise
    except Exception as error:  # numpy and zipfile raise many types for damaged bytes
        raise _damaged(path, error) from error
    if single := [name for name, array in found.items() if not array.ndim]:
        raise ReproError(f"{path} has a single number as {single[0]}, and no rows; it is not a file of this corpus.")
    lengths = {name: len(array) for name, array in found.items()}
    if len(set(lengths.values())) > 1:
        raise ReproError(f"{path} has arrays of different lengths ({lengths}); it is not a file of this corpus.")
    for values in zip(*found.values(), strict=True):
        yield dict(zip(found, values, strict=True))


def table(path: Path, columns: list[str]) -> Iterator[dict]:
    """The rows of an .npz or a parquet file as dicts of `columns`, as `arrays` and `parquet_rows` give them."""
    return arrays(path, columns) if path.suffix == ".npz" else parquet_rows(path, columns)


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed if it is an .xz file; ReproError if it is damaged."""
    try:
        found = path.read_bytes()
        if not found:
            raise EOFError("it is empty")
        return _decompressed(found) if path.suffix == ".xz" else found
    except (lzma.LZMAError, EOFError, OSError) as error:
        raise _damaged(path, error) from error


def _decompressed(found: bytes) -> bytes:
    """The content of an .xz file, of at most MOST_BYTES."""
    parts, size = [], 0
    while found:  # a file may have several streams
        stream = lzma.LZMADecompressor()
        parts.append(stream.decompress(found, MOST_BYTES + 1 - size))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise EOFError(f"it has more than {MOST_BYTES:,} bytes")
        if not stream.eof:
            raise EOFError("it ends inside a stream")
        found = stream.unused_data
    return b"".join(parts)


def xz_text(path: Path) -> str:
    """The UTF-8 text of an .xz file; ReproError when it is damaged."""
    try:
        return content(path).decode()
    except UnicodeDecodeError as error:
        raise _damaged(path, error) from error


def sha256(path: Path) -> str:
    """sha256 of a file's bytes in hex, read once per process as long as its size and time stay the same."""
    state = path.stat()
    return _sha256(path, state.st_size, state.st_mtime_ns)


@functools.cache
def _sha256(path: Path, size: int, mtime: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, error: Exception) -> ReproError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ReproError(f"{path} is damaged or truncated ({reason[:120]}). Delete it and fetch the corpus again.")
