"""The id of a run: a hash of its settings, its data, and the runs it depends on."""

from repro.study import weights
from repro.study.cache import cached
from repro.study.experiment import corpus_named, experiment
from repro.study.settings import RunConfig, identify


@cached
def run_id(config: RunConfig) -> str:
    """Id of a run (16 hex digits): a hash of its config, of its corpora's fingerprints and of the runs it needs.

    If its weights are stored next to its record, no corpus is needed: without the corpora, the id comes from that
    record. Otherwise raises ReproError if its corpus, or that of a run it needs, is not on this machine.

    >>> from repro.papers.example import EXPERIMENT
    >>> one, other = EXPERIMENT.plan("smoke")[:2]
    >>> len(run_id(one)), run_id(one) == run_id(other)
    (16, False)
    """
    if not _data_here(config) and (kept := weights.known(config)):
        return kept.id
    parent = experiment(config.experiment)
    return identify(config.settings(), _fingerprint(config.corpus), map(run_id, parent.needs(config)),
                    fingerprints(config), parent.revision)


def fingerprints(config: RunConfig) -> dict[str, str]:
    """Name -> fingerprint of the corpora that a run reads besides its own. Raises ReproError for an absent one."""
    return {name: _fingerprint(name) for name in experiment(config.experiment).reads(config)}


@cached
def _fingerprint(corpus: str) -> str:
    return corpus_named(corpus).fingerprint()


@cached
def data_at_hand(config: RunConfig) -> bool:
    """Whether `run_id(config)` can be computed: its corpora and those of the runs it needs are on this machine, or its
    weights are stored next to its record."""
    return _data_here(config) or weights.known(config) is not None


@cached
def _data_here(config: RunConfig) -> bool:
    parent = experiment(config.experiment)
    here = all(map(_available, (config.corpus, *parent.reads(config))))
    return here and all(data_at_hand(need) for need in parent.needs(config))


@cached
def _available(name: str) -> bool:
    return corpus_named(name).available()
