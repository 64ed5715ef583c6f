"""Records of finished runs: JSON files that are verified by their digest when read."""

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from repro import paths
from repro.errors import ReproError
from repro.study.settings import SCALES, canonical, identify, sha256

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """The result of a run. Everything but `cost` is a deterministic function of config, data and machine.

    A record read from a file is cached and shared; do not modify it.

    >>> from repro.papers.example import EXPERIMENT
    >>> made = run(EXPERIMENT.plan("smoke", {"train_books": 5})[0], folder, progress=False)
    >>> made.experiment, made.units, Record.read(Store(folder).path(made)) == made
    ('counted-words', {'test_word_perplexity': 'per word'}, True)
    """

    schema: int
    id: str  # 16 hex digits, `repro.study.run_id` of the config
    experiment: str
    scale: str
    model: str  # "baseline", "recurrent", ...
    seed: int
    config: dict[str, Any]  # `RunConfig.settings()`
    data: dict[str, Any]  # name, fingerprint, part_of (None for a whole corpus); reads: other corpora that it read
    needs: dict[str, str]  # id -> digest of the records this run built on
    metrics: dict[str, float]
    units: dict[str, str]
    curves: dict[str, list[list[float]]]
    documents: dict[str, dict[str, list]]
    notes: dict[str, Any]
    environment: dict[str, Any]  # `repro.study.runner.environment` on the machine that made it
    digest: str  # sha256 of everything but itself, `cost` and `carried_from`
    cost: dict[str, Any]  # wall_seconds, peak_memory_bytes, resumed, created
    revision: int = 0  # of its experiment; not stored in the file while it is 0
    carried_from: str = ""  # its original id, if the computation of ids has changed since

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def sealed(cls, **parts: Any) -> "Record":
        """A record with its schema and digest filled in, identical to the result of reading its file."""
        parts = json.loads(canonical({"schema": SCHEMA, **parts}))
        return cls(**parts, digest=digest(parts))

    @classmethod
    def read(cls, path: Path) -> "Record":
        """The record in a file; an unchanged file is parsed only once.

        Raises ReproError if it cannot be trusted, saying why and what to do.
        """
        try:
            state = path.stat()
        except OSError as error:
            raise ReproError(f"cannot read {path}: {error.strerror}.") from error
        return _read(path, state.st_mtime_ns, state.st_size, state.st_ino)

    def write(self, path: Path) -> None:
        """Write the record to `path`, completely or not at all."""
        parts = {key: value for key, value in asdict(self).items() if key not in _OPTIONAL or value}
        paths.write_atomic(path, json.dumps(parts, indent=1, sort_keys=True, allow_nan=False) + "\n")


_OPTIONAL = ("revision", "carried_from")


@lru_cache(maxsize=10_000)
def _read(path: Path, *state: int) -> Record:
    try:
        parts = json.loads(path.read_text())
        found = parts["schema"]
        if found > SCHEMA:
            raise ReproError(f"{path} has record schema {found}, but this version of repro reads up to {SCHEMA}. A "
                             "newer version wrote it: update repro; the record stays as it is.")
        if found != SCHEMA:
            raise ReproError(f"{path} has record schema {found}, this version reads {SCHEMA}; "
                             "delete it and run it again.")
        record = Record(**parts)
        own_id = identify(record.config, record.data["fingerprint"], record.needs, record.data.get("reads"),
                          record.revision)
        own_digest = digest(parts)
        _check_names(record)
        for name, kind in (("cost", dict), ("carried_from", str)):  # the digest does not cover them
            if not isinstance(getattr(record, name), kind):
                raise TypeError(f"{name} is {getattr(record, name)!r:.40}")
    except ReproError as error:
        if not isinstance(error.__cause__, ValueError):
            raise
        raise ReproError(f"{path} is not a complete record (ValueError: {error.__cause__}); restore it from git or "
                         "delete it and run it again.") from error  # nan or inf
    except OSError as error:
        raise ReproError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # not JSON, not text, not an object, too deep, keys missing or unknown
        raise ReproError(f"{path} is not a complete record ({type(error).__name__}: {error}); "
                         "restore it from git or delete it and run it again.") from error
    if record.digest != own_digest:
        raise ReproError(f"{path} was changed after it was written: its digest does not match its content; "
                         "restore it from git or delete it and run it again.")
    if record.id != own_id or path.stem not in (record.id, "record"):
        raise ReproError(f"{path} has the id of another config: its config and data have id {own_id}; "
                         "restore it from git or delete it and run it again.")
    return record


def _check_names(record: Record) -> None:
    """Raise ValueError unless the names in a record's path match its config and none of them is a path itself."""
    for name in ("experiment", "scale", "seed"):
        own, other = getattr(record, name), record.config[name]
        if type(own) is not type(other) or own != other:
            raise ValueError(f"{name} is {own!r:.40}, in its config {other!r:.40}")
    if type(record.seed) is not int or record.seed < 0:
        raise ValueError(f"seed is {record.seed!r:.40}; a seed is a whole number of 0 or more")
    if record.scale not in SCALES:
        raise ValueError(f"scale is {record.scale!r:.40}; scales are {', '.join(SCALES)}")
    if not isinstance(record.experiment, str) or not re.fullmatch(r"[\w-][\w.-]*", record.experiment):
        raise ValueError(f"experiment is {record.experiment!r:.40}, which is no name")


def digest(parts: dict[str, Any]) -> str:
    """The sha256 of a record's parts without the digest itself, `cost` and `carried_from`."""
    left_out = {"digest", "cost", "carried_from"} | ({"revision"} if not parts.get("revision") else set())
    return sha256({key: value for key, value in parts.items() if key not in left_out})
