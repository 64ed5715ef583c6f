"""Recurrence on books (Yoshida et al. 2020, sections 4.3 and 3.1): Table 2, Figures 4 and 5.

`small` trains on 20 books of the subset, drawn for each seed, `medium` on all 384, and the paper on 1,250 of PG-19.
At `smoke` the window is a tenth of the paper's 300 tokens.
"""

from typing import Any

from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.perplexity.pg19_tables import (
    cost_figure,
    window_figure,
    window_table,
)
from repro.papers.yoshida2020.perplexity.tables import gain_figure, gains, perplexities
from repro.study import Artifact, register

BOOKS = {
    "smoke": {"test_head": 1000},
    # Every step has 6,000 targets at every window size, and books are read in part.
    "small": {"corpus": "pg19-subset", "train_documents": 20, "train_draw": "random", "sequence": 6000,
              "validation_documents": None, "validation_head": 3000, "test_head": 4000},
    "pretrained": {"corpus": "pg19-subset", "train_documents": 60, "validation_documents": None,
                   "validation_head": 4096, "test_head": 8192},
    "medium": {"corpus": "pg19-subset", "train_documents": 384, "epochs": 1.0, "validation_head": 15_000},
    "paper": {"corpus": "pg19", "train_documents": 1250, "validation_head": 15_000},
}
SCALES = {scale: finetuning.SCALES[scale] | books for scale, books in BOOKS.items()}
SCORED = {"smoke": 55_000, "small": 210_000, "pretrained": 377_000, "medium": 3_300_000, "paper": 10_000_000}

PAPER_OVERLAPS = (0, 5, 10, 30, 50, 75, 100, 150, 200)  # overlaps of Table 2, in tokens
ROWS = {  # of Table 2, by scale
    "smoke": table_rows((0, 3, 5, 20), (0, 3, 5)),
    "small": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS[:5], controls=PAPER_OVERLAPS[1:5], first=(0, 50)),
    "pretrained": table_rows((0, 50), (0, 50), controls=(50,), literal=(0,)),
    "medium": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS[:5], controls=PAPER_OVERLAPS[1:5]),
    "paper": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS[:5], controls=PAPER_OVERLAPS[1:5]),
}
WINDOWS = {"smoke": (20, 40), "small": (200, 600), "pretrained": ()}  # of Figures 4 and 5, except Table 2's window
FAMILIES = {"smoke": (0, 3, 5)}  # overlaps of the baselines in Figure 5


def grid(scale: str) -> list[dict[str, Any]]:
    """Table 2 on validation and test text; the other window sizes on validation text, as in the paper."""
    other: list[dict[str, Any]] = []
    for window in WINDOWS.get(scale, (200, 400, 500, 600)):
        size = {"window": window, "splits": ("validation",)}
        other += [{"model": "recurrent", "overlap": 0, **size}]
        other += [{"model": "baseline", "overlap": o, **size} for o in FAMILIES.get(scale, (0, 10, 30, 50))]
    return ROWS[scale] + other


EVALUATION = evaluation("recurrence-pg19", "Word perplexity on books by overlap and window (Table 2, Figures 4, 5).",
                        SCALES, grid, SCORED)
register(EVALUATION)

PAPER, TABLE, CHAPTER = "yoshida2020", "yoshida2020_table2_pg19", "07_pg19"
ARTICLES = "yoshida2020_table1_wikitext103"

register(
    Artifact(id="yoshida2020-table2", paper=PAPER, title="Perplexity per word on books, by overlap", chapter=CHAPTER,
             experiment=EVALUATION.name, source="Table 2", build=lambda context: perplexities(context, TABLE)),
    Artifact(id="yoshida2020-table2-gain", paper=PAPER, chapter=CHAPTER,
             title="Effect of recurrence on the perplexity of books, at equal overlap",
             experiment=EVALUATION.name, source="Table 2",
             build=lambda context: gains(context, TABLE)),
    Artifact(id="yoshida2020-table2-gain-figure", paper=PAPER, title="Gain from recurrence on books, by overlap",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Table 2", kind="figure",
             build=lambda context: gain_figure(context, TABLE),
             look_for="Recurrence helps where the marks of the recurrent model lie above zero and above the "
                      "hollow marks of the controls, which show the gain that remains without it."),
    Artifact(id="yoshida2020-figure4", paper=PAPER, chapter=CHAPTER,
             title="Effect of recurrence on validation perplexity, by window size",
             experiment=EVALUATION.name, source="Figure 4", kind="figure", build=window_figure,
             look_for="Zero is the baseline in the same windows. Recurrence helps where its mark and interval lie "
                      "below zero, and below the same model with its module masked out."),
    Artifact(id="yoshida2020-figure4-values", paper=PAPER, title="Validation perplexity by window size, in numbers",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 4", build=window_table),
    Artifact(id="yoshida2020-figure5", paper=PAPER, chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 5",
             title="Change of validation perplexity against extra FLOPs per token", kind="figure", build=cost_figure,
             look_for="A step of overlap moves right and down: it costs more and helps. Recurrence costs little or "
                      "nothing in this count, so it is worth having where its mark and interval lie below zero. Each "
                      "panel compares with the baseline on disjoint windows of T tokens; points on the band are "
                      "unbeaten."))
