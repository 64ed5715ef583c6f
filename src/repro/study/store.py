"""The records in a folder, and how to find those of a config."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import paths
from repro.errors import ReproError
from repro.study import weights
from repro.study.cache import cached
from repro.study.experiment import corpus_named, experiment
from repro.study.record import Record
from repro.study.runs import Run
from repro.study.settings import RunConfig, canonical


@dataclass(frozen=True)
class Store:
    """The records in a folder, at `<folder>/<scale>/<experiment>/<id>.json`, some with their weights next to them.

    >>> from repro.papers.example import EXPERIMENT
    >>> config = EXPERIMENT.plan("smoke", {"train_books": 5})[0]
    >>> Store(folder).get(config) is None
    True
    >>> run(config, folder, progress=False).id == Store(folder).get(config).id
    True
    """

    folder: Path

    @classmethod
    def for_scale(cls, scale: str, results: Path | str | None = None) -> "Store":
        """The store in `results`; by default, the store for records of `scale`."""
        return cls(Path(results or paths.results(scale)))

    def path(self, record: Record) -> Path:
        """The file of `record`."""
        return self.folder / record.scale / record.experiment / f"{record.id}.json"

    def put(self, record: Record, model: Path | None = None) -> Path:
        """Write `record` atomically and return its path. If the record names its weights (`repro.study.weights`), also
        copy the folder `model` next to it."""
        if model is not None:
            weights.keep(record, self.path(record), model)
        record.write(self.path(record))
        return self.path(record)

    def kept(self, record: Record) -> Path | None:
        """The folder with the `model` of `record`, if its weights are stored next to it.

        Raises ReproError if the weights are not those that the record names.
        """
        return weights.kept(record, self.path(record))

    def get(self, config: RunConfig) -> Record | None:
        """The record of `config` on this machine's data, or None.

        If the data is not here, returns the record of the same config with any fingerprint. A `stale` record counts as
        missing. Raises ReproError for a record that cannot be trusted, and for two records that differ only in their
        data.
        """
        found = self.look(config)
        return None if found and self.stale(found) else found

    @cached
    def stale(self, record: Record) -> str:
        """Why `record` no longer counts: a record that it was built on was replaced or revised. "" if it counts.

        It still counts if the record it was built on is missing, or comes from another machine, where floats round
        differently.
        """
        for id, digest in record.needs.items():
            for need in self._called(id, record.scale):
                if need.revision != experiment(need.experiment).revision:
                    return f"stale: built on {need.experiment} {id}, from before that experiment was revised"
                if need.digest != digest and _machine(need) == _machine(record):
                    return f"stale: built on another result of {need.experiment} {id} than the one that is here now"
                if self.stale(need):
                    return self.stale(need)
        return ""

    @cached
    def _called(self, id: str, scale: str) -> list[Record]:
        """The record with this id, in a list; [] if it is not here."""
        return [Record.read(path) for path in self._paths(scale).get(id, ())]

    @cached
    def _paths(self, scale: str) -> dict[str, list[Path]]:
        """The files of all records of a scale, by id."""
        found: dict[str, list[Path]] = {}
        for path in (self.folder / scale).glob("*/*.json"):
            found.setdefault(path.stem, []).append(path)
        return found

    def look(self, config: RunConfig) -> Record | None:
        """Like `get`, but also returns stale records."""
        run = Run(config)
        if run.data_at_hand:
            path = self.folder / config.scale / config.experiment / f"{run.id}.json"
            return Record.read(path) if path.exists() else None
        corpus = corpus_named(config.corpus)
        here = corpus.fingerprint() if corpus.available() else None
        same = [record for record in self._but_for_the_seed(config)
                if record.seed == config.seed and here in (None, record.data["fingerprint"])]
        if len(same) > 1:
            raise ReproError(f"records {' and '.join(r.id for r in same)} of {config.experiment} have one config but "
                             f"different data; delete one, or get '{config.corpus}' with `repro data fetch`.")
        return same[0] if same else None

    @cached
    def find(self, experiment: str, scale: str) -> list[Record]:
        """All records of an experiment at a scale, sorted by id. Raises ReproError for one that cannot be trusted."""
        return [Record.read(path) for path in sorted((self.folder / scale / experiment).glob("*.json"))]

    @cached
    def seeds(self, config: RunConfig) -> list[Record]:
        """The records of `config` at every seed that was run, sorted by seed."""
        seeds = sorted({record.seed for record in self._but_for_the_seed(config)})
        found = [self.get(config.model_copy(update={"seed": seed})) for seed in seeds]
        return [record for record in found if record is not None]

    def _but_for_the_seed(self, config: RunConfig) -> list[Record]:
        """The records with the settings of `config`, at any seed and on any data, of the current revision."""
        revision = Run(config).experiment.revision
        same = self._by_settings(config.experiment, config.scale).get(canonical(config.settings() | {"seed": 0}), [])
        return [record for record in same if record.revision == revision]

    @cached
    def _by_settings(self, experiment: str, scale: str) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.find(experiment, scale):
            found.setdefault(canonical(record.config | {"seed": 0}), []).append(record)
        return found


def where(needed: RunConfig, results: Path | str | None) -> Path | str | None:
    """Where to look for the record of a needed run: `results`, or None (the default folder of its scale) if only that
    folder has it. A custom folder thus receives new records, but no copies of existing ones."""
    own, usual = Store.for_scale(needed.scale, results), Store.for_scale(needed.scale)
    if results and own.get(needed) is None and usual.get(needed):
        return None
    return results


def _machine(record: Record) -> dict[str, Any]:
    """The environment of a record, without the numbers of threads and processes."""
    return {key: value for key, value in record.environment.items() if key not in ("threads", "processes")}
