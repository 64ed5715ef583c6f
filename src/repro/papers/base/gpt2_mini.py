"""The base model from which every language-modeling chapter starts.

Sizes. A training step costs 6 FLOPs per weight and token (without embeddings, with the output layer), plus 6 * n_layer
* sequence * n_embd for attention; `estimate` computes the sum. At `small`, pre-training takes one core hours, once,
because its weights are stored next to its record, and each fine-tuning of Part I some ten minutes. `medium` makes about
13 passes over the 262 books and has to fit into an hour on one GPU that sustains 3e13 FLOP/s in bf16.
"""

from typing import Literal

from repro.papers.base import pretraining
from repro.papers.base.pretraining import (
    PROCESS,
    RATE,
    cut_model,
    growing_batches,
    new_tokeniser,
    pretrain,
    tokeniser_of,
)
from repro.study import Experiment, register

__all__ = ["EXPERIMENT", "PROCESS", "RATE", "tokeniser_of", "training_flops"]
HELD_OUT = 60_000  # tokens of the validation text that are scored


class Config(pretraining.Config):
    """gpt2-mini: tokenizer, architecture and training. At `paper` scale only `source` counts."""

    tokeniser: Literal["bpe", "word", "gpt2", "cut"] = "bpe"  # "cut": the source's own, for the texts of the study


REAL = {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("gutenberg-pretrain", "wikitext-103")}
SCALES = {
    "smoke": {"corpus": "synthetic-books", "tokeniser": "word", "tokeniser_corpora": ("synthetic-books",),
              "vocab_size": 205, "n_layer": 3, "n_embd": 64, "n_positions": 128, "sequence": 128, "batch_size": 8,
              "tokens": 400_000, "optimizer": "muon", "learning_rate": 2e-2, "warmup_steps": 20,
              "validate_every": 200_000},
    # Its tokenizer is trained on its own text alone, so that its id depends on no other corpus. The text has 29,832,187
    # tokens and is read twice. `repro.papers.base.recipes` compares optimizers and rates on a part of it. Short
    # trainings favor high rates; this long one uses 3e-3.
    "small": {"corpus": "books-and-wikipedia", "tokeniser_corpora": ("books-and-wikipedia",), "vocab_size": 8192,
              "n_layer": 6, "n_embd": 256, "n_head": 4, "n_positions": 1024, "sequence": 1024, "batch_size": 4,
              "growing": ((256, 0.5), (512, 0.3)), "tokens": 60_000_000, "optimizer": "muon", "learning_rate": 3e-3,
              "warmup_steps": 200, "weight_decay": 0.1, "decayed": "all", "validate_every": 2_000_000,
              "precision": "bf16", "weights": "bf16"},
    # Google's Gemma 3 270M with 4-bit weights, made float again. It keeps only those of its 262,144 tokens that the
    # study's texts use: a training step takes a third of the time.
    "pretrained": {"corpus": "pg19-subset", "source": "gemma-3-270m", "tokeniser": "cut",
                   "tokeniser_corpora": ("pg19-subset", "wikitext-103"), "vocab_size": 40_000, "n_layer": 18,
                   "n_embd": 640, "n_head": 4, "n_positions": 32_768},
    "medium": {**REAL, "vocab_size": 16_384, "n_layer": 8, "n_embd": 512, "n_head": 8, "batch_size": 64,
               "tokens": 300_000_000, "learning_rate": 1e-3, "warmup_steps": 500, "weight_decay": 0.01,
               "validate_every": 20_000_000, "precision": "bf16"},
    "paper": {"corpus": "gutenberg-pretrain", "source": "openai-community/gpt2", "tokeniser": "gpt2",
              "vocab_size": 50_257, "n_layer": 12, "n_embd": 768, "n_head": 12},
}


def execute(config, context):
    import torch

    from repro.data import tokens
    from repro.models import gpt2_mini, load_causal_lm
    from repro.training import WindowedLM

    coder = new_tokeniser(config)
    if config.tokeniser == "cut":
        model = load_causal_lm(cut_model(config))
        model.config.opening_token = coder.bos  # Gemma's attention relies on <bos>
        return pretraining.outcome(config, context, NAME, model, coder)
    if config.source != "scratch":
        return pretraining.outcome(config, context, NAME, load_causal_lm(config.source), coder)
    torch.manual_seed(config.seed)
    activation = "gelu_pytorch_tanh" if config.precision == "bf16" else "gelu_new"  # the same function, but faster
    model = gpt2_mini(config.n_layer, config.n_embd, config.n_head, coder.vocab_size, config.n_positions, coder.bos,
                      activation)
    held_out = tokens(config.corpus, "validation", coder).ids[:HELD_OUT]
    batches = growing_batches(config, tokens(config.corpus, "train", coder))
    model, result, loss = pretrain(config, context, NAME, WindowedLM(model, config.sequence), batches,
                                   lambda model: token_loss(model, held_out, config.sequence))
    return pretraining.outcome(config, context, NAME, model, coder, result, {"validation_token_loss": loss},
                               {"validation_token_loss": "nats per token"})


def token_loss(model, ids, window: int) -> float:
    """Nats per token of a text, read in windows that do not overlap."""
    from repro.evaluation import perplexity

    score = perplexity(model, ids, window, 0)
    return score.nll / score.n_scored


def estimate(config):
    from repro.models import parameters

    n = parameters(config.n_layer, config.n_embd, config.vocab_size, config.n_positions)
    return pretraining.estimate(config, n, training_flops(config, config.sequence))


def training_flops(config, window: int) -> float:
    """FLOPs of one training token: three times the forward pass, output layer included."""
    from repro.evaluation import flops_per_token

    return 3 * (flops_per_token(config.n_layer, config.n_embd, window, 0) + 2 * config.n_embd * config.vocab_size)


NAME = "gpt2-mini"
EXPERIMENT = Experiment(
    name="pretrain-gpt2-mini", paper="yoshida2020",
    summary="Pretrain the base model: on books and Wikipedia, at smoke on generated text.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    reads=lambda config: config.tokeniser_corpora)
register(EXPERIMENT)
