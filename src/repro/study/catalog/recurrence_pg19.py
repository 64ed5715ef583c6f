"""Recurrence on books (Yoshida et al. 2020, sections 4.3 and 3.1): Table 2, Figures 4 and 5.

`small` trains on the first 20 books of the subset by file name, `medium` on all 384, the paper on 1,250 of PG-19's.
At `smoke` the window is a tenth of the paper's 300 tokens.
"""

from typing import Any

from repro.study import register
from repro.study.catalog import finetune_gpt2
from repro.study.recurrence_runs import evaluation

BOOKS = {
    "smoke": {},
    "small": {"corpus": "pg19-subset", "train_documents": 20, "validation_head": 15_000},
    "medium": {"corpus": "pg19-subset", "train_documents": 384, "epochs": 1.0, "validation_head": 15_000},
    "paper": {"corpus": "pg19", "train_documents": 1250, "validation_head": 15_000},
}
SCALES = {scale: finetune_gpt2.SCALES[scale] | books for scale, books in BOOKS.items()}
SCORED = {"smoke": 35_000, "small": 3_900_000, "medium": 3_300_000, "paper": 10_000_000}

BASELINE = {"smoke": (0, 3, 5, 20)}  # overlaps of Table 2, in tokens
RECURRENT = {"smoke": (0, 3, 5)}
WINDOWS = {"smoke": (20, 40)}  # of Figures 4 and 5, besides that of Table 2
FAMILIES = {"smoke": (0, 3, 5)}  # overlaps of the baselines in Figure 5


def grid(scale: str) -> list[dict[str, Any]]:
    """Table 2 on both texts; the other window sizes on validation text, where the paper shows them."""
    table = [{"model": "baseline", "overlap": o} for o in BASELINE.get(scale, (0, 5, 10, 30, 50, 75, 100, 150, 200))]
    table += [{"model": "recurrent", "overlap": o} for o in RECURRENT.get(scale, (0, 5, 10, 30, 50))]
    other = []
    for window in WINDOWS.get(scale, (200, 400, 500, 600)):
        size = {"window": window, "splits": ("validation",)}
        other += [{"model": "recurrent", "overlap": 0, **size}]
        other += [{"model": "baseline", "overlap": o, **size} for o in FAMILIES.get(scale, (0, 10, 30, 50))]
    return table + other


EVALUATION = evaluation("recurrence-pg19", "Word perplexity on books by overlap and window (Table 2, Figures 4, 5).",
                        SCALES, grid, SCORED)
register(EVALUATION)
