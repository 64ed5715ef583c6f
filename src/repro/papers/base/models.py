"""The available base models: their records, and the weights stored next to them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.checkpoints import config_of, reading
from repro.errors import ReproError, unknown
from repro.papers.base import gpt2_mini, roberta_mini
from repro.study import SCALES, Record, Store, command, weights
from repro.study.weights import WEIGHTS

KEPT, NOT_KEPT = "ok", "not kept"
EXPERIMENTS = {one.NAME: one.EXPERIMENT for one in (gpt2_mini, roberta_mini)}
LOSSES = ("validation_token_loss", "masked_bits_per_token")


@dataclass(frozen=True)
class BaseModel:
    """A trained base model, as described by its record."""

    name: str  # "gpt2-mini"
    experiment: str
    scale: str
    id: str
    corpus: str
    parameters: int
    weights: str  # format of the stored weights, "bf16" or "fp32"
    tokens: int  # tokens of training; 0 for a published checkpoint
    loss: float | None  # on held-out text, in `unit`
    unit: str
    bytes: int | None  # size of the stored weights; None without any
    state: str  # "ok", "not kept", or what is wrong with the weights


def base_models(results: Path | str | None = None) -> list[BaseModel]:
    """Every base model that has a record. Raises ReproError for a record that cannot be trusted."""
    return [_base_model(record, store, name) for record, store, name in _records(results)]


def check(results: Path | str | None = None) -> list[BaseModel]:
    """`base_models`, with stored weights loaded and tried. A fault is reported in `state`."""
    found = []
    for record, store, name in _records(results):
        model = _base_model(record, store, name)
        if model.state == KEPT:
            try:
                _load(record, store.kept(record) / "model", name)
            except ReproError as error:
                model = BaseModel(**model.__dict__ | {"state": str(error)})
        found.append(model)
    return found


def base_model(name: str = "gpt2-mini", scale: str = "small", results: Path | str | None = None) -> tuple[Any, Any]:
    """The stored base model of a scale and its tokenizer, ready to use, without a corpus or training.

    Raises ReproError for an unknown name, if no weights are stored, and for incomplete weights.
    """
    if name not in EXPERIMENTS:
        raise unknown("base model", name, EXPERIMENTS)
    config = EXPERIMENTS[name].plan(scale)[0]
    store = Store.for_scale(scale, results)
    record = store.get(config)
    folder = record and store.kept(record)
    if not folder:
        raise ReproError(f"no weights of {name} at {scale} are stored next to a record in {store.folder}; make them "
                         f"with `{command(config)}`, where weights=bf16.")
    return _load(record, folder / "model", name)


def install(folder: Path | str, results: Path | str | None = None) -> Path:
    """Store the record of a finished run of a base model, and its weights, with the records of its scale.

    folder: the run's own, `runs/<id>` of a work folder, with record.json and model/. Returns the folder of the weights.
    Raises ReproError if these are missing, for weights that are not the record's, and if another record has that id.
    """
    folder = Path(folder)
    record = Record.read(folder / "record.json")
    if record.experiment not in [one.name for one in EXPERIMENTS.values()] or "model" not in record.notes:
        raise ReproError(f"{folder / 'record.json'} is of {record.experiment} and lists no stored weights; give the "
                         "folder of a base model that was trained with weights=bf16.")
    weights.check(record, folder / "model")
    _load(record, folder / "model", next(name for name, one in EXPERIMENTS.items() if one.name == record.experiment))
    store = Store.for_scale(record.scale, results)
    there = store.path(record)
    if there.exists() and Record.read(there).digest != record.digest:
        raise ReproError(f"{there} is another result of the same run; delete it first to replace it.")
    store.put(record, folder / "model")
    return store.kept(record) / "model"


def _records(results: Path | str | None) -> list[tuple[Record, Store, str]]:
    stores = {scale: Store.for_scale(scale, results) for scale in SCALES}
    return [(record, store, name) for name, one in EXPERIMENTS.items() for scale, store in stores.items()
            for record in store.find(one.name, scale)]


def _base_model(record: Record, store: Store, name: str) -> BaseModel:
    try:
        folder = store.kept(record)
        state = KEPT if folder else NOT_KEPT
    except ReproError as error:
        folder, state = None, str(error)
    metric = next((one for one in LOSSES if one in record.metrics), None)
    return BaseModel(
        name, record.experiment, record.scale, record.id, record.data["name"], int(record.metrics["parameters"]),
        record.config.get("weights", "fp32"), record.notes["tokens"], metric and record.metrics[metric],
        record.units[metric] if metric else "", (folder / "model" / WEIGHTS).stat().st_size if folder else None, state)


def _load(record: Record, folder: Path, name: str) -> tuple[Any, Any]:
    """The model and tokenizer of a checked folder. Raises ReproError if they do not match the record."""
    from transformers import AutoConfig

    from repro.data import Tokeniser
    from repro.models import load_causal_lm, load_masked_lm

    loaders: dict[str, Callable] = {"gpt2-mini": load_causal_lm, "roberta-mini": load_masked_lm}
    more = {"roberta-mini": 2}.get(name, 0)  # rows of positions before the first
    coder = Tokeniser.read(folder / "tokenizer.json")
    with reading(folder, "results/base"):
        config_of(None, folder)
        config = AutoConfig.from_pretrained(str(folder))
    sizes = {key: record.config[key] for key in ("n_layer", "n_embd", "n_head", "n_positions")}
    found = {"n_layer": config.num_hidden_layers, "n_embd": config.hidden_size, "n_head": config.num_attention_heads,
             "n_positions": config.max_position_embeddings - more}
    for key, value in [*sizes.items(), ("vocab_size", coder.vocab_size)]:
        if found.get(key, config.vocab_size) != value:
            raise ReproError(f"{folder / 'config.json'} belongs to another model: its {key} is "
                             f"{found.get(key, config.vocab_size)}, that of record {record.id} {value}; restore it "
                             "from git.")
    model = loaders[name](folder).eval()
    if (n := sum(weight.numel() for weight in model.parameters())) != record.metrics["parameters"]:
        raise ReproError(f"{folder} holds {n:,} weights, but record {record.id} lists "
                         f"{record.metrics['parameters']:,.0f}; restore it from git.")
    return model, coder
