"""The base model every language-modelling chapter starts from.

Sizes. A training step costs 6 FLOPs per weight and token (embeddings left out, the output layer counted), and attention
6 * n_layer * sequence * n_embd more; `estimate` does the sum. `small` is chosen so that pretraining takes under an hour
on two cores and each fine-tuning of Part I some ten minutes on one: a night holds all of them. `medium` makes about 13
passes over the 262 books and has to fit into an hour on one GPU that sustains 3e13 FLOP/s in bf16.
"""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

HELD_OUT = 60_000  # tokens of the validation text that are scored
Earlier = tuple[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, lt=1)]]


class Config(RunConfig):
    """gpt2-mini: tokeniser, architecture and training. At `paper` scale only `source` counts."""

    source: str = "scratch"  # "scratch", or a GPT-2 checkpoint on the hub that is taken as it is
    tokeniser: Literal["bpe", "word", "gpt2"] = "bpe"
    vocab_size: int = Field(4096, ge=2)
    tokeniser_corpora: tuple[str, ...] = ()
    n_layer: int = Field(4, ge=1)
    n_embd: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    n_positions: int = Field(1024, ge=2)
    sequence: int = Field(1024, ge=1)  # tokens per training sequence
    batch_size: int = Field(8, ge=1)  # sequences per step
    tokens: int = Field(1, ge=1)  # training targets
    learning_rate: float = Field(2e-3, gt=0)
    warmup_steps: int = Field(100, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    validate_every: int = Field(1_000_000, ge=1)  # tokens
    precision: Literal["no", "bf16"] = "no"
    optimizer: Annotated[Literal["adamw", "muon"], Absent("adamw")] = "adamw"
    # Stages before that of `sequence`: (tokens per sequence, share of the steps). Held-out text is read in windows of
    # `sequence` in every stage, so that the weights kept are the best at the length at which the model is used.
    growing: Annotated[tuple[Earlier, ...], Absent(())] = ()
    weights: Annotated[Literal["fp32", "bf16"], Absent("fp32")] = "fp32"  # as which they are kept

    @model_validator(mode="after")
    def _fits(self):
        for length, _ in self.growing:
            if length > self.sequence or self.batch_size * self.sequence % length:
                raise ValueError(f"growing has sequences of {length} tokens; they must be at most sequence="
                                 f"{self.sequence} and divide the {self.batch_size * self.sequence} tokens of a batch")
        if sum(share for _, share in self.growing) >= 1:
            raise ValueError("growing takes all of the steps; leave some to sequences of full length")
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


REAL = {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("gutenberg-pretrain", "wikitext-103")}
SCALES = {
    "smoke": {"corpus": "synthetic-books", "tokeniser": "word", "tokeniser_corpora": ("synthetic-books",),
              "vocab_size": 205, "n_layer": 3, "n_embd": 64, "n_positions": 128, "sequence": 128, "batch_size": 8,
              "tokens": 1_200_000, "learning_rate": 4e-3, "warmup_steps": 20, "validate_every": 200_000},
    "small": {**REAL, "tokens": 12_000_000, "batch_size": 4, "learning_rate": 3e-3, "validate_every": 2_000_000},
    "medium": {**REAL, "vocab_size": 16_384, "n_layer": 8, "n_embd": 512, "n_head": 8, "batch_size": 64,
               "tokens": 300_000_000, "learning_rate": 1e-3, "warmup_steps": 500, "weight_decay": 0.01,
               "validate_every": 20_000_000, "precision": "bf16"},
    "paper": {"corpus": "gutenberg-pretrain", "source": "openai-community/gpt2", "tokeniser": "gpt2",
              "vocab_size": 50_257, "n_layer": 12, "n_embd": 768, "n_head": 12},
}

# Of `small` from the next revision of the study on; until then reached with --set. Its tokeniser is trained on its own
# text alone, so that its id hangs on no other corpus. The text has 29,832,187 tokens: it is read twice.
# What was tried, in nats per token of held-out text: on 410,000 tokens (100 steps of 16 sequences of 256, rate falling
# to 0) Muon at 3e-3 reached 6.190, at 6e-3 6.084, at 3e-3 without weight decay 6.189; on 1.5 million tokens (steps of
# 8 sequences of 256) Muon at 3e-3 reached 4.94 (on another text), at 6e-3 the same, at 1e-2 a little more, and AdamW at
# 3e-3 5.36. Short trainings favour high rates: this long one takes 3e-3.
NEXT = {"corpus": "books-and-wikipedia", "tokeniser_corpora": ("books-and-wikipedia",), "vocab_size": 8192,
        "n_layer": 6, "n_embd": 256, "n_head": 4, "n_positions": 1024, "sequence": 1024, "batch_size": 4,
        "growing": ((256, 0.5), (512, 0.3)), "tokens": 60_000_000, "optimizer": "muon", "learning_rate": 3e-3,
        "warmup_steps": 200, "weight_decay": 0.1, "validate_every": 2_000_000, "precision": "bf16", "weights": "bf16"}

SCALES["small"] = NEXT


def tokeniser_of(config):
    """The tokeniser a base model of this config was trained with."""
    from repro.data import tokeniser

    return tokeniser(config.tokeniser, config.vocab_size, config.tokeniser_corpora)


def stages(config) -> list[tuple[int, int, int]]:
    """(tokens per sequence, sequences per step, steps) of each stage of training; every step has as many tokens."""
    per_step = config.batch_size * config.sequence
    total = math.ceil(config.tokens / per_step)
    found, before = [], 0.0
    for length, share in (*config.growing, (config.sequence, 1.0)):
        steps = round(total * min(1.0, before + share)) - round(total * before)
        found.append((length, per_step // length, steps))
        before += share
    return found


def execute(config, context):
    from repro.data import files, tokens
    from repro.models import gpt2_mini, load_causal_lm, save_causal_lm
    from repro.training import Sequences, Stages, TrainConfig, TrainResult, WindowedLM, train

    coder = tokeniser_of(config)
    if config.source != "scratch":
        model, result = load_causal_lm(config.source), TrainResult(curves={})
        metrics, units = {}, {}
    else:
        import torch

        torch.manual_seed(config.seed)
        model = gpt2_mini(config.n_layer, config.n_embd, config.n_head, coder.vocab_size, config.n_positions,
                          coder.bos)
        if config.precision == "bf16" and not torch.cuda.is_available():
            model.set_attn_implementation("eager")  # plain products: on a CPU 1.2 times as many tokens/s as fused ones
        held_out = tokens(config.corpus, "validation", coder).ids[:HELD_OUT]
        settings = TrainConfig(config.tokens, config.learning_rate, config.warmup_steps, "linear", config.weight_decay,
                               validate_every=config.validate_every, precision=config.precision, seed=config.seed,
                               optimizer=config.optimizer)
        text = tokens(config.corpus, "train", coder)
        batches = Stages([(Sequences(text.ids, length, size, config.seed, text.targets), steps)
                          for length, size, steps in stages(config)])
        with context.progress(config.tokens, "pretraining gpt2-mini", "tokens") as bar:
            result = train(WindowedLM(model, config.sequence), batches, settings, context.folder,
                           lambda objective: token_loss(objective.model, held_out, config.sequence), bar)
        if config.weights == "bf16":
            model = model.bfloat16().float()  # what others will read
        plain = config.weights == "fp32"
        metrics = {"validation_token_loss": result.best_loss if plain else token_loss(model, held_out, config.sequence)}
        units = {"validation_token_loss": "nats per token"}
    save_causal_lm(model, context.folder / "model", config.weights)
    metrics["parameters"] = sum(p.numel() for p in model.parameters())
    notes = {"tokens": result.tokens, "tokeniser": coder.fingerprint}
    if config.weights == "bf16":
        coder.save(context.folder / "model" / "tokenizer.json")
        notes["model"] = files.sha256(context.folder / "model" / "model.safetensors")
    return Outcome(metrics, {**units, "parameters": "weights"}, "gpt2-mini", result.curves, notes=notes)


def token_loss(model, ids, window: int) -> float:
    """Nats per token of a text, read in windows that do not overlap."""
    from repro.evaluation import perplexity

    score = perplexity(model, ids, window, 0)
    return score.nll / score.n_scored


def estimate(config):
    from repro.models import parameters

    n = parameters(config.n_layer, config.n_embd, config.vocab_size, config.n_positions)
    if config.source != "scratch":
        return Estimate(n, 0, 0.0, 4 * n, 60.0, note=f"({config.source} as it is)")
    per_token = training_flops(config, config.sequence)
    memory = PROCESS + 16 * n + config.batch_size * config.sequence * 4 * (34 * config.n_layer * config.n_embd
                                                                 + 3 * config.vocab_size)
    return Estimate(n, config.tokens, per_token * config.tokens, memory, per_token * config.tokens / RATE[config.scale])


PROCESS = 2**30  # bytes that Python, torch and a tokenised corpus take before any model is there
RATE = {"smoke": 4e10, "small": 5e10, "medium": 3e13, "paper": 6e13}  # FLOP/s sustained by what each scale is meant for


def training_flops(config, window: int) -> float:
    """FLOPs of one training token: three times the forward pass, output layer included."""
    from repro.evaluation import flops_per_token

    return 3 * (flops_per_token(config.n_layer, config.n_embd, window, 0) + 2 * config.n_embd * config.vocab_size)


EXPERIMENT = Experiment(
    name="pretrain-gpt2-mini", paper="yoshida2020", summary="Pretrain the base model on books (smoke: embedded text).",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    reads=lambda config: config.tokeniser_corpora)
register(EXPERIMENT)
