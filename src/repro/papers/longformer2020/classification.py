"""Classification of long documents (Beltagy et al. 2020, section 6.3, Table 7): whole, or cut as RoBERTa must cut them.

The paper fine-tunes RoBERTa on the first 512 wordpieces and Longformer on up to 4,096. Here one small encoder is
trained from scratch on both, so the two differ only in what they read. On real articles this is only part of the
paper's experiment: no pre-training, our own split, our own BPE tokens, and the longest documents are cut even where
most are read whole (`test_cut` counts them).
"""

from typing import Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.pretraining import Decayed
from repro.papers.longformer2020.classification_tables import hyperpartisan
from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, register


class Config(RunConfig):
    """A classifier: how much of a document it reads, its size and its training; or a control that reads nothing."""

    model: Literal["encoder", "majority", "positive"] = "encoder"  # controls: the most common label, or always label 1
    length: int = Field(ge=2)  # tokens read from the beginning of a document, including <|endoftext|>
    tokeniser: Literal["word", "bpe"] = "bpe"
    vocab_size: int | None = Field(None, ge=257)  # of "bpe"; "word" has a fixed vocabulary
    window: int = Field(32, ge=2)  # keys on both sides of a token together
    n_layer: int = Field(2, ge=2)  # 2 or more: the last layer is read at the first token, which sees everything
    n_embd: int = Field(64, ge=1)
    n_head: int = Field(2, ge=1)
    position_size: int = Field(16, ge=2)  # sines and cosines of a relative position
    dropout: float = Field(0.3, ge=0, lt=1)
    epochs: int = Field(4, ge=1)
    batch_size: int = Field(8, ge=1)  # documents
    learning_rate: float = Field(2e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    optimizer: Literal["adamw", "muon"] = "muon"
    best: Literal["f1", "accuracy", "loss"] = "f1"  # selects the weights; validated once per epoch

    @model_validator(mode="after")
    def _fits(self):
        if (self.tokeniser == "bpe") != (self.vocab_size is not None):
            raise ValueError(f"tokeniser is {self.tokeniser} and vocab_size {self.vocab_size}; 'bpe' needs a size, "
                             "'word' takes none")
        if self.window % 2:
            raise ValueError(f"window is {self.window} keys; it must be even, with half on each side")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; n_embd must be a multiple of n_head")
        return self


def execute(config, context):
    from repro.data import corpus
    from repro.evaluation.classification import METRICS, score

    source = corpus(config.corpus)
    if len(source.labels) != 2:
        raise ReproError(f"corpus {source.name} has {len(source.labels)} labels; this experiment needs exactly 2.")
    rows = {split: list(source.examples(split)) for split in ("train", "validation", "test")}
    labels = {split: [row.label for row in found] for split, found in rows.items()}
    predictions, metrics, curves, notes = (trained if config.model == "encoder" else constant)(config, context, rows)
    for split, found in predictions.items():
        metrics |= {f"{split}_{name}": score(labels[split], found, name) for name in METRICS}
    if source.generator:
        hits = source.generator.best_hits(rows["test"], config.length - 1 if config.model == "encoder" else 0)
        metrics["test_best_accuracy"] = sum(hits) / len(hits)
    documents = {split: {"label": labels[split], "prediction": found} for split, found in predictions.items()}
    units = {name: UNITS.get(name, "share") for name in metrics}
    return Outcome(metrics, units, config.model, curves, documents, notes)


UNITS = {"parameters": "weights", "tokens_read": "tokens per test document", "test_cut": "test documents"}


def constant(config, context, rows):
    """Predictions of a control that reads nothing, by split, and its metrics, curves and notes, which are empty."""
    labels = [row.label for row in rows["train"]]
    label = 1 if config.model == "positive" else max(sorted(set(labels)), key=labels.count)
    return {split: [label] * len(rows[split]) for split in ("validation", "test")}, {}, {}, {}


def trained(config, context, rows):
    """Predictions of an encoder trained on the train split, by split, and its metrics, curves and notes."""
    import torch

    from repro.data import tokeniser
    from repro.evaluation.classification import log_probabilities, padded
    from repro.models import Encoder
    from repro.training import Labels, LengthBuckets, train

    coder = tokeniser(config.tokeniser, config.vocab_size or 0, config.corpus)
    whole = {split: [[coder.bos, *coder.encode(row.text)] for row in found] for split, found in rows.items()}
    texts = {split: [(ids[:config.length], row.label) for ids, row in zip(whole[split], found, strict=True)]
             for split, found in rows.items()}
    lengths = {split: [len(ids) for ids, _ in found] for split, found in texts.items()}
    metrics = {"tokens_read": sum(lengths["test"]) / len(lengths["test"]),
               "test_cut": sum(len(ids) > config.length for ids in whole["test"])}

    def validate(objective):
        return quality(log_probabilities(objective.model, texts["validation"]),
                       [row.label for row in rows["validation"]])

    torch.manual_seed(config.seed)
    model = Encoder(encoder_config(config, coder.vocab_size))
    batches = LengthBuckets(texts["train"], lengths["train"], padded, config.batch_size, config.seed)
    settings = train_config(config, len(rows["train"]))
    with context.progress(settings.tokens, "training", "documents") as bar:
        result = train(Labels(model), batches, settings, context.folder / "training", validate, bar)
    predicted = {split: log_probabilities(model, texts[split]).argmax(-1).tolist() for split in ("validation", "test")}
    return (predicted, {"parameters": model.config.parameters} | metrics, result.curves,
            {"tokeniser": coder.fingerprint, "chosen": result.best})


def quality(log_probabilities, labels):
    """The results of a validation: the loss in nats per document, accuracy and F1."""
    from repro.evaluation.classification import METRICS, score

    predicted = log_probabilities.argmax(-1)
    loss = -log_probabilities[range(len(labels)), labels].mean()
    return {"loss": float(loss)} | {name: score(labels, predicted, name) for name in METRICS}


def encoder_config(config, vocab_size: int):
    """The model's size and patterns."""
    from repro.models import EncoderConfig, classifier_patterns

    return EncoderConfig(vocab_size, config.n_embd, config.n_head, classifier_patterns(config.window, config.n_layer),
                         config.dropout, config.position_size)


def train_config(config, n_train: int):
    """Training settings for n_train documents, with a validation after every epoch."""
    from repro.training import TrainConfig

    total = config.epochs * n_train
    return TrainConfig(total, config.learning_rate, int(config.warmup_share * total / config.batch_size), "linear",
                       config.weight_decay, validate_every=n_train, seed=config.seed, optimizer=config.optimizer,
                       decayed=config.decayed, best=config.best,
                       best_is="lowest" if config.best == "loss" else "highest")


KNOWN = {"synthetic-documents": (800, 513), "hyperpartisan": (516, 835)}  # training documents, tokens of each
WORDS = 217  # ids of the generated documents
RATE = 1.5e10  # FLOP/s


def estimate(config):
    if config.model != "encoder":
        return Estimate(0, 0, 0.0, 2**28, 1.0)
    n_train, whole = KNOWN.get(config.corpus, (1_000, 500))
    read = min(config.length, whole)
    model = encoder_config(config, config.vocab_size or WORDS)
    flops = model.flops_per_token(read) * n_train * read * (3 * config.epochs + 0.2)
    kept = 4 * config.batch_size * config.length * config.n_layer * 40 * config.n_embd
    return Estimate(model.parameters, config.epochs * n_train * read, flops, 2**29 + 16 * model.parameters + kept,
                    flops / RATE)


# At smoke, nothing in the first 128 words of a document reveals its label. At small, the shorter length is the paper's.
SCALES = {
    "smoke": {"corpus": "synthetic-documents", "tokeniser": "word", "n_embd": 32, "epochs": 2, "dropout": 0.0,
              "learning_rate": 5e-3, "optimizer": "adamw"},
    "small": {"corpus": "hyperpartisan", "decayed": "all", "vocab_size": 4_096},
}
LENGTHS = {"smoke": (513, 129), "small": (2_048, 512)}


def grid(scale: str) -> list[dict]:
    """The whole document, its beginning, and the controls that read nothing."""
    whole, beginning = LENGTHS[scale]
    return [{"model": "encoder", "length": whole}, {"model": "encoder", "length": beginning},
            {"model": "majority", "length": whole}, {"model": "positive", "length": whole}]


PAPER = "longformer2020"
EXPERIMENT = Experiment(
    name="classify-documents", paper=PAPER, summary="Long documents classified, read whole or cut: accuracy and F1.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate)
TABLE = Artifact(
    id="longformer2020-table7-hyperpartisan", paper=PAPER, chapter="20_classification_and_coreference",
    experiment=EXPERIMENT.name, source="Table 7 (a part: Hyperpartisan)", build=hyperpartisan,
    title="Hyperpartisan articles: F1 of the paper's pretrained models, and of small ones trained from scratch",
    look_for="Ours have no pre-training and their own split and tokens; documents that are too long are cut.")
register(EXPERIMENT, TABLE)
