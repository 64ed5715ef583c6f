"""How a base model is pretrained: alike for one that predicts the next token and one that fills in what is masked."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.study import Absent, Estimate, Outcome, RunConfig, kept_model

PROCESS = 2**30  # bytes that Python, torch and a tokenised corpus take before any model is there
RATE = {"smoke": 4e10, "small": 5e10, "medium": 3e13, "paper": 6e13}  # FLOP/s sustained by what each scale is meant for
BF16 = 3  # times that in bf16 on a CPU with such instructions; the rates of GPUs are in bf16 already
# What weight decay changes: matrices and embeddings, or biases, norms and other vectors too, as it once did.
Decayed = Annotated[Literal["matrices", "all"], Absent("all")]
Earlier = tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, lt=1)]]


OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon"}


def with_optimizer(name: str, own: str, others: Iterable[str]) -> str:
    """The name of a row, with its optimizer behind it where the rows of its table were not all trained by one.

    >>> with_optimizer("T-D", "muon", ["adamw", "muon"]), with_optimizer("T-D", "muon", ["muon"])
    ('T-D (Muon)', 'T-D')
    """
    return f"{name} ({OPTIMIZERS[own]})" if len({own, *others}) > 1 else name


class Config(RunConfig):
    """Tokeniser, architecture and training. At `paper` scale only `source` counts."""

    source: str = "scratch"  # "scratch", or a checkpoint on the hub that is taken as it is
    tokeniser: str
    vocab_size: int = Field(4096, ge=2)
    tokeniser_corpora: tuple[str, ...] = ()
    n_layer: int = Field(4, ge=1)
    n_embd: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    n_positions: int = Field(1024, ge=2)
    sequence: int = Field(1024, ge=1)  # tokens per training sequence
    batch_size: int = Field(8, ge=1)  # sequences per step
    tokens: int = Field(1, ge=1)  # that are read
    learning_rate: float = Field(2e-3, gt=0)
    warmup_steps: int = Field(100, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    decayed: Decayed = "matrices"
    validate_every: int = Field(1_000_000, ge=1)  # tokens
    precision: Literal["no", "bf16"] = "no"
    optimizer: Annotated[Literal["adamw", "muon"], Absent("adamw")] = "adamw"
    # Stages before that of `sequence`: (tokens per sequence, share of the steps). Held-out text is read in windows of
    # `sequence` in every stage, so that the weights kept are the best at the length at which the model is used.
    growing: Annotated[tuple[Earlier, ...], Absent(())] = ()
    weights: Annotated[Literal["fp32", "bf16"], Absent("fp32")] = "fp32"  # as which they are kept

    @model_validator(mode="after")
    def _fits(self):
        check_growing(self.growing, self.batch_size, sequence=self.sequence)
        if self.sequence > self.n_positions:
            raise ValueError(f"sequence is {self.sequence} tokens, but the context is n_positions={self.n_positions}")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        if self.weights == "bf16" and self.tokeniser == "word":
            raise ValueError("weights=bf16 are kept beside the file of their tokeniser, to be read anywhere, and "
                             "tokeniser=word is none that others read; use bpe")
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
        raise ValueError("growing takes all of the steps; leave some to sequences of full length")


def new_tokeniser(config):
    """The tokeniser that a base model of this config is to be trained with, made from its corpora."""
    from repro.data import tokeniser

    return tokeniser(config.tokeniser, config.vocab_size, config.tokeniser_corpora)


def tokeniser_of(config):
    """The tokeniser that a base model of this config was trained with: from the file beside its weights, which needs no
    corpus, or where none are kept made from its corpora.

    Raises ReproError for kept weights that are not whole, and for absent corpora.
    """
    from repro.data import Tokeniser

    folder = kept_model(config)
    return Tokeniser.read(folder / "tokenizer.json") if folder else new_tokeniser(config)


def stages(config) -> list[tuple[int, int, int]]:
    """(tokens per sequence, sequences per step, steps) of each stage of training; every step has as many tokens."""
    steps = math.ceil(config.tokens / (config.batch_size * config.sequence))
    return split(config.growing, config.sequence, config.batch_size, steps)


def split(growing, longest: int, batch_size: int, steps: int) -> list[tuple[int, int, int]]:
    """`stages` of so many steps, the last of `batch_size` sequences of `longest` tokens.

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
    """Train the model of `objective`; return it as it is kept, what the training tells, and its loss.

    loss: from the model to nats per target of held-out text. Goes on where it was killed.
    """
    import torch

    from repro.training import TrainConfig, train

    model = objective.model
    if config.precision == "bf16" and not torch.cuda.is_available():
        model.set_attn_implementation("eager")  # plain products: on a CPU 1.2 times as many tokens/s as fused ones
    settings = TrainConfig(config.tokens, config.learning_rate, config.warmup_steps, "linear", config.weight_decay,
                           validate_every=config.validate_every, precision=config.precision, seed=config.seed,
                           optimizer=config.optimizer, decayed=config.decayed)
    with context.progress(config.tokens, f"pretraining {name}", "tokens") as bar:
        result = train(objective, batches, settings, context.folder, lambda trained: loss(trained.model), bar)
    if config.weights == "fp32":
        return model, result, result.best_loss
    model = model.bfloat16().float()  # what others will read
    return model, result, loss(model)


def outcome(config, context, name: str, model, coder, result=None, metrics=None, units=None) -> Outcome:
    """Save the model, in bf16 with its tokeniser beside it, and tell what came out.

    result: of the training; None for somebody else's checkpoint. metrics, units: besides the number of weights.
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
    """Of a model with `n` weights whose training costs `per_token` FLOPs a token."""
    if config.source != "scratch":
        return Estimate(n, 0, 0.0, 4 * n, 60.0, note=f"({config.source} as it is)")
    memory = PROCESS + 16 * n + config.batch_size * config.sequence * 4 * (34 * config.n_layer * config.n_embd
                                                                 + 3 * config.vocab_size)
    faster = BF16 if config.precision == "bf16" and config.scale in ("smoke", "small") else 1
    seconds = per_token * config.tokens / (faster * RATE[config.scale])
    return Estimate(n, config.tokens, per_token * config.tokens, memory, seconds)
