"""Pre-training of a base model, the same for next-token prediction and for filling in masked tokens."""

import hashlib
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro import paths
from repro.study import Absent, Estimate, Outcome, RunConfig, kept_model

PROCESS = 2**30  # bytes of Python, torch and a tokenized corpus, without a model
# FLOP/s sustained by the machine of each scale.
RATE = {"smoke": 4e10, "small": 5e10, "pretrained": 1.5e12, "medium": 3e13, "paper": 6e13}
BF16 = 3  # times that in bf16 on a CPU with such instructions; the rates of GPUs are in bf16 already
# Weight decay applies to matrices and embeddings, or also to biases, norms and other vectors, as in older runs.
Decayed = Annotated[Literal["matrices", "all"], Absent("all")]
Earlier = tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, lt=1)]]


OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon"}


def with_optimizer(name: str, own: str, others: Iterable[str]) -> str:
    """The name of a row, followed by its optimizer if the rows of the table use several.

    >>> with_optimizer("T-D", "muon", ["adamw", "muon"]), with_optimizer("T-D", "muon", ["muon"])
    ('T-D (Muon)', 'T-D')
    """
    return f"{name} ({OPTIMIZERS[own]})" if len({own, *others}) > 1 else name


class Config(RunConfig):
    """Tokenizer, architecture and training. At `paper` scale only `source` counts."""

    source: str = "scratch"  # "scratch", or the name of a pretrained model that is used as it is
    tokeniser: str
    vocab_size: int = Field(4096, ge=2)
    tokeniser_corpora: tuple[str, ...] = ()
    n_layer: int = Field(4, ge=1)
    n_embd: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    n_positions: int = Field(1024, ge=2)
    sequence: int = Field(1024, ge=1)  # tokens per training sequence
    batch_size: int = Field(8, ge=1)  # sequences per step
    tokens: int = Field(1, ge=1)  # read in training
    learning_rate: float = Field(2e-3, gt=0)
    warmup_steps: int = Field(100, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    decayed: Decayed = "matrices"
    validate_every: int = Field(1_000_000, ge=1)  # tokens
    precision: Literal["no", "bf16"] = "no"
    optimizer: Annotated[Literal["adamw", "muon"], Absent("adamw")] = "adamw"
    # Stages before that of `sequence`: (tokens per sequence, share of the steps). Every stage reads held-out text in
    # windows of `sequence`, so that the kept weights are the best at the length at which the model is used.
    growing: Annotated[tuple[Earlier, ...], Absent(())] = ()
    weights: Annotated[Literal["fp32", "bf16"], Absent("fp32")] = "fp32"  # format in which they are kept

    @model_validator(mode="after")
    def _fits(self):
        check_growing(self.growing, self.batch_size, sequence=self.sequence)
        if self.sequence > self.n_positions:
            raise ValueError(f"sequence is {self.sequence} tokens, but the context is n_positions={self.n_positions}")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd}; it must be a multiple of n_head={self.n_head}")
        if self.weights == "bf16" and self.tokeniser == "word":
            raise ValueError("weights=bf16 are stored with a tokenizer file, which tokeniser=word does not have; use "
                             "tokeniser=bpe")
        if self.tokeniser == "bpe" and self.vocab_size < 257:
            raise ValueError(f"vocab_size is {self.vocab_size}; byte-level BPE needs at least 257")
        return self


def check_growing(growing, batch_size: int, **last: int) -> None:
    """Raises ValueError unless these stages, (tokens per sequence, share of the steps), can come before the last one,
    of `batch_size` sequences whose length is the one keyword: the name of the setting, and its value."""
    (name, longest), = last.items()
    for length, _ in growing:
        if length > longest or batch_size * longest % length:
            raise ValueError(f"growing has sequences of {length} tokens; they must be at most {name}={longest} and "
                             f"divide the {batch_size * longest} tokens of a batch")
    if any(b < a for (a, _), (b, _) in pairwise(growing)):
        raise ValueError(f"growing has sequences of {', '.join(str(length) for length, _ in growing)} tokens; they "
                         "must not become shorter")
    if sum(share for _, share in growing) > 1 - 1e-9:
        raise ValueError("growing takes all of the steps; leave some for sequences of full length")


def new_tokeniser(config):
    """The tokenizer of a base model of this config: trained on its corpora, or that of its published model."""
    from repro.data import Tokeniser, tokeniser
    from repro.models.pretrained import folder

    if config.tokeniser == "cut":
        return Tokeniser.read(cut_model(config) / "tokenizer.json")
    if config.tokeniser == "own":
        return Tokeniser.read(folder(config.source) / "tokenizer.json")
    return tokeniser(config.tokeniser, config.vocab_size, config.tokeniser_corpora)


def cut_model(config) -> Path:
    """The folder of the pretrained model `config.source` with a vocabulary cut to the study's texts; it is cut once and
    kept in the work folder. Raises ReproError, with the command that gets the model, if it is not here."""
    from repro.data import corpus
    from repro.models.pretrained import declared, folder
    from repro.models.vocabulary import STUDY_TEXTS, cut, study_texts

    made_of = [declared(config.source).sha256, repr(STUDY_TEXTS),
               *(corpus(name).fingerprint() for name in config.tokeniser_corpora)]
    target = paths.work() / "cut" / f"{config.source}-{hashlib.sha256(' '.join(made_of).encode()).hexdigest()[:16]}"
    return target if target.exists() else cut(folder(config.source), target, study_texts())


def tokeniser_of(config):
    """The tokenizer that a base model of this config was trained with: from the file next to its weights, which needs
    no corpus, or made from its corpora if no weights are stored.

    Raises ReproError for incomplete stored weights, and for missing corpora.
    """
    from repro.data import Tokeniser

    folder = kept_model(config)
    return Tokeniser.read(folder / "tokenizer.json") if folder else new_tokeniser(config)


def stages(config) -> list[tuple[int, int, int]]:
    """(tokens per sequence, sequences per step, steps) of each stage of training; all steps have equally many
    tokens."""
    steps = math.ceil(config.tokens / (config.batch_size * config.sequence))
    return split(config.growing, config.sequence, config.batch_size, steps)


def split(growing, longest: int, batch_size: int, steps: int) -> list[tuple[int, int, int]]:
    """The `stages` of `steps` steps, the last with `batch_size` sequences of `longest` tokens.

    >>> split(((4, 0.5),), longest=16, batch_size=2, steps=10)
    [(4, 8, 5), (16, 2, 5)]
    """
    found, before = [], 0.0
    for length, share in (*growing, (longest, 1.0)):
        taken = round(steps * min(1.0, before + share)) - round(steps * before)
        found.append((length, batch_size * longest // length, taken))
        before += share
    return found


def growing_batches(config, text, seed: int | None = None):
    """Batches of `text` (a `repro.data.Tokens`) in sequences that grow from stage to stage.

    seed: of their order; None: that of the config.
    """
    from repro.training import Sequences, Stages

    seed = config.seed if seed is None else seed
    return Stages([(Sequences(text.ids, length, size, seed, text.targets), steps)
                   for length, size, steps in stages(config)])


def pretrain(config, context, name: str, objective, batches, loss):
    """Train the model of `objective`; return it as it is stored, the result of training, and its loss.

    loss: from the model to nats per target of held-out text. A killed training resumes where it stopped.
    """
    import torch

    from repro.training import TrainConfig, train

    model = objective.model
    if config.precision == "bf16" and not torch.cuda.is_available():
        model.set_attn_implementation("eager")  # plain products: on a CPU 1.2 times the tokens/s of fused ones
    settings = TrainConfig(config.tokens, config.learning_rate, config.warmup_steps, "linear", config.weight_decay,
                           validate_every=config.validate_every, precision=config.precision, seed=config.seed,
                           optimizer=config.optimizer, decayed=config.decayed)
    with context.progress(config.tokens, f"pretraining {name}", "tokens") as bar:
        result = train(objective, batches, settings, context.folder, lambda trained: loss(trained.model), bar)
    if config.weights == "fp32":
        return model, result, result.best_loss
    model = model.bfloat16().float()  # the values that others will read
    return model, result, loss(model)


def outcome(config, context, name: str, model, coder, result=None, metrics=None, units=None) -> Outcome:
    """Save the model, in bf16 together with its tokenizer, and return the outcome of the run.

    result: of the training; None for a published checkpoint. metrics, units: in addition to the number of weights.
    """
    from repro.data import files
    from repro.models import save_model
    from repro.training import TrainResult

    result = result or TrainResult(curves={})
    folder = context.folder / "model"
    save_model(model, folder, config.weights)
    notes = {"tokens": result.tokens, "tokeniser": coder.fingerprint}
    if config.weights == "bf16":
        coder.save(folder / "tokenizer.json")
        notes["model"] = files.sha256(folder / "model.safetensors")
    metrics = {**(metrics or {}), "parameters": sum(p.numel() for p in model.parameters())}
    return Outcome(metrics, {**(units or {}), "parameters": "weights"}, name, result.curves, notes=notes)


def estimate(config, n: int, per_token: float) -> Estimate:
    """The cost of training a model with `n` weights at `per_token` FLOPs per token."""
    if config.source != "scratch":
        return Estimate(n, 0, 0.0, 4 * n, 60.0, note=f"({config.source} as it is)")
    memory = PROCESS + 16 * n + config.batch_size * config.sequence * 4 * (34 * config.n_layer * config.n_embd
                                                                 + 3 * config.vocab_size)
    faster = BF16 if config.precision == "bf16" and config.scale in ("smoke", "small") else 1
    seconds = per_token * config.tokens / (faster * RATE[config.scale])
    return Estimate(n, config.tokens, per_token * config.tokens, memory, seconds)
