"""A transformer and an LSTM of equal size, trained to predict the next token of books (Radford et al. 2018, 3.1, 4.1).

The paper trains for a month on 7,000 books. Here each sees the same few million tokens once or twice: one training of
each, whose chance is not averaged out. Weights are kept at several moments, for what improves while they train.
"""

from typing import Literal

from pydantic import Field, model_validator

from repro.papers.base.pretraining import PROCESS, RATE, new_tokeniser
from repro.study import Estimate, Experiment, Outcome, RunConfig, register

HELD_OUT = 60_000  # tokens of the validation text that are scored
LAST = "model.safetensors"


class Config(RunConfig):
    """Tokeniser, size and training; the LSTM has as many weights as the transformer of these sizes."""

    model: Literal["transformer", "lstm"] = "transformer"
    tokeniser: Literal["bpe", "word"] = "bpe"
    vocab_size: int = Field(8192, ge=2)
    tokeniser_corpora: tuple[str, ...] = ()
    n_layer: int = Field(6, ge=1)
    n_embd: int = Field(256, ge=1)
    n_head: int = Field(4, ge=1)
    n_positions: int = Field(512, ge=2)
    dropout: float = Field(0.0, ge=0, lt=1)  # 0.1 in the paper, whose text is read 100 times
    batch_size: int = Field(8, ge=1)  # sequences of n_positions tokens
    tokens: int = Field(ge=1)  # that are read
    learning_rate: float = Field(3e-3, gt=0)
    warmup_steps: int = Field(100, ge=0)
    weight_decay: float = Field(0.1, ge=0)
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    checkpoints: int = Field(8, ge=1)  # moments at which the weights are kept, evenly apart, the end included

    @model_validator(mode="after")
    def _fits(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        if self.model == "lstm" and self.optimizer == "muon":
            raise ValueError("model is lstm and optimizer muon, which trains blocks; it has none: take adamw")
        if self.tokeniser == "bpe" and self.vocab_size < 257:
            raise ValueError(f"vocab_size is {self.vocab_size}; byte-level BPE needs at least 257")
        return self


def build(config, vocab_size: int):
    """The model, untrained."""
    from repro.models import GPT, LSTM, GPTConfig, LSTMConfig

    size = GPTConfig(vocab_size, config.n_positions, config.n_layer, config.n_embd, config.n_head, "post",
                     config.dropout)
    return GPT(size) if config.model == "transformer" else LSTM(LSTMConfig.as_large_as(size))


def keep(model, path) -> None:
    """Write the weights, the tied ones once."""
    from safetensors.torch import save

    from repro.paths import write_atomic

    weights = {name: weight.contiguous() for name, weight in model.state_dict().items() if name != "output.weight"}
    write_atomic(path, save(weights))


def read(model, path):
    """The model with the weights of a file that `keep` wrote."""
    from safetensors.torch import load_file

    weights = load_file(path)
    model.load_state_dict(weights | {"output.weight": weights["embed.weight"]})
    return model


def execute(config, context):
    import math

    import torch

    from repro.data import tokens
    from repro.evaluation import perplexity
    from repro.training import NextToken, Sequences, TrainConfig, train

    coder, folder = new_tokeniser(config), context.folder / "model"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(config.seed)
    model = build(config, coder.vocab_size)
    text = tokens(config.corpus, "train", coder)
    held_out = tokens(config.corpus, "validation", coder).ids[:HELD_OUT]

    class Told(Sequences):
        """Sequences that know which batch was the last one asked for."""

        last = -1

        def batch(self, step: int):
            self.last = step
            return super().batch(step)

    batches = Told(text.ids, config.n_positions, config.batch_size, config.seed, text.targets)

    def validate(objective) -> float:
        keep(objective.model, folder / f"{(batches.last + 1) * batches.tokens_per_batch:012d}.safetensors")
        score = perplexity(objective.model, held_out, config.n_positions, 0)
        return score.nll / score.n_scored

    steps = math.ceil(config.tokens / batches.tokens_per_batch)
    every = math.ceil(steps / config.checkpoints) * batches.tokens_per_batch
    settings = TrainConfig(config.tokens, config.learning_rate, config.warmup_steps, "cosine", config.weight_decay,
                           validate_every=every, precision=config.precision, seed=config.seed,
                           optimizer=config.optimizer)
    with context.progress(config.tokens, f"pretraining the {config.model}", "tokens") as bar:
        result = train(NextToken(model), batches, settings, context.folder / "training", validate, bar)
    keep(model, folder / LAST)
    return Outcome({"validation_token_loss": result.best_loss, "parameters": model.config.parameters},
                   {"validation_token_loss": "nats per token", "parameters": "weights"}, config.model, result.curves,
                   notes={"tokens": result.tokens, "tokeniser": coder.fingerprint,
                          "checkpoints": sorted(int(one.stem) for one in folder.glob("0*.safetensors"))})


def estimate(config) -> Estimate:
    import torch

    with torch.device("meta"):
        size = build(config, config.vocab_size).config
    flops = 3 * size.flops_per_token(config.n_positions) * config.tokens
    kept = config.batch_size * config.n_positions * 4 * (34 * config.n_layer * config.n_embd + 3 * config.vocab_size)
    seconds = flops / rate(config.scale, config.model, config.precision)
    return Estimate(size.parameters, config.tokens, flops, PROCESS + 16 * size.parameters + kept, seconds)


def rate(scale: str, model: str, precision: str) -> float:
    """FLOP/s; an LSTM is no faster in bf16, as it does not compute in it."""
    return RATE[scale] * (2 if precision == "bf16" and model == "transformer" else 1)


def grid(scale: str) -> list[dict]:
    """A transformer, and an LSTM, which has no blocks that Muon could train."""
    return [{"model": "transformer"}, {"model": "lstm", "optimizer": "adamw", "weight_decay": 0.01}]


EXPERIMENT = Experiment(
    name="pretrain-gpt", paper="gpt1_2018", summary="A transformer and an LSTM of equal size, pretrained on books.",
    config=Config, grid=grid, execute=execute, estimate=estimate, reads=lambda config: config.tokeniser_corpora,
    scales={
        "smoke": {"corpus": "synthetic-books", "tokeniser": "word", "tokeniser_corpora": ("synthetic-books",),
                  "vocab_size": 205, "n_layer": 2, "n_embd": 64, "n_positions": 64, "batch_size": 16,
                  "tokens": 400_000, "learning_rate": 5e-3, "warmup_steps": 20},
        "small": {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("books-and-wikipedia",), "tokens": 15_000_000,
                  "precision": "bf16"}})
register(EXPERIMENT)
