"""A transformer and an LSTM of equal size, trained to predict the next token of books (Radford et al. 2018, 3.1, 4.1).

The paper trains for a month on 7,000 books. Here each model sees the same few million tokens once or twice, in one
training each, so chance is not averaged out. Weights are kept at several moments, to see what improves during
training; these are in the work folder only. The last ones, in bf16 and with their tokenizer, stay with the record.

So that settings found for one model do not favor it, both use the same optimizer. Each uses the learning rate at which
its own short trainings, which are runs too, predict held-out text best.
"""

import json
from dataclasses import asdict
from math import ceil
from typing import Literal

from pydantic import Field, model_validator

from repro.papers.base.pretraining import BF16, PROCESS, RATE, Decayed, new_tokeniser
from repro.study import Estimate, Experiment, Outcome, RunConfig, register

HELD_OUT = 60_000  # scored tokens of the validation text
LAST, MOMENTS = "model.safetensors", "checkpoints"  # a file in the folder of the model; a folder next to it
RATES, SEARCH = (1e-3, 3e-3, 1e-2, 3e-2), 1 / 10  # learning rates to try, and the share of the tokens to try them on
BEYOND = {"lstm": 1e-1}  # its best rate was the highest; tried afterwards in the same way, never used


class Config(RunConfig):
    """Tokenizer, size and training; the LSTM has as many weights as the transformer of these sizes."""

    source: str = "scratch"  # "scratch", or a checkpoint on the hub that is used as it is
    model: Literal["transformer", "lstm"] = "transformer"
    tokeniser: Literal["bpe", "word", "openai-gpt"] = "bpe"
    vocab_size: int = Field(8192, ge=2)
    tokeniser_corpora: tuple[str, ...] = ()
    n_layer: int = Field(6, ge=1)
    n_embd: int = Field(256, ge=1)
    n_head: int = Field(4, ge=1)
    n_positions: int = Field(512, ge=2)
    dropout: float = Field(0.0, ge=0, lt=1)  # 0.1 in the paper, whose text is read 100 times
    batch_size: int = Field(8, ge=1)  # sequences of n_positions tokens
    tokens: int = Field(ge=1)  # that are read
    learning_rate: float | None = Field(3e-3, gt=0)  # null: the best of `RATES` in short trainings
    warmup_steps: int = Field(100, ge=0)
    weight_decay: float = Field(0.1, ge=0)
    decayed: Decayed = "matrices"
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    checkpoints: int = Field(8, ge=1)  # moments at which the weights are kept, evenly spaced, including the end

    @model_validator(mode="after")
    def _fits(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        if self.tokeniser == "bpe" and self.vocab_size < 257:
            raise ValueError(f"vocab_size is {self.vocab_size}; byte-level BPE needs at least 257")
        return self


def size_of(config, vocab_size: int | None = None):
    """The size of the model, a `GPTConfig` or `LSTMConfig`, with the config's vocabulary or another."""
    from repro.models import GPTConfig, LSTMConfig

    size = GPTConfig(vocab_size or config.vocab_size, config.n_positions, config.n_layer, config.n_embd, config.n_head,
                     "post", config.dropout)
    return size if config.model == "transformer" else LSTMConfig.as_large_as(size)


def build(config, vocab_size: int):
    """The model, untrained."""
    from repro.models import GPT, LSTM

    return (GPT if config.model == "transformer" else LSTM)(size_of(config, vocab_size))


def keep(model, path, dtype=None) -> None:
    """Write the weights, the tied ones once; as `dtype`, or as they are."""
    from safetensors.torch import save

    from repro.paths import write_atomic

    weights = {name: weight.to("cpu", dtype).contiguous() for name, weight in model.state_dict().items()
               if name != "output.weight"}
    write_atomic(path, save(weights))


def read(model, path):
    """The model with the weights of a file that `keep` wrote."""
    from safetensors.torch import load_file

    weights = load_file(path)
    model.load_state_dict(weights | {"output.weight": weights["embed.weight"]})
    return model


def search(config) -> list[Config]:
    """The short trainings that choose the learning rate; none if it is given."""
    tokens = ceil(SEARCH * config.tokens)
    return [] if config.learning_rate is not None else [
        config.model_copy(update={"tokens": tokens, "learning_rate": one, "checkpoints": 1}) for one in RATES]


def chosen_rate(config, context) -> tuple[float, list[list[float]]]:
    """The learning rate, and those that were tried, each with its loss in nats per token of held-out text."""
    tried = [[one.learning_rate, context.need(one)[0].metrics["validation_token_loss"]] for one in search(config)]
    return min(tried, key=lambda one: one[1])[0] if tried else config.learning_rate, tried


def execute(config, context):
    import numpy as np
    import torch

    from repro.data import tokens
    from repro.evaluation import perplexity
    from repro.models import GPT, load_causal_lm
    from repro.training import NextToken, Sequences, TrainConfig, train

    folder, moments = context.folder / "model", context.folder / MOMENTS
    for one in (folder, moments):
        one.mkdir(exist_ok=True)
    if config.source != "scratch":
        model = GPT.from_transformers(load_causal_lm(config.source))
        keep(model, folder / LAST)
        return Outcome({"parameters": model.config.parameters}, {"parameters": "weights"}, config.model)
    coder = new_tokeniser(config)
    torch.manual_seed(config.seed)
    model = build(config, coder.vocab_size)
    text = tokens(config.corpus, "train", coder)
    held_out = tokens(config.corpus, "validation", coder).ids[:HELD_OUT]

    class Told(Sequences):
        """Sequences that remember the last batch that was requested."""

        last = -1

        def batch(self, step: int):
            self.last = step
            return super().batch(step)

    batches = Told(text.ids, config.n_positions, config.batch_size, config.seed, text.targets)

    def validate(objective) -> float:
        keep(objective.model, moments / f"{(batches.last + 1) * batches.tokens_per_batch:012d}.safetensors")
        score = perplexity(objective.model, held_out, config.n_positions, 0)
        return score.nll / score.n_scored

    rate, tried = chosen_rate(config, context)
    read_in_all = ceil(config.tokens / batches.tokens_per_batch) * batches.tokens_per_batch
    every = max(1, read_in_all // config.checkpoints)  # in tokens, so that the number is right if steps do not divide
    settings = TrainConfig(config.tokens, rate, config.warmup_steps, "cosine", config.weight_decay,
                           validate_every=every, precision=config.precision, seed=config.seed,
                           optimizer=config.optimizer, decayed=config.decayed)
    with context.progress(config.tokens, f"pretraining the {config.model}", "tokens") as bar:
        result = train(NextToken(model), batches, settings, context.folder / "training", validate, bar)
    notes = lay(model, coder, folder, config)
    losses = perplexity(model, held_out, config.n_positions, 0).target_nll
    parts = np.split(losses, range(config.n_positions, len(losses), config.n_positions))
    documents = {"validation": {"nll": [float(part.sum(dtype=np.float64)) for part in parts],
                                "n_tokens": [len(part) for part in parts]}}
    return Outcome({"validation_token_loss": float(losses.mean(dtype=np.float64)), "learning_rate": rate,
                    "parameters": model.config.parameters},
                   {"validation_token_loss": "nats per token", "learning_rate": "at its highest",
                    "parameters": "weights"}, config.model, result.curves, documents,
                   notes=notes | {"tokens": result.tokens, "rates_tried": tried,
                                  "checkpoints": sorted(int(one.stem) for one in moments.glob("*.safetensors"))})


def lay(model, coder, folder, config) -> dict[str, str]:
    """Write the trained model into its folder; return the notes for its record. A model with byte-level BPE stays with
    its record, rounded to bf16 as it will be read; models of the search do not, because nothing starts from them."""
    import torch

    from repro.data import files
    from repro.paths import write_atomic

    notes = {"tokeniser": coder.fingerprint}
    if config.tokeniser != "bpe" or config.checkpoints == 1:
        keep(model, folder / LAST)
        return notes
    keep(model, folder / LAST, torch.bfloat16)
    read(model, folder / LAST)
    coder.save(folder / "tokenizer.json")
    write_atomic(folder / "config.json", json.dumps({"model": config.model, **asdict(model.config)}, indent=1) + "\n")
    return notes | {"model": files.sha256(folder / LAST)}


def training_flops(config) -> float:
    """FLOPs of one training token: three times the forward pass."""
    return 3 * size_of(config).flops_per_token(config.n_positions)


def estimate(config) -> Estimate:
    n = size_of(config).parameters
    if config.source != "scratch":
        return Estimate(n, 0, 0.0, 8 * n, 60.0, note=f"({config.source} as it is)")
    flops = training_flops(config) * config.tokens
    kept = config.batch_size * config.n_positions * 4 * (34 * config.n_layer * config.n_embd + 3 * config.vocab_size)
    seconds = flops / rate(config.scale, config.model, config.precision)
    return Estimate(n, config.tokens, flops, PROCESS + 16 * n + kept, seconds)


def rate(scale: str, model: str, precision: str) -> float:
    """FLOP/s. On a CPU both gain from bf16; the LSTM, which reads a text step by step, gains half as much."""
    faster = precision == "bf16" and scale in ("smoke", "small")
    return RATE[scale] * (1 if not faster else BF16 if model == "transformer" else BF16 / 2)


def grid(scale: str) -> list[dict]:
    """A transformer and an LSTM; at `small` also the short trainings that choose their learning rates, and those at
    higher rates; at `paper` the released transformer."""
    if scale == "paper":
        return [{"model": "transformer", "source": "openai-community/openai-gpt"}]
    both = [{"model": "transformer"}, {"model": "lstm"}]
    if scale != "small":
        return both
    tokens = ceil(SEARCH * SCALES[scale]["tokens"])
    return [one | {"learning_rate": None} for one in both] + [
        one | {"tokens": tokens, "learning_rate": rate, "checkpoints": 1}
        for one in both for rate in (*RATES, *([BEYOND[one["model"]]] if one["model"] in BEYOND else []))]


SCALES = {
    "smoke": {"corpus": "synthetic-books", "tokeniser": "word", "tokeniser_corpora": ("synthetic-books",),
              "vocab_size": 205, "n_layer": 2, "n_embd": 64, "n_positions": 64, "batch_size": 16, "tokens": 400_000,
              "learning_rate": 5e-3, "warmup_steps": 20},
    "small": {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("books-and-wikipedia",), "tokens": 15_000_000,
              "precision": "bf16", "decayed": "all"},
    "paper": {"corpus": "gutenberg-pretrain", "tokeniser": "openai-gpt", "vocab_size": 40_478, "n_layer": 12,
              "n_embd": 768, "n_head": 12, "dropout": 0.1, "batch_size": 64, "tokens": 1, "learning_rate": 2.5e-4,
              "warmup_steps": 2_000, "weight_decay": 0.01, "optimizer": "adamw", "checkpoints": 1},
}


EXPERIMENT = Experiment(
    name="pretrain-gpt", paper="gpt1_2018", summary="A transformer and an LSTM of equal size, pretrained on books.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate, needs=search,
    models_of=lambda config: [], reads=lambda config: config.tokeniser_corpora)
register(EXPERIMENT)
