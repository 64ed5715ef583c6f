"""A run: a config, the experiment that makes it, and its id, a hash of its settings, its data and the runs it needs."""

import shlex
from dataclasses import dataclass

from repro import paths
from repro.errors import ReproError
from repro.study.cache import cached
from repro.study.experiment import Experiment, corpus_named, experiment
from repro.study.record import Record
from repro.study.settings import RunConfig, as_text, canonical, identify


@dataclass(frozen=True)
class Run:
    """One run of an experiment. It is computed from its config alone; `repro.study.run` makes it.

    >>> from repro.papers.example import EXPERIMENT
    >>> one, other = map(Run, EXPERIMENT.plan("smoke")[:2])
    >>> len(one.id), one.id == other.id, one.experiment is EXPERIMENT
    (16, False, True)
    """

    config: RunConfig

    @property
    def experiment(self) -> Experiment:
        """The experiment that makes it."""
        return experiment(self.config.experiment)

    @property
    def needs(self) -> list[RunConfig]:
        """The runs that have to be finished before it."""
        return self.experiment.needs(self.config)

    @property
    def models(self) -> list[RunConfig]:
        """The `needs` that must leave their model."""
        of = self.experiment.models_of
        return self.needs if of is None else of(self.config)

    @property
    def command(self) -> str:
        """The shell command that makes it, with every key that varies in the experiment's grid."""
        config = self.config
        values = config.model_dump(mode="json")
        plan = [other.model_dump(mode="json") for other in self.experiment.plan(config.scale)]
        words = ["repro", "run", config.experiment, "--scale", config.scale]
        for key, value in values.items():
            if key not in ("experiment", "scale", "seed") and any(other[key] != value for other in plan):
                words += ["--set", f"{key}={as_text(value)}"]
        return shlex.join(words + (["--seed", str(config.seed)] if config.seed else []))

    @property
    @cached
    def id(self) -> str:
        """16 hex digits: a hash of its config, of its corpora's fingerprints and of the runs it needs.

        If its weights are stored next to its record, no corpus is needed: without the corpora, that record gives the
        id. Otherwise raises ReproError if its corpus, or the corpus of a run it needs, is not on this machine.
        """
        if not self._data_here and (kept := self._with_weights):
            return kept.id
        return identify(self.config.settings(), _fingerprint(self.config.corpus),
                        [Run(need).id for need in self.needs], self.fingerprints, self.experiment.revision)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the other corpora it reads, by name. Raises ReproError if one is not on this machine."""
        return {name: _fingerprint(name) for name in self.experiment.reads(self.config)}

    @property
    @cached
    def data_at_hand(self) -> bool:
        """Whether `id` can be computed: its corpora and those of the runs it needs are on this machine, or its weights
        are stored next to its record."""
        return self._data_here or self._with_weights is not None

    @property
    @cached
    def _data_here(self) -> bool:
        here = all(map(_available, (self.config.corpus, *self.experiment.reads(self.config))))
        return here and all(Run(need).data_at_hand for need in self.needs)

    @property
    @cached
    def _with_weights(self) -> Record | None:
        """The record with these settings that has weights next to it, among the records of its scale, on any data.

        Raises ReproError if there are two, and for a record that cannot be trusted.
        """
        settings = canonical(self.config.settings())
        same = [record for record in _records_with_weights(self.config.experiment, self.config.scale)
                if record.revision == self.experiment.revision and canonical(record.config) == settings]
        if len(same) > 1:
            raise ReproError(f"weights are stored next to {' and '.join(record.id for record in same)} of "
                             f"{self.config.experiment}, which have one config but different data; delete one.")
        return same[0] if same else None


def run_id(config: RunConfig) -> str:
    """The `id` of the run of a config. Raises ReproError if its data is not on this machine.

    >>> from repro.papers.example import EXPERIMENT
    >>> len(run_id(EXPERIMENT.plan("smoke")[0]))
    16
    """
    return Run(config).id


def command(config: RunConfig) -> str:
    """The shell command that runs exactly this config.

    >>> from repro.papers.example import EXPERIMENT
    >>> command(EXPERIMENT.plan("smoke", {"train_books": 5})[0])
    'repro run counted-words --scale smoke --set context=0 --set train_books=5'
    """
    return Run(config).command


@cached
def _fingerprint(corpus: str) -> str:
    return corpus_named(corpus).fingerprint()


@cached
def _available(name: str) -> bool:
    return corpus_named(name).available()


@cached
def _records_with_weights(experiment: str, scale: str) -> list[Record]:
    folder = paths.results(scale) / scale / experiment
    files = sorted(model.parent.with_suffix(".json") for model in folder.glob("*/model") if model.is_dir())
    return [Record.read(file) for file in files if file.exists()]
