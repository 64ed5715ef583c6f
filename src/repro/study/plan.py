"""Which runs to make, what they need and what is done, for the command line and the Snakefile."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.study.experiment import experiments
from repro.study.registry import package
from repro.study.runner import model_at_hand
from repro.study.runs import Run
from repro.study.settings import RunConfig, as_text, canonical
from repro.study.store import Store, where


def needed(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """The runs that `configs` need and do not contain, each once, in the order in which to run them."""
    given, found = list(configs), {}
    asked = {config.key for config in given}
    for config in given:
        for need in Run(config).needs:
            for one in (*needed([need]), need):
                if one.key not in asked:
                    found.setdefault(one.key, one)
    return list(found.values())


def every_run(scale: str) -> list[RunConfig]:
    """All runs of a scale and the runs they need, each once."""
    planned = [run for one in experiments() if scale in one.scales for run in one.plan(scale)]
    return list({run.key: run for run in (*needed(planned), *planned)}.values())


def state(config: RunConfig, results: Path | str | None = None) -> str:
    """The state of a run: "done", "to do", or the reason why its record does not count."""
    store = Store.for_scale(config.scale, results)
    record = store.look(config)
    return "to do" if record is None else store.stale(record) or "done"


def models_to_make(configs: Iterable[RunConfig], results: Path | str | None = None, force: bool = False) -> set[str]:
    """The keys of finished runs that must run again, because a pending run needs their model and it is not on this
    machine. force: all of `configs` are pending."""
    given, again = list(configs), set()
    for config in (*given, *reversed(needed(given))):
        place = results if config in given else where(config, results)
        forced = force and config in given
        if not forced and state(config, place) == "done" and config.key not in again:
            continue
        for need in Run(config).models:
            if state(need, where(need, results)) == "done" and not model_at_hand(need, results):
                again.add(need.key)
    return again


def known_id(config: RunConfig, results: Path | str | None = None) -> str | None:
    """The id of a run. If its data is not here, the id of its committed record, or None without such a record."""
    if Run(config).data_at_hand:
        return Run(config).id
    stored = Store.for_scale(config.scale, results).look(config)
    return stored.id if stored else None


def point(config: RunConfig, plan: list[RunConfig]) -> str:
    """The fewest settings that distinguish this run in `plan`, in the order of declaration; settings that are null in
    this run are left out."""
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
    return {package(Run(run).experiment) for run in runs}
