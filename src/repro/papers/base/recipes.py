"""How the recipe of the base models was found: what was tried, on how few tokens, and what it gave.

These trainings were made by hand before the recipe was settled and have no records; each was one seed. They are shown
so that nobody takes the recipe for better founded than it is.
"""

from dataclasses import astuple, dataclass

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.study import Artifact, register

BOOKS_AND_WIKIPEDIA, OTHER, UNKNOWN = "books-and-wikipedia", "another text", "not noted"


@dataclass(frozen=True)
class Tried:
    """A short training of 6 layers of width 256 with 8,192 ids, and its loss on held-out text in nats per token."""

    tokens: int
    batch: str  # sequences x tokens
    text: str
    optimizer: str
    learning_rate: float
    weight_decay: str
    found: str  # nats per token
    positions: str = "random"  # what they start as: random, or waves of this amplitude
    predicts: str = "next token"


def encoder(tokens: int, batch: str, optimizer: str, learning_rate: float, positions: str, found: str) -> Tried:
    """One that fills in masked tokens, 2,048 tokens a step."""
    return Tried(tokens, batch, BOOKS_AND_WIKIPEDIA, optimizer, learning_rate, "0.1", found, positions, "masked token")


SEARCH = (
    Tried(410_000, "16 x 256", BOOKS_AND_WIKIPEDIA, "Muon", 3e-3, "0.1", "6.190"),
    Tried(410_000, "16 x 256", BOOKS_AND_WIKIPEDIA, "Muon", 6e-3, "0.1", "6.084"),
    Tried(410_000, "16 x 256", BOOKS_AND_WIKIPEDIA, "Muon", 3e-3, "0", "6.189"),
    Tried(1_500_000, "8 x 256", OTHER, "AdamW", 3e-3, UNKNOWN, "5.36"),
    Tried(1_500_000, "8 x 256", OTHER, "Muon", 3e-3, UNKNOWN, "4.94"),
    Tried(1_500_000, "8 x 256", OTHER, "Muon", 6e-3, UNKNOWN, "the same"),
    Tried(1_500_000, "8 x 256", OTHER, "Muon", 1e-2, UNKNOWN, "a little more"),
    encoder(1_000_000, "16 x 128", "Muon", 3e-3, "random", "6.48"),
    encoder(1_000_000, "16 x 128", "Muon", 1e-3, "random", "6.46"),
    encoder(1_000_000, "16 x 128", "Muon", 3e-3, "waves, 0.02", "6.44"),
    encoder(1_000_000, "64 x 32", "Muon", 3e-3, "random", "6.39"),
    encoder(1_000_000, "64 x 32", "AdamW", 1e-3, "waves, 0.02", "6.47"),
    encoder(1_600_000, "64 x 32", "Muon", 3e-3, "waves, 0.05", "6.195"),
)


def table(context):
    """A row for each training that was tried; those of one text and length can be compared."""
    import pandas

    columns = ["predicts", "tokens", "batch", "text", "optimizer", "learning rate", "weight decay", "positions",
               "nats per token"]
    rows = [(one.predicts, f"{one.tokens:,}", *astuple(one)[1:4], f"{one.learning_rate:g}", one.weight_decay,
             one.positions, one.found) for one in SEARCH]
    return pandas.DataFrame(rows, columns=columns)


register(Artifact(
    id="base-recipes", paper="yoshida2020", title="What was tried before the recipe of the base models was settled",
    chapter="02_corpora_and_base_models", experiment=PRETRAINING.name,
    source="not in the paper; tried once, without records", build=table))
