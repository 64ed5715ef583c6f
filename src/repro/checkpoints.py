"""Read and write folders of transformers models; missing or damaged folders and full disks give a one-line error."""

import fcntl
import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from tempfile import mkdtemp
from typing import Any

from repro.errors import ReproError, short
from repro.paths import locked

LAYERS = "n_layer", "num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers"
LONGEST_NAME = 200  # bytes; most disks allow 255, and an unfinished folder has a longer name
HINT = "give a checkpoint of that kind"
# Errors of transformers and torch for settings that fit no model or not the weights in the folder.
UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
         struct.error)


def home() -> Path:
    """Where published models are kept: $REPRO_MODELS, else repro/models in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("REPRO_MODELS") or cache / "repro" / "models").expanduser().resolve()


def located(name_or_folder: str | Path) -> str | Path:
    """The folder of a model that `repro models fetch` downloaded, by its name; anything else stays as it is. A folder
    of that name in the working directory comes first, as in transformers."""
    name = str(name_or_folder)
    fetched, exists = home() / name, Path(name).exists()
    is_name = bool(name) and Path(name).name == name and not exists
    return str(fetched) if is_name and (fetched / "config.json").is_file() else name_or_folder


@contextmanager
def reading(name_or_folder: str | Path, example: str) -> Iterator[str | Path]:
    """Read a checkpoint inside the `with` block, from the place that it yields: the folder of a fetched model, another
    folder, or a hub name such as `example`. A model that a killed save was replacing is put back first.

    Raises ReproError if this is not a name, if there is no such checkpoint, if the hub cannot be reached, and if the
    checkpoint is damaged or cannot be loaded with its settings.
    """
    try:
        known = isinstance(name_or_folder, (str, Path))
        if known:
            _put_back(Path(name_or_folder))
        name_or_folder = located(name_or_folder) if known else name_or_folder
    except OSError:  # too long for a file system
        known = False
    if not known:
        raise ReproError(f"a checkpoint is read by its folder or hub name such as {example}, not by "
                         f"{name_or_folder!r:.60}.")

    from huggingface_hub.errors import LocalEntryNotFoundError, StrictDataclassError
    from safetensors import SafetensorError

    fetch = "" if Path(name_or_folder).name != str(name_or_folder) else (
        f" If `repro models list` has {name_or_folder}, run `repro models fetch {name_or_folder}`.")
    try:
        with quietly():
            yield name_or_folder
    except ReproError:
        raise
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError, StrictDataclassError, UnpicklingError) as error:
        raise ReproError(f"the checkpoint in {name_or_folder} is damaged ({short(str(error), 200)}); delete the folder "
                         "and make it again.") from error
    except OSError as error:
        if Path(name_or_folder).is_dir() and any(Path(name_or_folder).iterdir()):
            raise ReproError(f"the folder {name_or_folder} holds no complete checkpoint ({str(error).splitlines()[0]})"
                             "; delete it and make it again, or give one with config.json and model.safetensors."
                             ) from error
        if isinstance(error.__cause__, LocalEntryNotFoundError):  # neither in the hub's cache nor reachable now
            raise ReproError(f"there is no checkpoint '{name_or_folder}' here, and the hub is out of reach; connect if "
                             f"it is a hub name such as {example}, or give a folder with config.json and "
                             f"model.safetensors.{fetch}") from error
        raise ReproError(f"there is no checkpoint '{name_or_folder}' here or on the hub; give a hub name such as "
                         f"{example} or a folder with config.json and model.safetensors.{fetch}") from error
    except ImportError as error:
        raise ReproError(f"the checkpoint in {name_or_folder} cannot be loaded: {error} Install the package, or leave "
                         "out the setting that needs it.") from error
    except UNFIT as error:
        if "ignore_mismatched_sizes" in str(error):
            raise ReproError(f"{name_or_folder} has weights of other shapes than its config.json says; give a whole "
                             "checkpoint.") from error
        raise ReproError(f"the checkpoint in {name_or_folder} cannot be loaded with its settings "
                         f"({short(error, 200)}); correct config.json, or make the "
                         "checkpoint again.") from error


def load_whole(read: Callable, kind: str, name_or_folder: str | Path, example: str, hint: str = HINT,
               **kwargs) -> Any:
    """The model that `read`, a transformers model's `from_pretrained`, loads from a checkpoint of its own kind.

    transformers itself would initialize missing weights at random and only list them. kind: the model type that the
    config must name, such as "roberta"; hint: what to do if it names another.
    Raises ReproError if there is no such checkpoint, and for one that is damaged, of another kind or incomplete.
    """
    with_loading = kwargs.pop("output_loading_info", False)
    with reading(name_or_folder, example) as found:
        model, loading = whole(read, kind, found, hint, **kwargs)
    return (model, loading) if with_loading else model


def whole(read: Callable, kind: str, name_or_folder: str | Path, hint: str = HINT, **kwargs
          ) -> tuple[Any, dict]:
    """The model that `read`, a `from_pretrained`, loads, and its loading report. Raises ReproError for a checkpoint of
    another kind, and if weights are missing."""
    config_of(kind, name_or_folder, hint, **kwargs)
    model, loading = read(str(name_or_folder), output_loading_info=True, **kwargs)
    if lost := sorted(loading["missing_keys"]):
        raise ReproError(f"{name_or_folder} lacks {len(lost)} weights, the first of them {lost[0]}; give a whole "
                         "checkpoint.")
    return model, loading


def config_of(kind: str | None, name_or_folder: str | Path, hint: str = HINT, **kwargs) -> dict[str, Any]:
    """The contents of config.json of a checkpoint. Raises ReproError if there is none, and for another kind of model;
    kind None accepts any."""
    from transformers import PretrainedConfig

    if Path(name_or_folder).is_dir():
        read_config(name_or_folder)
    values, _ = PretrainedConfig.get_config_dict(str(name_or_folder), **kwargs)
    if not values:
        raise ReproError(f"{name_or_folder} holds no config.json; give the folder of a checkpoint.")
    if kind is not None and values.get("model_type") != kind:
        raise ReproError(f"{name_or_folder} is a checkpoint of {values.get('model_type')}, not of {kind}; {hint}.")
    return values


def read_config(folder: str | Path) -> dict[str, Any]:
    """The contents of config.json of a folder, {} if it has none. Raises ReproError for JSON that is not an object."""
    path = Path(folder) / "config.json"
    values = json.loads(path.read_text()) if path.is_file() else {}
    if not isinstance(values, dict):
        raise ReproError(f"config.json of {folder} is {short(values, 60)}; it must be a JSON object, the settings of a "
                         "model. Give the folder of a checkpoint.")
    n_weights = _n_weights(Path(folder) / "model.safetensors")
    for name in LAYERS:
        if n_weights and isinstance(values.get(name), int) and values[name] > n_weights:
            raise ReproError(f"config.json of {folder} has {name} {values[name]:,}, but model.safetensors holds "
                             f"{n_weights:,} weights, and a layer has at least one; correct config.json.")
    return values


def _n_weights(path: Path) -> int:
    """The number of tensors that a safetensors file names in its header; 0 if the file is incomplete."""
    try:
        with path.open("rb") as file:
            n_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(n_bytes)) if n_bytes <= path.stat().st_size else {}
        return len(header.keys() - {"__metadata__"})
    except (OSError, ValueError, AttributeError, RecursionError):
        return 0


@contextmanager
def whole_folder(folder: str | Path) -> Iterator[Path]:
    """Write to the yielded path inside the `with` block; it becomes `folder` afterwards, completely or not at all.

    Raises ReproError if the disk refuses, and, before anything is written, if `folder` is a file or a link. If the
    block raises, no unfinished folder remains. After a kill, either the old or the new folder is there, or the old one
    is hidden next to its place, and the next save or `reading` puts it back. Several processes may save under one name
    at the same time: each writes its own folder, and the last one to finish stays.
    """
    from safetensors import SafetensorError

    folder = named(folder)
    if not folder.name or folder.is_symlink() or folder.exists() and not folder.is_dir():
        what = "the current folder" if not folder.name else "a link" if folder.is_symlink() else "a file"
        raise ReproError(f"a model is saved as a folder of its own, but {folder} is {what}; it was left as it is. Give "
                         "the name of a new folder, or of one that can be replaced.")
    own = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent):
            _tidy(folder)
            made = _fresh(folder)
            held, own = os.open(made, os.O_RDONLY), made
            with suppress(OSError):  # a disk without locks
                fcntl.flock(held, fcntl.LOCK_EX)  # held while this process writes, so that no other deletes the folder
        unfinished = own / folder.name
        yield unfinished
        for path in unfinished.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        with locked(folder.parent):  # a reader must not put the old one back in between
            _tidy(folder)
            if folder.exists():
                folder.rename(_before(folder))  # a kill must not leave a part of it under its name
            unfinished.rename(folder)
    except (OSError, SafetensorError) as error:
        raise ReproError(f"cannot write {folder}: {error}. Free some space and run it again; it goes on where it "
                         "was.") from error
    finally:
        if own is not None:
            os.close(held)
            shutil.rmtree(own, ignore_errors=True)
            with suppress(OSError), locked(folder.parent):
                _tidy(folder)


def named(folder: str | Path) -> Path:
    """`folder` as a path. Raises ReproError for anything that cannot be the name of a folder."""
    try:
        path = Path(folder)
        if "\0" in str(path):
            raise ValueError("it contains a zero character")
        if len(os.fsencode(path.name)) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
    except (TypeError, ValueError) as error:
        raise ReproError(f"a model is saved in a folder, and {short(folder, 60)} cannot be one ({error}); give a path "
                         "such as 'models/mine'.") from error
    return path


def _fresh(folder: Path) -> Path:
    """A new hidden folder next to `folder`, for unfinished files or files to delete."""
    return Path(mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".unfinished"))


def _before(folder: Path) -> Path:
    """Where `whole_folder` puts the old folder while it replaces it."""
    return folder.with_name(f".{folder.name}.before")


def _tidy(folder: Path) -> None:
    """Put back the old folder, or delete it if the new one is there, and delete unfinished ones that no process writes.

    Call it only within `locked(folder.parent)`.
    """
    before = _before(folder)
    if before.is_dir() and not folder.exists():
        before.rename(folder)
    elif before.is_dir():
        before.rename((deleted := _fresh(folder)) / folder.name)  # a kill must not leave a part of it under this name
        shutil.rmtree(deleted, ignore_errors=True)
    for left in os.listdir(folder.parent):
        if re.fullmatch(rf"\.{re.escape(folder.name)}\.\w+\.unfinished", left) and not _is_held(folder.parent / left):
            shutil.rmtree(folder.parent / left, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    """Whether a process is writing this unfinished folder."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(held)
    return False


def _put_back(folder: Path) -> None:
    """Give the old folder its name back if a killed save left none under it."""
    with suppress(OSError):  # a name too long, or a disk that cannot be written
        if not folder.name or folder.exists() or not (before := _before(folder)).is_dir():
            return
        with locked(folder.parent):
            if before.is_dir() and not folder.exists():  # another process may have been first
                before.rename(folder)


@contextmanager
def quietly() -> Iterator[None]:
    """Inside the `with` block, transformers shows no progress bars for single files and no lists of missing weights."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
