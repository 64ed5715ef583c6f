"""From RoBERTa to Longformer (Beltagy et al. 2020, section 5 and Table 5): copied positions, then more training.

Every configuration predicts the same masked tokens of the same books; only how far a model sees differs. The seed and
the book decide which tokens are masked. For models without training and random positions, seeds differ in nothing
else. RoBERTa reads a book in pieces as long as its position table, each between <s> and </s>; the others read stretches
of several such pieces. The paper's BPC is bits per masked token: the 1.880 that it quotes is log2 of 3.68, the
perplexity in RoBERTa's own Table 3.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.papers.base.models import EXPERIMENTS
from repro.papers.base.pretraining import PROCESS, tokeniser_of
from repro.study import Absent, Estimate, Experiment, Outcome, Rereading, RunConfig, register

if TYPE_CHECKING:
    import numpy as np
    import torch

PRETRAINING = EXPERIMENTS["roberta-mini"]
PAPER, CHAPTER = "longformer2020", "18_from_roberta_to_longformer"
TRAINED = ("short", "long", "frozen", "roberta-short", "roberta-long")  # the last two are controls
CONFIGURATIONS = ("roberta", "random", "copied", *TRAINED)
MASKS = 2  # separates the mask draws of scored books from other draws with the same seed
STRETCHES = 16  # of positions, for which losses are averaged; finer ones at both ends of a piece
SCORED = 4  # stretches at a time


class Config(RunConfig):
    """How the base model is converted, trained further and scored."""

    configuration: Literal["roberta", "random", "copied", "short", "long", "frozen", "roberta-short", "roberta-long"]
    window: int = Field(128, ge=2)  # keys on both sides of a token together
    max_positions: int = Field(4096, ge=2)
    tokens: int | None = Field(None, ge=0)  # to train on; None: the default of the scale and configuration
    batch_size: int = Field(1, ge=1)  # sequences of `max_positions` tokens, or as many tokens in shorter ones
    learning_rate: float = Field(1e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then a polynomial of power 3 to 0
    warmup_steps: Annotated[int | None, Field(ge=0), Absent(None)] = None  # None: use warmup_share
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False  # of layers, in the backward pass
    scored_corpus: str
    scored_split: Literal["validation", "test"] = "validation"
    scored_tokens: int = Field(16_384, ge=2)  # from the beginning of each book; of a shorter book, its whole sequences
    source: str | None = None  # a hub name as the base; None: the base model of the scale
    # The paper's kinds of text (Table 13), shown in a plan; the run reads `corpus`, which has only books.
    kinds: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _tokens(cls, values: dict) -> dict:
        """Fill in the tokens and learning rate of the scale and configuration if not given; no tokens without training.
        """
        name, (short, long) = values.get("configuration"), LENGTHS.get(values.get("scale"), (0, 0))
        if name not in TRAINED:
            return values | {"tokens": 0}
        if "learning_rate" not in values and values.get("scale") == "small":
            values = values | {"learning_rate": FREE if name == "frozen" else GENTLE}
        if values.get("tokens") is None:
            return values | {"tokens": short if name.endswith("short") else long}
        return values

    @model_validator(mode="after")
    def _fits(self):
        positions = base_of(self).n_positions
        if self.window % 2:
            raise ValueError(f"window is {self.window} keys; it must be even, with half on each side")
        if self.max_positions < positions or self.max_positions % positions or self.scored_tokens % self.max_positions:
            raise ValueError(f"max_positions is {self.max_positions} and scored_tokens {self.scored_tokens}; the first "
                             f"must be a multiple of the base's {positions} positions, the second of the first")
        if self.configuration in TRAINED and not self.tokens:
            raise ValueError(f"configuration is {self.configuration} and tokens is {self.tokens}; trained ones "
                             f"({', '.join(TRAINED)}) need at least 1")
        return self


def base_of(config) -> RunConfig:
    """The config that makes the base model: its pre-training, or its download from the hub."""
    sets = {"source": config.source} | SIZES.get(config.source, {}) if config.source else {}
    return PRETRAINING.plan(config.scale, sets)[0]


SIZES = {"FacebookAI/roberta-large": {"n_layer": 24, "n_embd": 1024, "n_head": 16}}  # that differ from roberta-base's


def execute(config, context) -> Outcome:
    import torch

    from repro.data import tokens
    from repro.models import Longformer, load_masked_lm, save_model

    base, (_, folder) = base_of(config), context.need(base_of(config))
    coder, pieces = tokeniser_of(base), base.n_positions
    torch.manual_seed(config.seed)
    roberta = load_masked_lm(folder / "model").eval()
    if config.configuration.startswith("roberta"):
        model = roberta
    else:
        how = "random" if config.configuration == "random" else "copy"
        model = Longformer.from_roberta(roberta, config.max_positions, config.window, how)
    curves, notes = {}, {"tokeniser": coder.fingerprint}
    if config.tokens:
        text = tokens(config.corpus, "train", coder)
        curves = trained(config, context, model, text, coder, pieces).curves
        notes |= {"train_tokens": len(text.ids), "train_documents": len(text)}
        save_model(model, context.folder / "model")
    model.to("cuda" if torch.cuda.is_available() else "cpu")  # where training leaves it; untrained models too
    books = tokens(config.scored_corpus, config.scored_split, coder)
    reach = pieces if model is roberta else config.max_positions
    ways = {"": reach} | ({"pieces_": pieces} if reach > pieces else {})
    documents, losses_of = {}, {}
    held = [book for k in range(len(books)) if (book := hidden(
        books.document(k), config, pieces, coder.mask + 1, k, books.targets_of(k)))]
    with context.progress(len(ways) * len(held), "scoring", "books") as bar:
        for name, length in ways.items():
            losses_of[name] = [losses(model, book, length) for book in held if bar.advance(1) is None]
            documents[f"{name}nats"] = [float(nats.sum()) for nats, _ in losses_of[name]]
            inside = [away_from_seams(places, pieces, config.window // 2) for _, places in losses_of[name]]
            documents[f"{name}inside_nats"] = [float(nats[kept].sum())
                                               for (nats, _), kept in zip(losses_of[name], inside, strict=True)]
    documents["inside_tokens"] = [int(kept.sum()) for kept in inside]  # the same for both ways of reading
    documents["tokens"] = [len(nats) for nats, _ in losses_of[""]]
    metrics = {f"{name}masked_bits_per_token": bits(sum(documents[f"{name}nats"]), sum(documents["tokens"]))
               for name in ways}
    curves |= {"loss_by_position": by_position(losses_of[""], pieces),
               "tokens_by_position": [[middle, float(len(nats))] for middle, nats in stretches(losses_of[""], pieces)]}
    if config.configuration == "frozen":
        model.cpu()  # the most exact products
        plain, same = load_masked_lm(folder / "model").eval(), config.window // 2 + 1
        metrics["largest_difference"] = largest_difference(model, plain, held, min(same, pieces))
        if same < pieces:
            metrics["difference_beyond"] = largest_difference(model, plain, held, same + 1)
    units = dict.fromkeys(metrics, "bits per masked token") | dict.fromkeys(
        ("largest_difference", "difference_beyond"), "of a logit") | {"parameters": "weights"}
    metrics["parameters"] = sum(weight.numel() for weight in model.parameters())
    return Outcome(metrics, {name: units[name] for name in metrics}, config.configuration, curves,
                   {config.scored_split: documents}, notes)


def bits(nats: float, n: int) -> float:
    """Mean -log2 p of `n` tokens."""
    from math import log

    return nats / n / log(2)


def trained(config, context, model, text, coder, pieces: int):
    """Train the model in place on masked text, as RoBERTa was, and return the result; the last weights are kept."""
    import torch

    from repro.training import Masked, MaskedLM, Sequences, TrainConfig, train

    plain = config.configuration.startswith("roberta")
    length = pieces if plain else config.max_positions
    each = config.batch_size * (config.max_positions // length)
    if config.configuration == "frozen":
        model.learn_positions_only(pieces)
    if plain and config.precision == "bf16" and not torch.cuda.is_available():
        model.set_attn_implementation("eager")  # plain products are faster here
    if config.recompute:
        model.activation_checkpointing_enable()
    batches = Masked(Sequences(text.ids, length, each, config.seed, text.targets), coder.mask + 1, config.seed)
    warmup = config.warmup_steps
    if warmup is None:
        warmup = int(config.warmup_share * config.tokens / batches.units_per_batch)
    settings = TrainConfig(
        config.tokens, config.learning_rate, warmup, "cubic", 0.0, validate_every=config.tokens,
        precision=config.precision, seed=config.seed,
        optimizer=optimizer_of(config))
    model.train()
    with context.progress(config.tokens, f"training {config.configuration}", "tokens") as bar:
        return train(MaskedLM(model), batches, settings, context.folder / "training", progress=bar)


def optimizer_of(config) -> str:
    """The optimizer: always AdamW if only positions are trained."""
    return "adamw" if config.configuration == "frozen" else config.optimizer


class Hidden(NamedTuple):
    """A book in pieces with some tokens hidden; the same tokens for every stretch length."""

    plain: "np.ndarray"  # (pieces, piece) ids without <s> and </s> at the seams
    shown: "np.ndarray"  # (pieces, piece) ids as seen by a model that reads pieces
    positions: "np.ndarray"  # (pieces, K) positions of hidden tokens in each piece
    targets: "np.ndarray"  # (pieces, K); -100 is ignored


def hidden(ids: "np.ndarray", config, piece: int, vocab_size: int, number: int = 0,
           targets: "np.ndarray | None" = None) -> Hidden | None:
    """The beginning of a book (N,), in pieces; None for one that is shorter than `max_positions`.

    The hidden tokens depend only on the seed of `config` and the book's `number`. targets (N,) bool: which tokens may
    be hidden; None: all. The first and last token of a piece are never hidden: a piece read by itself has <s> and </s>
    there.
    """
    import numpy as np

    from repro.training import masked

    n = min(config.scored_tokens, len(ids)) // config.max_positions * config.max_positions
    if not n:
        return None
    rows = ids[:n].reshape(-1, piece)
    allowed = None if targets is None else targets[:n].reshape(-1, piece)
    draw = np.random.default_rng([config.seed, number, MASKS])
    made = {name: x.numpy() for name, x in masked(rows, vocab_size, draw, allowed).items()}
    plain = np.where(rows == START, END, rows).astype(np.int64)
    inside = np.s_[:, 1:-1]
    plain[inside] = made["ids"][inside]
    return Hidden(plain, made["ids"], made["positions"], made["targets"])


START, END = 0, 2


def read(book: Hidden, length: int) -> "dict[str, torch.Tensor]":
    """A book as read in stretches of `length` tokens, a multiple of a piece, each from <s> to </s>."""
    import numpy as np
    import torch

    piece = book.plain.shape[1]
    ids = book.plain.reshape(-1, length).copy()
    ids[:, 0], ids[:, -1] = START, END
    offset = np.arange(length // piece) * piece
    places = book.positions.reshape(len(ids), -1, book.positions.shape[1]) + offset[:, None]
    made = {"ids": ids, "positions": places.reshape(len(ids), -1), "targets": book.targets.reshape(len(ids), -1)}
    return {name: torch.from_numpy(x) for name, x in made.items()}


def losses(model, book: Hidden, length: int) -> "tuple[np.ndarray, np.ndarray]":
    """Nats of each masked token of a book read in stretches of `length`, and its position in its stretch."""
    import torch

    from repro.cpu import exact_products
    from repro.loss import cross_entropy

    batch, found = read(book, length), []
    rows = max(1, SCORED * 4_096 // length)
    device = next(model.parameters()).device
    with torch.no_grad(), exact_products(model, rows * length, device):
        for ids, positions, targets in zip(*(x.split(rows) for x in batch.values()), strict=True):
            ids, positions = ids.to(device), positions.to(device)
            states = model.encode(ids) if hasattr(model, "encode") else model.base_model(ids).last_hidden_state
            states = states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))
            logits = model.lm_head(states).flatten(0, 1)
            found.append(cross_entropy(logits, targets.flatten().to(device), "none").cpu())
    counts = batch["targets"].flatten() != -100
    return torch.cat(found)[counts].double().numpy(), batch["positions"].flatten()[counts].numpy()


def away_from_seams(places: "np.ndarray", piece: int, near: int) -> "np.ndarray":
    """Which positions have at least `near` others on either side in their piece, so that RoBERTa sees as much around
    them as the window shows."""
    return (places % piece >= near) & (places % piece < piece - near)


def by_position(losses: "list[tuple[np.ndarray, np.ndarray]]", period: int) -> list[list[float]]:
    """Nats per masked token by position modulo `period`: [middle, mean] of each stretch of positions."""
    return [[middle, float(nats.mean())] for middle, nats in stretches(losses, period)]


def stretches(losses: "list[tuple[np.ndarray, np.ndarray]]", period: int) -> "Iterator[tuple[float, np.ndarray]]":
    """The middle and the nats of each nonempty stretch. There are STRETCHES of them; the first and last are split at 1,
    2, 4, ... positions from the end, where a seam is."""
    import numpy as np

    nats, places = (np.concatenate(parts) for parts in zip(*losses, strict=True))
    near = [2**k for k in range(int(np.log2(period / STRETCHES)) + 1)]
    edges = sorted({*np.linspace(0, period, STRETCHES + 1).tolist(), *near, *(period - n for n in near)})
    which = np.digitize(places % period, edges) - 1
    for k in sorted(set(which.tolist())):
        yield (edges[k] + edges[k + 1]) / 2, nats[which == k]


def largest_difference(model, roberta, books: list[Hidden], n: int) -> float:
    """The largest difference between the logits of two models, over the first `n` tokens of each book."""
    import torch

    ids = torch.stack([torch.from_numpy(book.shown[0, :n]) for book in books])
    with torch.no_grad():
        return float((model(ids).logits - roberta(ids).logits).abs().max())


@cache
def _weights(base) -> int:
    return PRETRAINING.estimate(base).parameters


RATE = {"smoke": 3e10, "small": 2.4e11, "medium": 3e13, "paper": 6e13}  # FLOP/s in training
BOOKS = {"synthetic-books": 6, "pg19-subset": 26, "pg19": 50}


def estimate(config):
    from repro.evaluation import flops_per_token
    from repro.training.masking import SHARE

    base = base_of(config)
    seen = base.n_positions if config.configuration.startswith("roberta") else config.window
    forward = (flops_per_token(base.n_layer, base.n_embd, seen, 0) + 2 * base.n_layer * seen * base.n_embd
               + SHARE * 2 * base.n_embd * (base.vocab_size + base.n_embd))
    scored = 2 * BOOKS.get(config.scored_corpus, 50) * config.scored_tokens
    n = _weights(base)
    if not config.configuration.startswith("roberta"):  # more positions, and projections of global tokens
        n += (config.max_positions - base.n_positions) * base.n_embd + 3 * base.n_layer * (base.n_embd**2 + base.n_embd)
    flops = forward * (3 * config.tokens + scored)
    step = config.batch_size * config.max_positions
    kept = 4 * step * base.n_embd * (2 * base.n_layer + 34 if config.recompute else 34 * base.n_layer)
    return Estimate(n, config.tokens, flops, PROCESS + 16 * n + kept, flops / RATE[config.scale])


REAL = {"corpus": "gutenberg-pretrain", "scored_corpus": "pg19-subset", "precision": "bf16"}
SCALES = {
    "smoke": {"corpus": "synthetic-books", "scored_corpus": "synthetic-books", "window": 16, "max_positions": 256,
              "scored_tokens": 2_048, "batch_size": 4, "learning_rate": 2e-3},
    "small": REAL | {"window": 128, "batch_size": 2},
    "medium": REAL | {"window": 256, "batch_size": 16, "learning_rate": 3e-4},
    "paper": {"corpus": "pg19", "scored_corpus": "pg19", "window": 512, "batch_size": 64, "learning_rate": 3e-5,
              "warmup_steps": 500, "optimizer": "adamw", "precision": "bf16", "recompute": True,
              "kinds": ("Books", "English Wikipedia", "Realnews", "Stories")},
}
# The paper's rate is a twentieth of RoBERTa's pre-training rate; this one is a twentieth of roberta-mini's. At 1e-3, a
# third of that rate, short trainings made both Longformer and RoBERTa worse.
GENTLE = 1.5e-4
# For `frozen`. At 3e-3 the rates of all steps add up to about the paper's sum, 0.5. But in so few steps of so few
# tokens, that throws rows with entries of 0.07 far off: the training loss rose at seed 0, which decided this rate.
FREE = 5e-4
# Tokens of `short` and of the longer trainings: at `paper` 2,000 and 65,000 updates of 2^18 tokens.
LENGTHS = {"smoke": (20_480, 122_880), "small": (400_000, 4_000_000), "medium": (2_000_000, 40_000_000),
           "paper": (2_000 * 2**18, 65_000 * 2**18)}
BASES = {"paper": ("FacebookAI/roberta-base", "FacebookAI/roberta-large")}


def grid(scale: str) -> list[dict]:
    """Table 5, the controls that continue at RoBERTa's length, and `copied` with the paper's window where that differs.

    At these scales, a configuration set by hand runs with both windows.
    """
    points: list[dict] = [{"configuration": name} for name in CONFIGURATIONS]
    if scale in ("small", "medium"):
        points.append({"configuration": "copied", "window": 512})
    return [point | {"source": source} for source in BASES.get(scale, (None,)) for point in points]


EXPERIMENT = Experiment(
    name="roberta-to-longformer", paper=PAPER, summary="RoBERTa made into Longformer: bits per masked token of books.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    needs=lambda config: [base_of(config)],
    reads=lambda config: (config.scored_corpus, *PRETRAINING.reads(base_of(config))),
    rereading=Rereading(lambda configs, name: [{"scored_corpus": name} for _ in configs],
                        lambda config: config.max_positions, lambda config: tokeniser_of(base_of(config)),
                        learns=lambda config: config.configuration in TRAINED))
register(EXPERIMENT)
