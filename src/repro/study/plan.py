"""What has to be run: commands, needs and states of runs, for the command line and for the Snakefile."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.study.experiment import experiment, experiments
from repro.study.ids import data_at_hand, run_id
from repro.study.registry import package
from repro.study.runner import model_at_hand
from repro.study.settings import RunConfig, as_text, canonical, sha256
from repro.study.store import Store, where


def command(config: RunConfig) -> str:
    """The shell command that runs exactly this config: it sets every key in which the experiment's grid differs.

    >>> from repro.papers.example import EXPERIMENT
    >>> command(EXPERIMENT.plan("smoke", {"train_books": 5})[0])
    'repro run counted-words --scale smoke --set context=0 --set train_books=5'
    """
    parent = experiment(config.experiment)
    values, plan = config.model_dump(mode="json"), [c.model_dump(mode="json") for c in parent.plan(config.scale)]
    words = ["repro", "run", config.experiment, "--scale", config.scale]
    for key, value in values.items():
        if key not in ("experiment", "scale", "seed") and any(other[key] != value for other in plan):
            words += ["--set", f"{key}={as_text(value)}"]
    return shlex.join(words + (["--seed", str(config.seed)] if config.seed else []))


def key(config: RunConfig) -> str:
    """16 hex digits by which a run is known before its data is here; all its values are in it."""
    return sha256(config.model_dump(mode="json"))[:16]


def needed(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """The runs that `configs` need and are not themselves, each once, the first to run first."""
    given, found = list(configs), {}
    asked = {canonical(config.model_dump(mode="json")) for config in given}
    for config in given:
        for need in experiment(config.experiment).needs(config):
            for one in (*needed([need]), need):
                text = canonical(one.model_dump(mode="json"))
                if text not in asked:
                    found.setdefault(text, one)
    return list(found.values())


def every_run(scale: str) -> list[RunConfig]:
    """All runs of a scale with the runs that they need, each once."""
    planned = [run for one in experiments() if scale in one.scales for run in one.plan(scale)]
    return list({key(run): run for run in (*needed(planned), *planned)}.values())


def state(config: RunConfig, results: Path | str | None = None) -> str:
    """Whether a run is "done" or "to do", or why its record does not count."""
    store = Store.for_scale(config.scale, results)
    record = store.look(config)
    return "to do" if record is None else store.stale(record) or "done"


def models_to_make(configs: Iterable[RunConfig], results: Path | str | None = None, force: bool = False) -> set[str]:
    """The `key`s of runs with a record whose model is wanted by a run that is to do, but is not on this machine: they
    will be run again. force: all of `configs` are to do."""
    given, again = list(configs), set()
    for config in (*given, *reversed(needed(given))):
        place = results if config in given else where(config, results)
        forced = force and config in given
        if not forced and state(config, place) == "done" and key(config) not in again:
            continue
        parent = experiment(config.experiment)
        for need in parent.needs(config) if parent.models_of is None else parent.models_of(config):
            if state(need, where(need, results)) == "done" and not model_at_hand(need, results):
                again.add(key(need))
    return again


def known_id(config: RunConfig, results: Path | str | None = None) -> str | None:
    """The id of a run; where its data is absent, that of its committed record; else None."""
    if data_at_hand(config):
        return run_id(config)
    stored = Store.for_scale(config.scale, results).look(config)
    return stored.id if stored else None


def point(config: RunConfig, plan: list[RunConfig]) -> str:
    """The fewest keys, those declared first taken first, that tell the runs of `plan` like this one apart; those that
    this run leaves open (null) are not named."""
    kind = (config.experiment, config.scale)
    others = [other.model_dump(mode="json") for other in plan if (other.experiment, other.scale) == kind]
    keys: list[str] = []
    apart = 1
    for name in type(config).model_fields:
        told = len({canonical([other[known] for known in (*keys, name)]) for other in others})
        if told > apart:
            keys, apart = [*keys, name], told
    values = config.model_dump(mode="json")
    return " ".join(f"{name}={as_text(values[name])}" for name in keys if values[name] is not None)


def packages_of(config: RunConfig) -> set[str]:
    """The papers' packages whose code a run and the runs it needs are made by."""
    runs: list[Any] = [config, *needed([config])]
    return {package(experiment(run.experiment)) for run in runs}
