"""Weights stored next to their record, `<id>/model/` next to `<id>.json`, so that nobody has to train them again.

The record identifies them: `notes["model"]` is the sha256 of model.safetensors, and `notes["tokeniser"]` that of
tokenizer.json. Runs that need them can load them from a fresh clone, without the training text.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path

from repro import paths
from repro.data import files
from repro.errors import ReproError
from repro.study.record import Record

WEIGHTS, TOKENISER = "model.safetensors", "tokenizer.json"
BESIDE = "config.json", "generation_config.json"  # other files that loading the weights needs


def kept(record: Record, path: Path) -> Path | None:
    """The folder with the `model` of the record in the file `path`, if its weights are stored next to it.

    Raises ReproError, before the weights are loaded, if they are not those that the record names.
    """
    folder = path.with_suffix("")
    if "model" not in record.notes:
        return None
    if not folder.exists() and _before(path).exists():
        with suppress(OSError), paths.locked(folder.parent):
            _mend(path)
    if not (folder / "model").is_dir():
        return None
    check(record, folder / "model")
    return folder


def keep(record: Record, path: Path, model: Path) -> None:
    """Copy the folder `model` next to the file `path` of the record, completely or not at all.

    Does nothing for a record without the sha256 of its weights. Raises ReproError if the weights are not those that the
    record names, and if the disk is full.
    """
    folder = path.with_suffix("")
    if "model" not in record.notes or model == folder / "model":
        return
    check(record, model)
    unfinished, before = folder.with_name(f".{folder.name}.unfinished"), _before(path)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with paths.locked(folder.parent):  # another process may store the same weights
            _mend(path)
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
            shutil.copytree(model, unfinished / "model", copy_function=shutil.copyfile)
            if folder.exists():
                folder.rename(before)
            unfinished.rename(folder)
            shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        _mend(path)
        raise ReproError(f"cannot write {folder}: {error.strerror or error}. Free some space; the model is still in "
                         f"{model}.") from error


def _before(path: Path) -> Path:
    """The temporary place for the old weights of the record in the file `path` while `keep` replaces them."""
    return path.with_name(f".{path.stem}.before")


def _mend(path: Path) -> None:
    """Put back the old weights if `keep` was killed while replacing them; delete them if the new ones are there."""
    folder, before = path.with_suffix(""), _before(path)
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)
    elif before.exists():
        before.rename(folder)


def check(record: Record, model: Path) -> None:
    """Raise ReproError, in one line, unless the folder holds the weights and the tokenizer that the record names."""
    expected = {WEIGHTS: record.notes["model"], TOKENISER: record.notes["tokeniser"]}
    if not model.is_dir():
        raise ReproError(f"{model} is not here: a run with weights leaves them in a folder of that name, next to its "
                         f"record; run `repro run {record.experiment} --scale {record.scale}` again.")
    again = (f"restore {model} from git, or delete it and run `repro run {record.experiment} --scale {record.scale}` "
             "again")
    if strange := sorted({path.name for path in model.iterdir() if path.name[0] != "."} - {*expected, *BESIDE}):
        raise ReproError(f"{model} holds {', '.join(strange)}, which does not belong to a stored model; delete it.")
    for name in (*expected, "config.json"):
        if not (model / name).is_file():
            raise ReproError(f"{model} has no {name}: the model of record {record.id} is incomplete; {again}.")
    for path in sorted(model.iterdir()):
        if lacking := _cut_off(path):
            raise ReproError(f"{path} is truncated: {lacking}; {again}.")
    for name, sha256 in expected.items():
        if files.sha256(model / name) != sha256:
            what = "belongs to another model" if name == TOKENISER else "is another file"
            raise ReproError(f"{model / name} {what}: its sha256 begins with {files.sha256(model / name)[:16]}, record "
                             f"{record.id} names {sha256[:16]}; {again}.")


def _cut_off(path: Path) -> str:
    """How a file is truncated; "" if it is complete. The header of a weights file gives its length."""
    if path.suffix == ".safetensors":
        size = path.stat().st_size
        with path.open("rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
            if size < start:
                return f"it ends within its header, after {size:,} bytes"
            try:
                header = json.loads(file.read(start - 8))
                whole = start + max(one["data_offsets"][1] for name, one in header.items() if name != "__metadata__")
            except (ValueError, TypeError, LookupError, AttributeError):
                return ""  # not a weights file; its sha256 will not match
        return f"it has {size:,} of {whole:,} bytes" if size < whole else ""
    if path.suffix == ".json":
        try:
            json.loads(path.read_text())
        except ValueError:
            return "it is not a complete JSON file"
    return ""
