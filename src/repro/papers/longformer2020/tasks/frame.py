"""The parts that all tasks share: declaration of a task, model, training, reading with it, and the record."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from repro.errors import ReproError
from repro.papers.base.models import EXPERIMENTS
from repro.papers.base.pretraining import PROCESS, tokeniser_of
from repro.papers.longformer2020 import conversion
from repro.papers.longformer2020.conversion import base_of
from repro.papers.longformer2020.tasks.reader import AS_SHORT, CUT, SHORT, Example, Words
from repro.study import Estimate, Outcome, RunConfig

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from repro.models.long_reader import TaskReader

PRETRAINING = EXPERIMENTS["roberta-mini"]
SPLITS = "validation", "test"
SHOWN = 10  # examples that an error names


@dataclass(frozen=True)
class Task(ABC):
    """A task on long texts: what it reads, its head, and how its predictions are scored.

    scales: the settings of each scale. printed: its row in Table 7, and metric: what that row shows. unit: of its
    intervals, as in a claim. split: whose scores count. special: tokens that it adds. first_piece: whether the short
    model needs only the first piece of a text. piece: tokens of its pieces; None: as many as it has positions. cuts:
    whether a context ends where the Longformer's positions do; if not, the Longformer reads on in pieces, too. cost:
    the time of training, in that of the encoder. units: of its metrics, in % where none is given.
    """

    name: str
    scales: Mapping[str, Mapping[str, Any]]
    printed: str
    metric: str
    unit: str = "document"
    split: str = "test"
    special: Sequence[str] = ()
    first_piece: bool = False
    piece: int | None = None
    cuts: bool = True
    cost: float = 1.0
    units: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def rows(self, config: Any) -> dict[str, list]:
        """The rows of `train`, `validation` and `test`. The weights are chosen on `validation`; `test` may be empty."""

    @abstractmethod
    def example(self, row: Any, words: Words) -> Example:
        """A row in tokens. Its targets may lie beyond a context that is cut afterward."""

    @abstractmethod
    def head(self, config: Any, width: int) -> "nn.Module":
        """A module with `forward(read: Read, batch)`, which returns its outputs in any form, and `losses(outputs,
        batch)`, which returns nats (B,). `batch` holds the tensors of `padded` and of `targets`."""

    @abstractmethod
    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        """The targets of a batch: tensors whose first dimension is the number of examples."""

    @abstractmethod
    def predictions(self, outputs: Any, examples: Sequence[Example]) -> list:
        """One prediction for each example, from the outputs of the head."""

    @abstractmethod
    def score(self, rows: Sequence[Any], predictions: Sequence[Any]) -> tuple[dict[str, float], dict[str, list]]:
        """Metrics, and for each row what intervals and claims need, by name."""

    def known(self, config: Any, rows: dict[str, list]) -> dict[str, float]:
        """Further metrics that need no model, such as the best possible score of generated texts."""
        return {}

    def values(self, records: Sequence[Any]) -> "np.ndarray":
        """(seeds, units) in %: numbers whose mean is the metric."""
        return by_unit(records, self.metric, self.split)

    def unit_of(self, metric: str) -> str:
        """The unit of a metric; "test_" and "validation_" in front of a name change nothing."""
        name = metric.partition("_")[2] if metric.startswith(SPLITS) else metric
        return UNITS.get(name) or self.units.get(name) or (
            "nats per example" if name.endswith("nats") else "per cent")

    def model(self, config: Any, context: Any, words: Words) -> "TaskReader":
        """The model to train. The seed draws its head, and the embeddings of added tokens."""
        return new_model(config, context, self, words)

    def execute(self, config: Any, context: Any) -> Outcome:
        """A run: one model trained and scored."""
        return execute(config, context, self)


def by_unit(records: Sequence[Any], name: str, split: str = "test") -> "np.ndarray":
    """(seeds, units), such as questions: one of the lists that records of different seeds keep for each unit."""
    import numpy as np

    return np.array([record.documents[split][name] for record in records], float)


SOURCES = conversion.BASES["paper"]  # encoders of the paper's sizes


def check_source(config: Any) -> None:
    """Raise ValueError unless a source is named at `paper` alone: elsewhere the scale has its encoder."""
    if config.source is not None and config.scale != "paper":
        raise ValueError(f"source is {config.source}, but scale {config.scale} has an encoder of its own; leave it "
                         "out, or use the scale paper")


def positions_of(config: Any) -> int:
    """The positions of the Longformer that starts from more masked-token training."""
    return conversion.EXPERIMENT.plan(config.scale)[0].max_positions


def start_of(config: Any) -> RunConfig:
    """The run that leaves the model that is fine-tuned. At `paper` a Longformer has read long texts before, as the
    paper's has (section 5); elsewhere it is converted from the encoder, and learns to read long texts from the task."""
    base = base_of(config)
    if config.scale != "paper" or config.model == SHORT:
        return base
    return next(one for one in conversion.EXPERIMENT.plan(config.scale)
                if one.configuration == "long" and one.source == base.source)


def needs(config: Any) -> list[RunConfig]:
    """The runs that leave what is fine-tuned, and the encoder's tokenizer."""
    return list(dict.fromkeys([start_of(config), base_of(config)]))


def words_of(config: Any, task: Task) -> Words:
    """The tokenizer of the encoder, with the task's tokens."""
    return Words(tokeniser_of(base_of(config)), task.special)


def new_model(config: Any, context: Any, task: Task, words: Words) -> "TaskReader":
    """The pretrained encoder with the task's head. The seed draws the head, and the embeddings of added tokens."""
    import torch

    from repro.models.long_reader import Reader, TaskReader, load_encoder, reader_from

    start = start_of(config)
    torch.manual_seed(config.seed)
    folder = context.need(start)[1] / "model"
    if start.experiment == conversion.EXPERIMENT.name:
        long = longformer_of(folder, config.window)
        if words.added:
            long.resize_token_embeddings(words.coder.vocab_size + len(words.added), mean_resizing=False)
        return TaskReader(Reader(long, words.sep), task.head(config, long.config.hidden_size))
    base = load_encoder(folder)
    head = task.head(config, base.config.hidden_size)
    return TaskReader(reader_from(base, words, config.model, config.max_positions, config.window, task.first_piece,
                                  task.piece),
                     head)


def longformer_of(folder: Any, window: int) -> "nn.Module":
    """A saved Longformer with this window in every layer."""
    from repro.checkpoints import read_config
    from repro.models import Longformer

    return Longformer.from_pretrained(folder, attention_window=[window] * read_config(folder)["num_hidden_layers"])


def encoded(config: Any, task: Task, rows: Iterable[Any], words: Words) -> list[Example]:
    """The examples of these rows: contexts are cut at the positions of the Longformer, for every model, unless it reads
    on in pieces; for the controls at `cut` tokens, or where the first piece of the short model ends. Raises ReproError
    if what stands before a context fills what the model reads at once."""
    found = [task.example(row, words) for row in rows]
    check_room(config, task, found)
    if task.cuts:
        found = [one.cut(config.max_positions - len(one.prefix) - 1) for one in found]
    if config.model == CUT:
        return [one.cut(config.cut) for one in found]
    if config.model == AS_SHORT:
        piece = piece_of(config, task)
        return [one.cut(piece - len(one.prefix) - 1) for one in found]
    return found


def piece_of(config: Any, task: Task) -> int:
    """Tokens that a model reads at once."""
    if config.model not in (SHORT, AS_SHORT):
        return config.max_positions
    known = base_of(config).n_positions
    return min(task.piece or known, known)


def check_room(config: Any, task: Task, examples: Sequence[Example]) -> None:
    """Raise ReproError for examples whose prefix leaves no room for a token of the context and the separator."""
    piece = piece_of(config, task)
    full = [f"{one.row.id} ({len(one.prefix)} tokens)" for one in examples if len(one.prefix) + 2 > piece]
    if full:
        more = f" and {len(full) - SHOWN} more" if len(full) > SHOWN else ""
        raise ReproError(f"{len(full)} of {len(examples)} examples of {config.corpus} leave no room for their context, "
                         f"since model {config.model} reads {piece} tokens at once, and what precedes the context has "
                         f"more than {piece - 2}: {', '.join(full[:SHOWN])}{more}; leave them out of the corpus, or "
                         "take a base with more positions.")


def collate(task: Task, examples: Sequence[Example]) -> "dict[str, Tensor]":
    """A batch of the reader's and of the task's tensors."""
    from repro.models.long_reader import padded

    return padded(examples) | task.targets(examples)


def autocast(config: Any, model: "nn.Module") -> AbstractContextManager:
    """Within it a model computes in the precision of the config."""
    import torch

    device = next(model.parameters()).device.type
    return torch.autocast(device, torch.bfloat16, enabled=config.precision == "bf16")


def read_with(config: Any, task: Task, model: "TaskReader", examples: Sequence[Example],
              progress: Any = None) -> tuple[list, list[float]]:
    """The prediction and the loss of each example, in nats. Batches hold texts of similar length."""
    import torch

    from repro.cpu import exact_products
    from repro.ids import evaluating

    order = sorted(range(len(examples)), key=lambda k: len(examples[k]))
    device, found, nats = next(model.parameters()).device, [None] * len(order), [0.0] * len(order)
    most = config.batch_size * max(map(len, examples), default=1)
    exact = exact_products(model if config.precision == "no" else None, most, device)
    with torch.no_grad(), evaluating(model), exact, autocast(config, model):
        for start in range(0, len(order), config.batch_size):
            these = order[start:start + config.batch_size]
            some = [examples[k] for k in these]
            batch = {name: x.to(device) for name, x in collate(task, some).items()}
            outputs = model(batch)
            losses = model.head.losses(outputs, batch).tolist()
            for k, prediction, loss in zip(these, task.predictions(outputs, some), losses, strict=True):
                found[k], nats[k] = prediction, loss
            if progress is not None:
                progress.advance(len(some))
    return found, nats


def fit(config: Any, context: Any, task: Task, model: "TaskReader", train: list[Example], chosen_on: list[Example],
        name: str = "training"):
    """Train a model in place; the weights are those of the epoch that is best on `chosen_on`, if there are any.

    Returns the result of training. All models get the same examples in the same order; the examples of a batch
    have similar lengths, counted before any cut.
    """
    from repro.training import HeadLoss, LengthBuckets, TrainConfig
    from repro.training import train as training

    def validate(objective: HeadLoss) -> dict[str, float]:
        predictions, nats = read_with(config, task, objective.model, chosen_on)
        metrics, _ = task.score([one.row for one in chosen_on], predictions)
        return {"loss": sum(nats) / len(nats), **metrics}

    lengths = [one.whole or len(one) for one in train]
    batches = LengthBuckets(train, lengths, lambda some: collate(task, some), config.batch_size, config.seed)
    total = config.epochs * len(train)
    settings = TrainConfig(
        total, config.learning_rate, int(config.warmup_share * total / config.batch_size), "linear",
        config.weight_decay, validate_every=len(train), precision=config.precision, seed=config.seed,
        optimizer=config.optimizer, best=config.best, best_is="lowest" if config.best == "loss" else "highest",
        module_learning_rate=config.head_learning_rate)
    if config.recompute:
        model.reader.encoder.activation_checkpointing_enable()
    with context.progress(total, f"{name} {config.task} {config.model}", "examples") as bar:
        return training(HeadLoss(model.train(), task.name), batches, settings, context.folder / name,
                        validate if chosen_on else None, bar)


def execute(config: Any, context: Any, task: Task) -> Outcome:
    """Train a model on a task and score it."""
    words, rows = words_of(config, task), task.rows(config)
    model = task.model(config, context, words)
    examples = {split: encoded(config, task, found, words) for split, found in rows.items()}
    result = fit(config, context, task, model, examples["train"], examples["validation"])
    splits = [split for split in SPLITS if examples.get(split)]
    metrics, documents = {}, {}
    with context.progress(sum(len(examples[split]) for split in splits), "reading", "examples") as bar:
        for split in splits:
            predictions, nats = read_with(config, task, model, examples[split], bar)
            scores, documents[split] = task.score(rows[split], predictions)
            metrics |= {f"{split}_{name}": value for name, value in scores.items()}
            metrics[f"{split}_nats"] = sum(nats) / len(nats)
            metrics |= {task.metric: scores[task.metric]} if split == task.split and task.metric in scores else {}
    most = model.reader.piece if model.reader.first_piece else config.max_positions
    lengths = [min(len(one), most) if task.cuts else len(one) for one in examples[splits[-1]]]
    metrics |= recovered(metrics.get(task.metric), task.known(config, rows)) | {
        "tokens_read": sum(lengths) / len(lengths), "train_examples": len(rows["train"]),
        "parameters": sum(weight.numel() for weight in model.parameters())}
    return Outcome(metrics, {name: task.unit_of(name) for name in metrics}, config.model, result.curves, documents,
                   {"tokeniser": words.coder.fingerprint, "chosen": result.best})


def recovered(score: float | None, known: dict[str, float]) -> dict[str, float]:
    """`known`, and for generated texts the share of the gain from long context that a score in % recovers: 0 for the
    best score without long context, 1 for the best possible one."""
    alone = known.get("best_short", known.get("best_without_context"))
    if score is None or alone is None or known["best"] <= alone:
        return known
    return known | {"share_recovered": (score - alone) / (known["best"] - alone)}


UNITS = {"share_recovered": "of what long context can give", "tokens_read": "tokens per example",
         "train_examples": "examples", "parameters": "weights"}
# Training examples, those read without training, and the tokens of a text, about.
KNOWN = {"synthetic-reviews": (1_200, 300, 130), "imdb-subset": (9_500, 5_500, 290), "imdb": (22_500, 27_500, 300),
         "hyperpartisan": (452, 193, 800), "synthetic-coreference": (240, 250, 150), "litbank": (80, 20, 2_500),
         "ontonotes": (2_802, 691, 600),
         "synthetic-far-hops": (3_000, 200, 95), "hotpotqa-subset": (2_200, 500, 1_330),
         "synthetic-candidates": (1_600, 200, 112), "book-names": (1_200, 600, 1_170),
         "wikihop": (43_738, 5_129, 1_535), "triviaqa": (110_648, 7_993, 3_500), "hotpotqa": (90_447, 7_405, 1_330)}
RATE = {"smoke": 2e10, "pretrained": 1e11, "medium": 3e13, "paper": 6e13}  # FLOP/s in training
LONGEST = 4  # times the mean: tokens of the longest text of a corpus, about


def estimate(config: Any, task: Task, positions: int, held_out: int = 0) -> Estimate:
    """The costs of a run, about.

    positions: of its model. held_out: training examples that are read after every epoch to choose the weights.
    """
    base = base_of(config)
    n_train, n_read, length = KNOWN.get(config.corpus, (1_000, 300, 1_000))
    n_train = config.n_train or n_train
    d, layers, piece = base.n_embd, base.n_layer, base.n_positions
    short = config.model in (SHORT, AS_SHORT)
    most = piece if short and task.first_piece else config.max_positions
    if config.model == CUT:
        most = config.cut
    read = min(most, length)
    seen = min(piece if config.model == SHORT else config.window, read)
    forward = read * layers * (24 * d**2 + 4 * seen * d)
    flops = forward * (3 * config.epochs * n_train + n_read + config.epochs * held_out)
    n = PRETRAINING.estimate(base).parameters + (positions - piece) * d + 3 * layers * (d**2 + d)
    kept = (config.batch_size * min(most, LONGEST * length) * d * 4
            * (2 * layers + 34 if config.recompute else 34 * layers))
    return Estimate(n, config.epochs * n_train * read, flops, PROCESS + 16 * n + kept,
                    task.cost * flops / RATE[config.scale])
