"""From RoBERTa to Longformer (Beltagy et al. 2020, section 5 and Table 5): copied positions, then more training.

Every configuration predicts the same masked tokens of the same books; only how far a model sees differs. Which tokens
these are hangs on the seed and the book: of what is not trained and has no random positions, seeds differ in that
alone. RoBERTa reads a book in pieces of as many tokens as it has positions, each between <s> and </s>; the others read
stretches of several such pieces. What is printed as BPC is bits per masked token: the 1.880 that the paper quotes is
log2 of 3.68, the perplexity in RoBERTa's own Table 3.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.papers.base.models import EXPERIMENTS
from repro.papers.base.pretraining import PROCESS, tokeniser_of
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

if TYPE_CHECKING:
    import numpy as np
    import torch

PRETRAINING = EXPERIMENTS["roberta-mini"]
PAPER, CHAPTER = "longformer2020", "18_from_roberta_to_longformer"
TRAINED = ("short", "long", "frozen", "roberta-short", "roberta-long")  # the last two: controls, RoBERTa trained on
CONFIGURATIONS = ("roberta", "random", "copied", *TRAINED)
MASKS = 2  # keeps the draws of scored books' masks apart from others that take the same seed
STRETCHES = 16  # of positions, in which the loss is told; at both ends of a piece finer ones
SCORED = 4  # stretches at a time


class Config(RunConfig):
    """What becomes of the base model, and how it is trained on and scored."""

    configuration: Literal["roberta", "random", "copied", "short", "long", "frozen", "roberta-short", "roberta-long"]
    window: int = Field(128, ge=2)  # keys on both sides of a token together
    max_positions: int = Field(4096, ge=2)
    tokens: int | None = Field(None, ge=0)  # that are trained on; None: as many as the scale has for the configuration
    batch_size: int = Field(1, ge=1)  # sequences of `max_positions` tokens; of shorter ones as many tokens
    learning_rate: float = Field(1e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then a polynomial of power 3 to 0
    warmup_steps: Annotated[int | None, Field(ge=0), Absent(None)] = None  # None: that share of them; else it counts
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False  # layers in the backward pass
    scored_corpus: str
    scored_split: Literal["validation", "test"] = "validation"
    scored_tokens: int = Field(16_384, ge=2)  # of each book, from its beginning; a shorter one as far as it is whole
    source: str | None = None  # a hub name as the base; None: the base model of the scale
    # The paper's kinds of text (Table 13), for the reader of a plan: read is `corpus`, which has books alone.
    kinds: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _tokens(cls, values: dict) -> dict:
        """As many as the scale has for the configuration, and its rate, where none are given; those that are not
        trained take none.
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
            raise ValueError(f"window is {self.window} keys; half of it lies on each side, so it must be even")
        if self.max_positions < positions or self.max_positions % positions or self.scored_tokens % self.max_positions:
            raise ValueError(f"max_positions is {self.max_positions} and scored_tokens {self.scored_tokens}; the first "
                             f"must be a multiple of the base's {positions} positions, the second one of the first")
        if self.configuration in TRAINED and not self.tokens:
            raise ValueError(f"configuration is {self.configuration} and tokens {self.tokens}; those that are trained "
                             f"({', '.join(TRAINED)}) need some")
        return self


def base_of(config) -> RunConfig:
    """The pretraining of the base model, or its being taken from the hub."""
    sets = {"source": config.source} | SIZES.get(config.source, {}) if config.source else {}
    return PRETRAINING.plan(config.scale, sets)[0]


SIZES = {"FacebookAI/roberta-large": {"n_layer": 24, "n_embd": 1024, "n_head": 16}}  # that are not roberta-base's


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
    model.to("cuda" if torch.cuda.is_available() else "cpu")  # where training leaves it, and what is not trained too
    books = tokens(config.scored_corpus, config.scored_split, coder)
    reach = pieces if model is roberta else config.max_positions
    ways = {"": reach} | ({"pieces_": pieces} if reach > pieces else {})
    documents, told = {}, {}
    held = [book for k in range(len(books)) if (book := hidden(
        books.document(k), config, pieces, coder.mask + 1, k, books.targets_of(k)))]
    with context.progress(len(ways) * len(held), "scoring", "books") as bar:
        for name, length in ways.items():
            told[name] = [losses(model, book, length) for book in held if bar.advance(1) is None]
            documents[f"{name}nats"] = [float(nats.sum()) for nats, _ in told[name]]
            inside = [away_from_seams(places, pieces, config.window // 2) for _, places in told[name]]
            documents[f"{name}inside_nats"] = [float(nats[kept].sum())
                                               for (nats, _), kept in zip(told[name], inside, strict=True)]
    documents["inside_tokens"] = [int(kept.sum()) for kept in inside]  # of either way the same ones
    documents["tokens"] = [len(nats) for nats, _ in told[""]]
    metrics = {f"{name}masked_bits_per_token": bits(sum(documents[f"{name}nats"]), sum(documents["tokens"]))
               for name in ways}
    curves |= {"loss_by_position": by_position(told[""], pieces),
               "tokens_by_position": [[middle, float(len(nats))] for middle, nats in stretches(told[""], pieces)]}
    if config.configuration == "frozen":
        model.cpu()  # whose products are the most exact
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
    """What the training tells. The model is trained in place, on masked text as RoBERTa was; the last weights count.
    """
    import torch

    from repro.training import Masked, MaskedLM, Sequences, TrainConfig, train

    plain = config.configuration.startswith("roberta")
    length = pieces if plain else config.max_positions
    each = config.batch_size * (config.max_positions // length)
    if config.configuration == "frozen":
        model.learn_positions_only(pieces)
    if plain and config.precision == "bf16" and not torch.cuda.is_available():
        model.set_attn_implementation("eager")  # plain products, which are faster
    if config.recompute:
        model.gradient_checkpointing_enable()
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
    """What trains it: always AdamW where nothing but positions learns."""
    return "adamw" if config.configuration == "frozen" else config.optimizer


class Hidden(NamedTuple):
    """A book in pieces, some of whose tokens are hidden: the same ones whatever stretches of it are read."""

    plain: "np.ndarray"  # (pieces, piece) ids as they are, without <s> and </s> at the seams
    shown: "np.ndarray"  # (pieces, piece) ids as a model that reads pieces sees them
    positions: "np.ndarray"  # (pieces, K) of what is to be told, in each piece
    targets: "np.ndarray"  # (pieces, K); -100 counts nothing


def hidden(ids: "np.ndarray", config, piece: int, vocab_size: int, number: int = 0,
           targets: "np.ndarray | None" = None) -> Hidden | None:
    """The beginning of a book (N,), in pieces; None for one that is shorter than `max_positions`.

    What is hidden hangs on the seed of `config` and the book's `number`, and on nothing else. targets (N,) bool: which
    tokens can be; None: all. No piece's first or last token is ever to be told: where a piece is read by itself, <s>
    and </s> stand there.
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
    """A book as a model reads it in stretches of `length` tokens, a multiple of a piece, each from <s> to </s>."""
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
    """Which positions have at least `near` others on either side in their piece: RoBERTa sees as much around them as
    the window shows."""
    return (places % piece >= near) & (places % piece < piece - near)


def by_position(told: "list[tuple[np.ndarray, np.ndarray]]", period: int) -> list[list[float]]:
    """Nats per masked token by position modulo `period`, in stretches of it: [its middle, mean]."""
    return [[middle, float(nats.mean())] for middle, nats in stretches(told, period)]


def stretches(told: "list[tuple[np.ndarray, np.ndarray]]", period: int) -> "Iterator[tuple[float, np.ndarray]]":
    """The middle and the nats of each stretch in which there are some: STRETCHES of them, of which the first and the
    last are cut at 1, 2, 4, ... positions from the end, where a seam is."""
    import numpy as np

    nats, places = (np.concatenate(parts) for parts in zip(*told, strict=True))
    near = [2**k for k in range(int(np.log2(period / STRETCHES)) + 1)]
    edges = sorted({*np.linspace(0, period, STRETCHES + 1).tolist(), *near, *(period - n for n in near)})
    which = np.digitize(places % period, edges) - 1
    for k in sorted(set(which.tolist())):
        yield (edges[k] + edges[k + 1]) / 2, nats[which == k]


def largest_difference(model, roberta, books: list[Hidden], n: int) -> float:
    """Between the logits of two models, over the first `n` tokens of each book."""
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
# The paper's rate is a twentieth of that of RoBERTa's pretraining, and this one of roberta-mini's. At 1e-3, a third of
# that, short trainings made Longformer and RoBERTa worse alike.
GENTLE = 1.5e-4
# Of `frozen`. By 3e-3 the rates of all steps add up to nearly what the paper's do, 0.5, but in so few steps of so few
# tokens rows whose numbers are 0.07 large are thrown about: the training loss rose at seed 0, by which this is chosen.
FREE = 5e-4
# Tokens of `short`, and of what is trained longer: at `paper` 2,000 and 65,000 updates of 2^18 tokens.
LENGTHS = {"smoke": (20_480, 122_880), "small": (400_000, 4_000_000), "medium": (2_000_000, 40_000_000),
           "paper": (2_000 * 2**18, 65_000 * 2**18)}
BASES = {"paper": ("FacebookAI/roberta-base", "FacebookAI/roberta-large")}


def grid(scale: str) -> list[dict]:
    """Table 5, the controls that go on at RoBERTa's length, and `copied` with the paper's window, where that differs.

    A configuration that is set by hand is, at these scales, run with both windows.
    """
    points: list[dict] = [{"configuration": name} for name in CONFIGURATIONS]
    if scale in ("small", "medium"):
        points.append({"configuration": "copied", "window": 512})
    return [point | {"source": source} for source in BASES.get(scale, (None,)) for point in points]


EXPERIMENT = Experiment(
    name="roberta-to-longformer", paper=PAPER, summary="RoBERTa made into Longformer: bits per masked token of books.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    needs=lambda config: [base_of(config)],
    reads=lambda config: (config.scored_corpus, *PRETRAINING.reads(base_of(config))))
register(EXPERIMENT)
