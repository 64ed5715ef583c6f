"""Four sizes of one model, trained in the same way on the same text (Radford et al. 2019, sections 2.3, 4, Figure 4).

At `small` and `medium` the sizes nearly have the proportions of Table 2: a sixth (a third) of the layers, as many
heads as fit, all heads of one size. After training, each model scores the same number of sequences of training text and
of held-out text, taken evenly from beginning to end, to see whether a larger model memorizes or learns more. The
largest size also reads a sixteenth of the text sixteen times, to see what memorizing looks like. During training, the
beginning of the held-out text is scored, which is part of one book.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base import pretraining
from repro.papers.base.gpt2_mini import HELD_OUT
from repro.papers.base.pretraining import growing_batches, new_tokeniser
from repro.study import Experiment, Outcome, register

SIZES = ("117M", "345M", "762M", "1542M")  # as Table 2 calls them
CHECKPOINTS = dict(zip(SIZES, ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"), strict=True))
RANKS = dict(zip(SIZES, ("smallest", "second", "third", "largest"), strict=True))  # names of our sizes
LAYERS, HEADS = (12, 24, 36, 48), (12, 16, 20, 25)  # of Table 2, the heads from the released code


class Config(pretraining.Config):
    """A size: the size of Table 2 that it represents, and its training. At `paper` scale only `source` counts."""

    size: Literal["117M", "345M", "762M", "1542M"]  # the shape of another size of this scale is read as its own
    tokeniser: Literal["bpe", "gpt2"] = "bpe"
    text_tokens: int | None = Field(None, ge=2)  # the beginning of the text, read repeatedly; null: all of it

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values):
        """With the shape of its size if it was given that of another, so that a plan with `size` has no wrong ones."""
        known = shapes(values["scale"]) if values.get("scale") in SHAPES else {}
        given = {name: values.get(name) for name in next(iter(known.values()), {})}
        if values.get("size") in known and given in known.values():
            return {**values, **known[values["size"]]}
        return values


# The settings of the base models, on books alone and with fewer tokens; the text is read less than once.
RECIPE = {"vocab_size": 8192, "n_positions": 1024, "sequence": 1024, "batch_size": 4,
          "growing": ((256, 0.5), (512, 0.3)), "optimizer": "muon", "learning_rate": 3e-3, "warmup_steps": 200,
          "weight_decay": 0.1, "precision": "bf16"}
BOOKS = {"corpus": "gutenberg-unwrapped", "tokeniser_corpora": ("gutenberg-unwrapped",)}
WRAPPED = {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("gutenberg-pretrain",)}  # in lines, as printed
SCALES = {
    "smoke": {"corpus": "synthetic-web", "tokeniser_corpora": ("synthetic-web",), "vocab_size": 512, "n_positions": 128,
              "sequence": 128, "batch_size": 8, "tokens": 120_000, "optimizer": "muon", "learning_rate": 1e-2,
              "warmup_steps": 20, "validate_every": 40_000},
    "small": {**BOOKS, **RECIPE, "decayed": "all", "tokens": 8_000_000, "validate_every": 1_000_000},
    "medium": {**BOOKS, **RECIPE, "vocab_size": 16_384, "batch_size": 64, "growing": (), "tokens": 100_000_000,
               "learning_rate": 1e-3, "warmup_steps": 300, "validate_every": 10_000_000},
    "paper": {"corpus": "gutenberg-unwrapped", "tokeniser": "gpt2", "vocab_size": 50_257, "n_positions": 1024,
              "sequence": 1024, "batch_size": 512},
}
SHAPES = {  # layers, heads, features of a head
    "smoke": ((1, 2, 12), (2, 2, 16), (3, 3, 16), (4, 4, 16)),
    "small": ((2, 4, 16), (4, 5, 16), (6, 7, 16), (8, 8, 16)),
    "medium": ((4, 4, 64), (8, 5, 64), (12, 7, 64), (16, 8, 64)),
    "paper": tuple((layers, heads, 64) for layers, heads in zip(LAYERS, HEADS, strict=True)),
}


def shapes(scale: str) -> dict[str, dict[str, int]]:
    """The settings of shape, by size."""
    return {size: {"n_layer": layers, "n_head": heads, "n_embd": heads * features}
            for size, (layers, heads, features) in zip(SIZES, SHAPES[scale], strict=True)}


AGAIN = 16  # times that the largest size reads the beginning of the text, if it reads only that


def grid(scale: str) -> list[dict]:
    """One point per size. If the sizes are trained here, also the largest with little text, and, on books, the largest
    with lines as printed."""
    points = [{"size": size} | shape for size, shape in shapes(scale).items()]
    if scale == "paper":
        return [point | {"source": f"openai-community/{CHECKPOINTS[point['size']]}"} for point in points]
    little = points[-1] | {"text_tokens": SCALES[scale]["tokens"] // AGAIN}
    return [*points, little, *[points[-1] | WRAPPED] * (scale != "smoke")]


def text_of(config) -> str:
    """The text that a run reads: all of it, little of it, or books in lines as printed ("wrapped")."""
    if config.corpus == WRAPPED["corpus"]:
        return "wrapped"
    return "all" if config.text_tokens is None else "little"


def named(size: str, scale: str) -> str:
    """The name of a size: its rank and weights, and the paper's name for it; at `paper` that name only.

    >>> named("1542M", "small"), named("1542M", "paper")
    ("largest of four, 2.8M; the paper's 1542M", '1542M')
    """
    if scale == "paper":
        return size
    config = next(one for one in EXPERIMENT.plan(scale) if one.size == size)
    n = model_config(config, config.vocab_size).parameters
    weights = f"{n / 1e6:.1f}M" if n >= 1e6 else f"{n / 1e3:.0f}k"
    return f"{RANKS[size]} of four, {weights}; the paper's {size}"


def model_config(config, vocab_size: int):
    """The size of the model as `repro.models.GPT` takes it."""
    from repro.models import GPTConfig

    return GPTConfig(vocab_size, config.n_positions, config.n_layer, config.n_embd, config.n_head)


def execute(config, context):
    import torch

    from repro.data import tokens
    from repro.models import GPT, load_causal_lm
    from repro.training import NextToken, TrainConfig, train

    coder = new_tokeniser(config)
    if config.source != "scratch":
        return pretraining.outcome(config, context, config.size, load_causal_lm(config.source), coder)
    torch.manual_seed(config.seed)
    model = GPT(model_config(config, coder.vocab_size))
    held_out = cut(tokens(config.corpus, "validation", coder).ids[:HELD_OUT], config.sequence)
    before = _mean(sequences(model, held_out[:2]))  # of a model that was not trained
    batches = batches_of(config)
    settings = TrainConfig(config.tokens, config.learning_rate, config.warmup_steps, "linear", config.weight_decay,
                           validate_every=config.validate_every, precision=config.precision, seed=config.seed,
                           optimizer=config.optimizer, decayed=config.decayed)
    with context.progress(config.tokens, f"training our size for {config.size}", "tokens") as bar:
        result = train(NextToken(model), batches, settings, context.folder,
                       lambda objective: _mean(sequences(objective.model, held_out)), bar)
    read = read_ones(batches, result.steps, config, len(held_out))
    unread = spread(tokens(config.corpus, "validation", coder).ids, config.sequence, len(read))
    documents = {"train": sequences(model, read), "validation": sequences(model, unread)}
    metrics = {f"{split}_token_loss": _mean(found) for split, found in documents.items()}
    metrics["untrained_token_loss"] = before
    outcome = pretraining.outcome(config, context, config.size, model.to_transformers(), coder, result, metrics,
                                  dict.fromkeys(metrics, "nats per token"))
    return Outcome(outcome.metrics, outcome.units, outcome.model, outcome.curves, documents, outcome.notes)


def batches_of(config):
    """Batches of the text, or of its beginning. Raises ReproError for a beginning longer than the text."""
    from repro.data import tokens

    text = tokens(config.corpus, "train", new_tokeniser(config))
    if config.text_tokens is None:
        return growing_batches(config, text)
    if config.text_tokens > len(text.ids):
        raise ReproError(f"text_tokens is {config.text_tokens:,}, but the text of {config.corpus} has "
                         f"{len(text.ids):,} tokens; use fewer, or null for all.")
    targets = None if text.targets is None else text.targets[:config.text_tokens]
    begun = text.starts < config.text_tokens
    return growing_batches(config, replace(
        text, ids=text.ids[:config.text_tokens], targets=targets, starts=text.starts[begun],
        n_words=text.n_words[begun], n_bytes=text.n_bytes[begun]))


def cut(ids, length: int):
    """(sequences, length + 1): a text cut into sequences of `length` targets, without the remainder."""
    import numpy as np

    n = (len(ids) - 1) // length
    return np.stack([ids[k * length:(k + 1) * length + 1] for k in range(n)])


def spread(ids, length: int, n: int):
    """(sequences, length + 1): `n` sequences of a text, or fewer if it is short, evenly from beginning to end."""
    import numpy as np

    n = min(n, (len(ids) - 1) // length)
    return np.stack([ids[start:start + length + 1] for start in np.linspace(0, len(ids) - 1 - length, n).astype(int)])


def read_ones(batches, steps: int, config, most: int):
    """(sequences, length + 1): about `most` sequences that were read in training, of the last stage, evenly from
    beginning to end."""
    import numpy as np

    last = pretraining.stages(config)[-1][2]
    many = max(1, min(last, most // config.batch_size))
    chosen = np.linspace(steps - last, steps - 1, many).astype(int)
    return np.concatenate([batches.batch(int(step)).numpy() for step in chosen])


def sequences(model, rows) -> dict[str, list]:
    """Nats and tokens of each of `rows` (sequences, length + 1), each read by itself, in single precision."""
    from repro.evaluation import perplexity

    scores = [perplexity(model, row, len(row) - 1, 0) for row in rows]
    return {"nll": [score.nll for score in scores], "n_tokens": [score.n_scored for score in scores]}


def _mean(found: dict[str, list]) -> float:
    return sum(found["nll"]) / sum(found["n_tokens"])


def estimate(config):
    shape = model_config(config, config.vocab_size)
    return pretraining.estimate(config, shape.parameters, 3 * shape.flops_per_token(config.sequence))


PAPER, CHAPTER = "gpt2_2019", "12_gpt2"
EXPERIMENT = Experiment(
    name="pretrain-gpt2-sizes", paper=PAPER, summary="Four sizes of GPT-2, trained in the same way on the same text.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    reads=lambda config: config.tokeniser_corpora, revision=1)
register(EXPERIMENT)
