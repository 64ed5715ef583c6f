"""Recurrence on books (Yoshida et al. 2020, sections 4.3 and 3.1): Table 2, Figures 4 and 5.

`small` trains on the first 20 books of the subset by file name, `medium` on all 384, the paper on 1,250 of PG-19's.
At `smoke` the window is a tenth of the paper's 300 tokens.
"""

from functools import partial
from typing import Any

from repro.papers.yoshida2020 import finetuning
from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.pg19_tables import (
    cost_figure,
    families,
    judge_front,
    judge_pair,
    judge_windows,
    window_figure,
    window_table,
)
from repro.papers.yoshida2020.tables import gains, kind, literal, perplexities
from repro.study import Artifact, Claim, register

BOOKS = {
    "smoke": {},
    "small": {"corpus": "pg19-subset", "train_documents": 20, "validation_head": 15_000},
    "medium": {"corpus": "pg19-subset", "train_documents": 384, "epochs": 1.0, "validation_head": 15_000},
    "paper": {"corpus": "pg19", "train_documents": 1250, "validation_head": 15_000},
}
SCALES = {scale: finetuning.SCALES[scale] | books for scale, books in BOOKS.items()}
NEXT_SCORED = 210_000
SCORED = {"smoke": 35_000, "small": 4_300_000, "medium": 3_300_000, "paper": 10_000_000}

PAPERS = (0, 5, 10, 30, 50, 75, 100, 150, 200)  # overlaps of Table 2, in tokens
WHOLE = table_rows(PAPERS, PAPERS[:5], controls=PAPERS[1:5])
ROWS = {  # of Table 2, by scale
    "smoke": table_rows((0, 3, 5, 20), (0, 3, 5)),
    "small": table_rows(PAPERS, PAPERS[:5]),
    "medium": WHOLE,
    "paper": WHOLE,
}
WINDOWS = {"smoke": (20, 40)}  # of Figures 4 and 5, besides that of Table 2
FAMILIES = {"smoke": (0, 3, 5)}  # overlaps of the baselines in Figure 5

# Of `small` from the next revision on: every step has 6,000 targets at every window size, and books are read in part.
NEXT = {"corpus": "pg19-subset", "train_documents": 20, "sequence": 6000, "validation_documents": None,
        "validation_head": 3000, "test_head": 4000}
NEXT_ROWS = table_rows(PAPERS, (0, 5, 50), controls=(5, 50), first=(0, 50))
NEXT_WINDOWS = (200, 600)
SCALES["small"], SCORED["small"] = finetuning.SCALES["small"] | NEXT, NEXT_SCORED
ROWS["small"], WINDOWS["small"] = NEXT_ROWS, NEXT_WINDOWS


def most(scale: str) -> int:
    """The largest overlap at which a recurrent model is tested, in tokens."""
    return max(row["overlap"] for row in ROWS[scale] if row["model"] == "recurrent")


def grid(scale: str) -> list[dict[str, Any]]:
    """Table 2 on both texts; the other window sizes on validation text, where the paper shows them."""
    other = []
    for window in WINDOWS.get(scale, (200, 400, 500, 600)):
        size = {"window": window, "splits": ("validation",)}
        other += [{"model": "recurrent", "overlap": 0, **size}]
        other += [{"model": "baseline", "overlap": o, **size} for o in FAMILIES.get(scale, (0, 10, 30, 50))]
    return ROWS[scale] + other


EVALUATION = evaluation("recurrence-pg19", "Word perplexity on books by overlap and window (Table 2, Figures 4, 5).",
                        SCALES, grid, SCORED)
register(EVALUATION)

PAPER, TABLE, CHAPTER = "yoshida2020", "yoshida2020_table2_pg19", "07_pg19"


def economy(index: int):
    """Which configs the claim `index` on cost compares: a recurrent model at one overlap, a baseline at a larger."""
    def where(config) -> bool:
        pair = {"smoke": ((0, 3), (3, 5), (5, 20))}.get(config.scale, ((0, 30), (5, 50), (50, 200)))[index]
        table = "test" in config.splits and kind(config) in ("baseline", "recurrent")
        return table and (config.model, config.overlap) in zip(("recurrent", "baseline"), pair, strict=True)
    return where


def on_curves(config) -> bool:
    """Whether a config is a point of Figure 5."""
    return config in families(EVALUATION.plan(config.scale))


register(
    Artifact(id="yoshida2020-table2", paper=PAPER, title="Word perplexity on books by overlap", chapter=CHAPTER,
             experiment=EVALUATION.name, source="Table 2", build=lambda context: perplexities(context, TABLE)),
    Artifact(id="yoshida2020-table2-gain", paper=PAPER, title="What recurrence changes on books at equal overlap",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Table 2",
             build=lambda context: gains(context, TABLE)),
    Artifact(id="yoshida2020-figure4", paper=PAPER, title="Validation perplexity by window size", chapter=CHAPTER,
             experiment=EVALUATION.name, source="Figure 4", kind="figure", build=window_figure),
    Artifact(id="yoshida2020-figure4-values", paper=PAPER, title="Validation perplexity by window size, in numbers",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 4", build=window_table),
    Artifact(id="yoshida2020-figure5", paper=PAPER, title="Validation perplexity against FLOPs per token",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 5", kind="figure", build=cost_figure),
    Claim(id="yoshida2020-table2-recurrent-0-baseline-30", paper=PAPER, source="Table 2", experiment=EVALUATION.name,
          about=("yoshida2020-table2",),
          sentence="A recurrent model on disjoint windows is about as good (at most 1 % worse) as a baseline with an "
                   "overlap of a tenth of the window.",
          where=economy(0), judge=partial(judge_pair, margin=0.01)),
    Claim(id="yoshida2020-table2-recurrent-5-baseline-50", paper=PAPER, source="Table 2", experiment=EVALUATION.name,
          about=("yoshida2020-table2",),
          sentence="A recurrent model with a small overlap beats a baseline with a much larger one (5 and 50 of 300).",
          where=economy(1), judge=judge_pair),
    Claim(id="yoshida2020-table2-half-the-cost", paper=PAPER, source="Table 2", experiment=EVALUATION.name,
          about=("yoshida2020-table2", "yoshida2020-figure5"),
          sentence="With an overlap of a sixth of the window, the recurrent model is as good (at most 0.5 % worse) as "
                   "a baseline with an overlap of two thirds, or better, at less than half of its cost.",
          where=economy(2), judge=partial(judge_pair, margin=0.005, cost=0.5)),
    Claim(id="yoshida2020-figure4-every-window", paper=PAPER, source="Figure 4", experiment=EVALUATION.name,
          about=("yoshida2020-figure4", "yoshida2020-figure4-values"),
          sentence="On disjoint windows, the recurrent model is better than the baseline at every window size.",
          where=lambda config: config.overlap == 0 and literal(config), judge=judge_windows),
    Claim(id="yoshida2020-figure5-front", paper=PAPER, source="Figure 5", experiment=EVALUATION.name,
          about=("yoshida2020-figure5",),
          sentence="Every point of the recurrent model lies on the Pareto front of perplexity and cost.",
          where=on_curves, judge=judge_front))
