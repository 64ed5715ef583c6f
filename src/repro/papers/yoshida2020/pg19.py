"""Recurrence on books (Yoshida et al. 2020, sections 4.3 and 3.1): Table 2, Figures 4 and 5.

`small` trains on 20 books of the subset, drawn for each seed, `medium` on all 384, the paper on 1,250 of PG-19's.
At `smoke` the window is a tenth of the paper's 300 tokens.
"""

from math import log1p
from typing import Any

from repro.papers.yoshida2020 import finetuning
from repro.papers.yoshida2020.effects import (
    EXPERIMENTS,
    MASKED,
    SAME_WEIGHTS,
    at_points,
    both,
    context_counts,
    every_window,
    falling,
    first_gain,
    gain,
    matched_baseline,
    more_on_books,
    pareto_margin,
    printed,
    printed_steps,
    shrinking,
    widening,
)
from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.pg19_tables import (
    cost_figure,
    families,
    window_figure,
    window_table,
)
from repro.papers.yoshida2020.tables import FIRST, gain_figure, gains, is_literal_reading, perplexities
from repro.study import Artifact, Claim, register

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
WINDOWS = {"smoke": (20, 40), "small": (200, 600), "pretrained": ()}  # of Figures 4 and 5, besides that of Table 2
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


def on_curves(config) -> bool:
    """Whether a config is a point of Figure 5."""
    return config in families(EVALUATION.plan(config.scale))


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
    Artifact(id="yoshida2020-figure4", paper=PAPER, title="Validation perplexity by window size", chapter=CHAPTER,
             experiment=EVALUATION.name, source="Figure 4", kind="figure", build=window_figure,
             look_for="Recurrence helps at a window size if its line lies below the baseline's; compare the gap at "
                      "short and long windows."),
    Artifact(id="yoshida2020-figure4-values", paper=PAPER, title="Validation perplexity by window size, in numbers",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 4", build=window_table),
    Artifact(id="yoshida2020-figure5", paper=PAPER, title="Validation perplexity against FLOPs per token",
             chapter=CHAPTER, experiment=EVALUATION.name, source="Figure 5", kind="figure", build=cost_figure,
             look_for="Points on the band are worth their cost: no other model is both cheaper and better. A line "
                      "below and left of another wins."))

GAIN = {"paper": PAPER, "source": "Table 2", "experiment": EVALUATION.name, "unit": "book", "direction": "lower",
        "relative": True, "control": MASKED, "assay": context_counts(TABLE), "measure": gain}


def economy(id: str, recurrent: int, baseline: int, sentence: str, short: str, margin: float = 0.0) -> Claim:
    """The recurrent model at one overlap against the baseline at a larger one; it may be worse by `margin`.

    The assay is the baseline's gain from that increase of the overlap. Without such a gain, being as good proves
    nothing.
    """
    points = ("recurrent", recurrent), ("baseline", baseline)
    assay = context_counts(TABLE, overlap=baseline, since=recurrent)
    return Claim(id=f"yoshida2020-table2-{id}", **GAIN | {"assay": assay}, sentence=sentence, short=short,
                 null=log1p(margin), margin=margin > 0, where=at_points(*points), family="yoshida2020-table2-economy",
                 paper_effect=printed(TABLE, *points), about=("yoshida2020-table2",))


FIGURES = GAIN | {"source": "Figure 4", "why_no_paper_effect": "plotted without digits",
                  "about": ("yoshida2020-figure4", "yoshida2020-figure4-values")}
register(
    *(Claim(id=f"yoshida2020-table2-gain-{overlap}", **GAIN,
            where=at_points(*both(overlap), also=matched_baseline(overlap)),
            about=("yoshida2020-table2-gain", "yoshida2020-table2"), paper_effect=printed(TABLE, *both(overlap)),
            sentence=f"On books, with an overlap of {overlap} of 300 tokens, the recurrent model has a lower test "
                     "perplexity than the fine-tuned baseline.",
            short=f"On books, recurrence helps at an overlap of {overlap} of 300.",
            family="yoshida2020-table2-gain", seeds=3 if overlap else 5) for overlap in (0, 5, 10, 30, 50)),
    Claim(id="yoshida2020-table2-gain-0-first-block", **GAIN | {"measure": first_gain},
          family="yoshida2020-table2-gain", where=at_points((FIRST, 0), ("baseline", 0)),
          about=("yoshida2020-table2-gain", "yoshida2020-table2"), paper_effect=printed(TABLE, *both(0)),
          sentence="On books, without overlap, the recurrent model with its module at the first of six blocks, as deep "
                   "as the second of twelve, has a lower test perplexity than the fine-tuned baseline.",
          short="On books, recurrence at the first of six blocks helps."),
    economy("recurrent-0-baseline-30", 0, 30, "A recurrent model on disjoint windows is about as good (at most 1 % "
            "worse) as a baseline with an overlap of a tenth of the window.",
            "Recurrence without overlap is as good as a baseline at 30.", 0.01),
    economy("recurrent-5-baseline-50", 5, 50, "A recurrent model with a small overlap beats a baseline with a much "
            "larger one (5 and 50 of 300).", "Recurrence at overlap 5 beats a baseline at 50."),
    economy("recurrent-5-baseline-75", 5, 75, "A recurrent model with a small overlap is about as good (at most 1 % "
            "worse) as a baseline with a quarter of the window (5 and 75 of 300).",
            "Recurrence at overlap 5 is as good as a baseline at 75.", 0.01),
    economy("recurrent-50-baseline-200", 50, 200, "With an overlap of a sixth of the window, the recurrent model is as "
            "good (at most 0.5 % worse) as a baseline with an overlap of two thirds, or better.",
            "Recurrence at overlap 50 is as good as a baseline at 200.", 0.005),
    Claim(id="yoshida2020-table2-gain-shrinks", **GAIN | {"measure": shrinking},
          sentence="On books, too, the gain from recurrence is larger on disjoint windows than at the largest overlap.",
          short="On books, recurrence gains most on disjoint windows.",
          about=("yoshida2020-table2-gain", "yoshida2020-table2"),
          where=at_points(*both(0), *both(50), also=matched_baseline(50)),
          paper_effect=lambda: printed(TABLE, *both(0))() - printed(TABLE, *both(50))()),
    Claim(id="yoshida2020-table2-more-on-books", **GAIN | {
            "measure": more_on_books, "experiment": EXPERIMENTS, "source": "Tables 1 and 2",
            "assay": context_counts(TABLE, ARTICLES)},
          sentence="On disjoint windows, recurrence gains more on books than on articles of Wikipedia.",
          short="Recurrence gains more on books than on Wikipedia.",
          about=("yoshida2020-table2-gain", "yoshida2020-table1-gain"), where=at_points(*both(0)),
          paper_effect=lambda: printed(TABLE, *both(0))() - printed(ARTICLES, *both(0))()),
    Claim(id="yoshida2020-table2-recurrent-falls", **GAIN | {
            "measure": falling, "control": "", "about": ("yoshida2020-table2",),
            "why_no_control": "the claim is about overlap, in which the module plays no part"},
          sentence="The recurrent model's test perplexity on books falls with every increase of the overlap.",
          short="On books, recurrence improves with every step of overlap.",
          where=at_points(*(("recurrent", overlap) for overlap in (0, 5, 10, 30, 50))),
          paper_effect=printed_steps(TABLE, "recurrent")),
    Claim(id="yoshida2020-table2-overlap-falls", **GAIN | {
            "measure": falling, "control": "", "why_no_control": SAME_WEIGHTS, "assay": None, "same_weights": True,
            "why_no_assay": "it is the assay itself", "about": ("yoshida2020-table2",)},
          sentence="The baseline's test perplexity on books falls with every increase of the overlap, up to two thirds "
                   "of the window.",
          short="On books, the baseline improves with every step of overlap.",
          paper_effect=printed_steps(TABLE, "baseline"),
          where=at_points(*(("baseline", overlap) for overlap in (0, 5, 10, 30, 50, 75, 100, 150, 200)))),
    Claim(id="yoshida2020-figure4-every-window", **FIGURES | {"measure": every_window},
          sentence="On disjoint windows, the recurrent model is better than the baseline at every window size.",
          short="Recurrence helps at every window size.",
          where=lambda config: config.overlap == 0 and is_literal_reading(config)),
    Claim(id="yoshida2020-figure4-widens", **FIGURES | {"measure": widening},
          criterion_before="the difference of the gains alone, even without any gain",
          sentence="On disjoint windows, recurrence helps at the smallest window, and more than at the largest.",
          short="Recurrence gains more at the smallest window than largest.",
          where=lambda config: config.overlap == 0 and is_literal_reading(config)),
    Claim(id="yoshida2020-figure5-front", **FIGURES | {
            "measure": pareto_margin, "source": "Figure 5", "about": ("yoshida2020-figure5",)},
          sentence="Every point of the recurrent model lies on the Pareto front of perplexity and cost.",
          short="Every recurrent model lies on the Pareto front.",
          where=on_curves))
