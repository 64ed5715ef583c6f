"""Where files are kept on disk, and the only way to write them: completely or not at all."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from repro.errors import ReproError


def home() -> Path:
    """The project's root: $REPRO_HOME, else the checkout this package is installed from, else the current folder."""
    if "REPRO_HOME" in os.environ:
        return Path(os.environ["REPRO_HOME"]).resolve()
    return _checkout(__file__) or Path.cwd()


@cache
def _checkout(file: str) -> Path | None:
    """The checkout that holds this file of the package; None if it is installed from a wheel."""
    folder = Path(file).resolve().parents[2]
    return folder if (folder / "pyproject.toml").exists() else None


def results(scale: str) -> Path:
    """Where records of `scale` are kept. Smoke records can be rebuilt in minutes and are never committed."""
    return home() / "build" / "results" if scale == "smoke" else home() / "results"


def work() -> Path:
    """Checkpoints, tokenisers and tokenised corpora: large, rebuildable, ignored by git. $REPRO_WORK moves it."""
    return Path(os.environ.get("REPRO_WORK", home() / "build" / "work")).resolve()


def data() -> Path | None:
    """The folder of real corpora named by $REPRO_DATA, or None when it is not set."""
    value = os.environ.get("REPRO_DATA")
    return Path(value).resolve() if value else None


def write_atomic(path: Path | str, content: bytes | str) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    Also deletes unfinished versions of the file that a killed process left. Raises ReproError if the disk refuses
    (full, read-only); the old file is then untouched.
    """
    path = Path(path)
    content = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent) as alone:
            if alone:  # so no process is writing these
                for left in os.listdir(path.parent):
                    if re.fullmatch(rf"\.{re.escape(path.name)}\.\w+\.unfinished", left):
                        (path.parent / left).unlink(missing_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".unfinished")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ReproError(f"cannot write {path}: {error.strerror}. Free some space or choose another folder; "
                         "what was there before is untouched.") from error


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Inside the `with` block, no other process holds this folder's lock. Yields False if the disk has no locks."""
    handle, alone = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)  # released when the process ends
            alone = True
        yield alone
    finally:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # after `close` alone, a process forked meanwhile would keep it
        os.close(handle)
