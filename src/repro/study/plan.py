"""Which runs to make: their commands, needs and states, for the command line and the Snakefile."""

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
    """The shell command that runs exactly this config: it sets every key that varies in the experiment's grid.

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
    """16 hex digits that identify a run before its data is here: a hash of all its settings."""
    return sha256(config.model_dump(mode="json"))[:16]


def needed(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """The runs that `configs` need and do not contain, each once, in the order in which to run them."""
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
    """All runs of a scale and the runs they need, each once."""
    planned = [run for one in experiments() if scale in one.scales for run in one.plan(scale)]
    return list({key(run): run for run in (*needed(planned), *planned)}.values())


def state(config: RunConfig, results: Path | str | None = None) -> str:
    """Whether a run is "done" or "to do", or why its record does not count."""
    store = Store.for_scale(config.scale, results)
    record = store.look(config)
    return "to do" if record is None else store.stale(record) or "done"


def models_to_make(configs: Iterable[RunConfig], results: Path | str | None = None, force: bool = False) -> set[str]:
    """The `key`s of finished runs that have to run again because a pending run needs their model and it is not on this
    machine. force: all of `configs` are pending."""
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
    """The id of a run; without its data, the id of its committed record; without that, None."""
    if data_at_hand(config):
        return run_id(config)
    stored = Store.for_scale(config.scale, results).look(config)
    return stored.id if stored else None


def point(config: RunConfig, plan: list[RunConfig]) -> str:
    """The fewest settings that distinguish this run in `plan`, in the order of their declaration, without those that
    are null in this run."""
    kind = (config.experiment, config.scale)
    others = [other.model_dump(mode="json") for other in plan if (other.experiment, other.scale) == kind]
    keys: list[str] = []
    apart = 1
    for name in type(config).model_fields:
        count = len({canonical([other[known] for known in (*keys, name)]) for other in others})
        if count > apart:
            keys, apart = [*keys, name], count
    values = config.model_dump(mode="json")
    return " ".join(f"{name}={as_text(values[name])}" for name in keys if values[name] is not None)


def packages_of(config: RunConfig) -> set[str]:
    """The papers' packages whose code makes a run and the runs it needs."""
    runs: list[Any] = [config, *needed([config])]
    return {package(experiment(run.experiment)) for run in runs}
