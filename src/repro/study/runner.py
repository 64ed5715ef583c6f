"""Turn a config into a record: read it from the store, or run it after the runs it needs."""

import ctypes
import fcntl
import gc
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro import __version__, paths, processes
from repro.errors import ReproError
from repro.study import weights
from repro.study.experiment import Context, Outcome, corpus_named
from repro.study.progress import Progress
from repro.study.record import Record
from repro.study.runs import Run
from repro.study.settings import RunConfig
from repro.study.store import Store, where


def run(config: RunConfig, results: Path | str | None = None, progress: bool = True, force: bool = False,
        until: Callable[[], bool] | None = None) -> Record:
    """The record of `config`, read from the store or made by running it after the runs it needs.

    `results` is the folder of the store (default: `repro.paths.results(scale)`, where needed runs are also looked up).
    `force` runs it from the start even if a record exists, and replaces that record. `until` is called at every step;
    if it returns True, the time is up: a training run writes a checkpoint, and the run raises TimeIsUp. When called
    again, a stopped or killed run continues from its last checkpoint. Everything after that checkpoint is repeated,
    including evaluations, which write no checkpoint. Raises ReproError for missing data, records that cannot be trusted
    and full disks.

    >>> from repro.papers.example import EXPERIMENT
    >>> made = run(EXPERIMENT.plan("smoke", {"train_books": 5})[0], folder, progress=False)
    >>> made.data["name"], round(made.metrics["test_word_perplexity"])
    ('synthetic-books', 159)
    """
    with Progress(progress, until) as bars:
        return _obtain(config, results, bars, force)[0]


def model_folder(config: RunConfig, results: Path | str | None = None, progress: bool = True,
                 until: Callable[[], bool] | None = None) -> Path:
    """The folder of the model of `config`; if the model is not here, runs `config`, even if it has a record.

    >>> from repro.papers.example import EXPERIMENT
    >>> model_folder(EXPERIMENT.plan("smoke", {"train_books": 5})[0], folder, progress=False).name
    'model'
    """
    with Progress(progress, until) as bars:
        return _obtain(config, results, bars, with_folder=True)[1] / "model"


def kept_model(config: RunConfig) -> Path | None:
    """The folder of the model stored next to the record of `config`; None if there is none. Never runs anything.

    Raises ReproError if the weights are not those that the record names.

    >>> from repro.papers.example import EXPERIMENT
    >>> kept_model(EXPERIMENT.plan("smoke")[0]) is None  # word counts have no weights
    True
    """
    store = Store.for_scale(config.scale)
    record = store.get(config)
    folder = record and store.kept(record)
    return folder and folder / "model"


def model_at_hand(config: RunConfig, results: Path | str | None = None) -> bool:
    """Whether `model_folder` can return the model of a finished run without running it again.

    Raises ReproError if the weights are not those that the record names.
    """
    stores = Store.for_scale(config.scale, results), Store.for_scale(config.scale)
    found = [(store, record) for store in stores if (record := store.get(config))]
    run = Run(config)
    folder = paths.work() / "runs" / run.id if run.data_at_hand else None
    return (any(store.kept(record) for store, record in found) or folder is not None
            and (folder / "record.json").exists() and (folder / "model").exists())


def _obtain(config: RunConfig, results: Path | str | None, bars: Progress, force: bool = False,
            with_folder: bool = False) -> tuple[Record, Path | None]:
    """The record of `config` and its folder; the folder is None unless `with_folder` is set or the run was made."""
    store = Store.for_scale(config.scale, results)
    stored = processes.first(lambda: store.get(config))
    if stored and not force and not with_folder:
        return stored, None
    run = Run(config)
    folder = paths.work() / "runs" / run.id
    if with_folder and (beside := processes.first(lambda: _beside(config, store, stored, folder))):
        return beside
    with _exclusive(folder):
        stored, kept = processes.first(lambda: _found(config, store, folder, force, with_folder))
        if kept:
            return kept, folder
        if stored and not force and not with_folder:
            return stored, None

        needs, models = {}, run.models
        for wanted in run.needs:
            place = processes.first(lambda wanted=wanted: where(wanted, results))
            needs[wanted.key] = _obtain(wanted, place, bars, with_folder=wanted in models)

        def need(wanted: RunConfig) -> tuple[Record, Path | None]:
            if wanted.key not in needs:
                raise ReproError(f"{config.experiment} asked for a run of {wanted.experiment} that is not in its "
                                 "`needs`; declare it there.")
            return needs[wanted.key]

        resumed = folder.exists() and any(folder.iterdir())
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        outcome = run.experiment.execute(config, Context(folder, bars, need))
        cost = {"wall_seconds": round(time.monotonic() - started, 3), "peak_memory_bytes": _peak_memory(),
                "resumed": resumed, "created": datetime.now(UTC).isoformat(timespec="seconds")}

        def finish() -> Record:
            built_on = {need.id: need.digest for need, _ in needs.values()}
            record = _record(run, outcome, built_on, cost)
            again = stored and not force
            if again:
                _same(stored, record, store.path(stored))
            record.write(folder / "record.json")  # before the store, so that a killed run is not repeated
            if not again:
                store.put(record, folder / "model")
            elif stored.digest == record.digest:
                weights.keep(stored, store.path(stored), folder / "model")
            return record
        record = processes.first(finish)
    give_back()
    return record, folder


def give_back() -> None:
    """Return freed memory to the system. With the allocator settings in the Makefile, the process would keep it: a
    process that made twenty runs grew to 11 GB. Does nothing if the C library has no such call."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _beside(config: RunConfig, store: Store, stored: Record | None, folder: Path) -> tuple[Record, Path] | None:
    """The record and the folder of a run whose weights are stored next to it, in `store` or in the default store of its
    scale. If the same run finished in `folder`, returns `folder`, which may hold more than the weights.

    Also puts the record into `store`.
    """
    for place in (store, Store.for_scale(config.scale)):
        record = place.get(config)
        if record and (not stored or record.digest == stored.digest) and (kept := place.kept(record)):
            if not stored:
                store.put(record)
            finished = folder / "record.json"
            return record, folder if finished.exists() and Record.read(finished).digest == record.digest else kept
    return None


def _found(config: RunConfig, store: Store, folder: Path, force: bool,
           with_folder: bool) -> tuple[Record | None, Record | None]:
    """The record in the store and, if the folder is wanted, the record of the model in it.

    Empties the folder if the run is forced or its content is stale.
    """
    stored = store.get(config)  # another command may have finished it in the meantime
    finished = folder / "record.json"
    if force or (finished.exists() and store.stale(Record.read(finished))):
        shutil.rmtree(folder, ignore_errors=True)
    if not with_folder or not finished.exists() or not (folder / "model").exists():
        return stored, None
    kept = Record.read(finished)
    if kept.id != folder.name:
        return stored, None
    if not stored:
        store.put(kept, folder / "model")
    return stored, kept


def _same(stored: Record, again: Record, path: Path) -> None:
    """Raise ReproError if one machine made two different records. On another machine, floats may round differently."""
    if stored.digest == again.digest or stored.environment != again.environment:
        return
    changed = [f"{name} {stored.metrics.get(name)} -> {value}" for name, value in again.metrics.items()
               if stored.metrics.get(name) != value]
    raise ReproError(f"running {again.experiment} {again.id} again on the same machine gave another record "
                     f"({', '.join(changed[:3]) or 'equal metrics, other content'}); if you changed its code on "
                     f"purpose, delete {path} and run it again.")


def _record(run: Run, outcome: Outcome, needs: dict[str, str], cost: dict[str, Any]) -> Record:
    config, reads = run.config, run.fingerprints
    corpus = corpus_named(config.corpus)
    data = {"name": corpus.name, "fingerprint": corpus.fingerprint(), "part_of": corpus.part_of}
    if set(outcome.metrics) != set(outcome.units):
        raise ReproError(f"{config.experiment}: metrics and units must have the same names, but these differ: "
                         f"{', '.join(sorted(set(outcome.metrics) ^ set(outcome.units)))}.")
    revision = run.experiment.revision
    return Record.sealed(
        **({"revision": revision} if revision else {}),
        id=run.id, experiment=config.experiment, scale=config.scale, model=outcome.model, seed=config.seed,
        config=config.settings(),
        data=data | ({"reads": reads} if reads else {}), needs=needs,
        metrics={name: float(value) for name, value in outcome.metrics.items()}, units=outcome.units,
        curves=outcome.curves, documents=outcome.documents, notes=outcome.notes, environment=environment(), cost=cost)


def environment() -> dict[str, Any]:
    """The properties of the machine and the versions that can change a number in a record.

    Older records lack `float32` and `bf16`. They count as records of another machine, because their floats may round
    differently.
    """
    import torch

    from repro.bf16 import has_bf16
    from repro.cpu import float32_path, model_name

    return {
        "python": platform.python_version(), "torch": torch.__version__, "transformers": version("transformers"),
        "repro": __version__, "platform": f"{platform.system()} {platform.machine()}",
        "cpu": model_name(), "threads": torch.get_num_threads(),
        "processes": processes.count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "float32": float32_path(),  # how a CPU computes large products in scoring
        "bf16": "native" if has_bf16() else "emulated",  # of the CPU, for configs with bf16 precision
    }


def _peak_memory() -> int:
    """Peak memory in bytes: of the accelerator if one is used, otherwise of this process since it started."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one command at a time work in `folder`; a second one waits. The lock is released when its process ends.

    With torchrun, only the first process takes the lock; the others use its results.
    """
    if not processes.is_first():
        yield
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ReproError(f"cannot work in {folder.parent}: {error.strerror}; "
                         "set REPRO_WORK to another folder.") from error
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # `close` alone would leave the lock to a process forked inside
        lock.close()
