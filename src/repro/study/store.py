"""Records of finished runs as JSON files that are believed only when they prove themselves."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro import paths
from repro.errors import ReproError
from repro.study.config import RunConfig, canonical, corpus_named, data_at_hand, identify, run_id, sha256

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """What a run leaves. Everything but `cost` is a deterministic function of config, data and machine."""

    schema: int
    id: str  # 16 hex digits, `repro.study.run_id` of the config
    experiment: str
    scale: str
    model: str  # "baseline", "recurrent", ...
    seed: int
    config: dict[str, Any]
    data: dict[str, Any]  # name, fingerprint, part_of (None for a whole corpus); reads, of other corpora it read
    needs: dict[str, str]  # id -> digest of the records this run built on
    metrics: dict[str, float]
    units: dict[str, str]
    curves: dict[str, list[list[float]]]
    documents: dict[str, dict[str, list]]
    notes: dict[str, Any]
    environment: dict[str, Any]  # `repro.study.runner.environment` of the machine that made it
    digest: str  # sha256 of everything but itself and `cost`
    cost: dict[str, Any]  # wall_seconds, peak_memory_bytes, resumed, created

    @classmethod
    def sealed(cls, **parts: Any) -> "Record":
        """A record with its schema and digest filled in, equal to what reading its file gives back."""
        parts = json.loads(canonical({"schema": SCHEMA, **parts}))
        return cls(**parts, digest=_digest(parts))

    @classmethod
    def read(cls, path: Path) -> "Record":
        """The record in a file. Raises ReproError that says why it cannot be trusted and what to do."""
        try:
            parts = json.loads(path.read_text())
            json.dumps(parts, allow_nan=False)  # a ValueError for nan and inf
            found = parts["schema"]
            if found != SCHEMA:
                raise ReproError(f"{path} has record schema {found}, this version reads {SCHEMA}; "
                                 "delete it and run it again.")
            record = cls(**parts)
            proper_id = identify(record.config, record.data["fingerprint"], record.needs, record.data.get("reads"))
        except ReproError:
            raise
        except OSError as error:
            raise ReproError(f"cannot read {path}: {error.strerror}.") from error
        except (ValueError, TypeError, KeyError) as error:  # not JSON, not text, not an object, keys missing or unknown
            raise ReproError(f"{path} is not a whole record ({type(error).__name__}: {error}); "
                             "restore it from git or delete it and run it again.") from error
        if record.digest != _digest(parts):
            raise ReproError(f"{path} was changed after it was written: its digest does not match its content; "
                             "restore it from git or delete it and run it again.")
        if record.id != proper_id or path.stem not in (record.id, "record"):
            raise ReproError(f"{path} has the id of another config: its config and data have id {proper_id}; "
                             "restore it from git or delete it and run it again.")
        return record

    def write(self, path: Path) -> None:
        """Write the record to `path`, whole or not at all."""
        paths.write_atomic(path, json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False) + "\n")


class Store:
    """The records below a folder, at `<folder>/<scale>/<experiment>/<id>.json`."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)

    @classmethod
    def of(cls, scale: str, results: Path | str | None = None) -> "Store":
        """The store in `results`, by default where records of `scale` belong."""
        return cls(results or paths.results(scale))

    def path(self, record: Record) -> Path:
        """Where `record` belongs."""
        return self.folder / record.scale / record.experiment / f"{record.id}.json"

    def put(self, record: Record) -> Path:
        """Write `record` atomically and return its path."""
        record.write(self.path(record))
        return self.path(record)

    def get(self, config: RunConfig) -> Record | None:
        """The record of `config` on the data of this machine, or None.

        Where the data is not on this machine, the record of the same config is taken as it stands. A `stale` one
        counts as none. Raises ReproError for a record that cannot be trusted, and for two that differ only in their
        data.
        """
        found = self.look(config)
        return None if found and self.stale(found) else found

    def stale(self, record: Record) -> str:
        """Why `record` does not count any more: what it was built on was made again since. "" while it does.

        A record that it was built on may be absent, or be another machine's, whose floats round differently.
        """
        for id, digest in record.needs.items():
            for path in (self.folder / record.scale).glob(f"*/{id}.json"):
                need = Record.read(path)
                if need.digest != digest and _machine(need) == _machine(record):
                    return f"stale: built on another result of {need.experiment} {id} than the one that is here now"
                if self.stale(need):
                    return self.stale(need)
        return ""

    def look(self, config: RunConfig) -> Record | None:
        """`get`, whether the record is stale or not."""
        if data_at_hand(config):
            path = self.folder / config.scale / config.experiment / f"{run_id(config)}.json"
            return Record.read(path) if path.exists() else None
        values = json.loads(canonical(config.model_dump(mode="json")))
        corpus = corpus_named(config.corpus)
        here = corpus.fingerprint() if corpus.available() else None
        same = [record for record in self.find(config.experiment, config.scale)
                if record.config == values and here in (None, record.data["fingerprint"])]
        if len(same) > 1:
            raise ReproError(f"records {' and '.join(r.id for r in same)} of {config.experiment} have one config but "
                             f"different data; delete one, or get '{config.corpus}' with `repro data fetch`.")
        return same[0] if same else None

    def find(self, experiment: str, scale: str) -> list[Record]:
        """All records of an experiment at a scale, sorted by id. Raises ReproError for one that cannot be trusted."""
        return [Record.read(path) for path in sorted((self.folder / scale / experiment).glob("*.json"))]

    def seeds(self, config: RunConfig) -> list[Record]:
        """The records of `config` at every seed that was run, sorted by seed."""
        seeds = sorted({record.seed for record in self.find(config.experiment, config.scale)})
        found = [self.get(config.model_copy(update={"seed": seed})) for seed in seeds]
        return [record for record in found if record is not None]


def _machine(record: Record) -> dict[str, Any]:
    """What a record was made with, but for how many threads and processes shared the work."""
    return {key: value for key, value in record.environment.items() if key not in ("threads", "processes")}


def _digest(parts: dict[str, Any]) -> str:
    return sha256({key: value for key, value in parts.items() if key not in ("digest", "cost")})
