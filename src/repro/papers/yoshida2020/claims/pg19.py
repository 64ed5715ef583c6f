"""The claims on Table 2 and Figures 4 and 5: recurrence and overlap on books."""

from math import log1p

from repro.papers.yoshida2020.claims.effects import (
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
from repro.papers.yoshida2020.perplexity.pg19 import EVALUATION, PAPER, TABLE
from repro.papers.yoshida2020.perplexity.pg19_tables import families
from repro.papers.yoshida2020.perplexity.tables import FIRST, is_literal_reading
from repro.papers.yoshida2020.perplexity.wikitext103 import TABLE as ARTICLES
from repro.study import Claim

GAIN = {"paper": PAPER, "source": "Table 2", "experiment": EVALUATION.name, "unit": "book", "direction": "lower",
        "relative": True, "unit_shown": "in perplexity", "control": MASKED, "assay": context_counts(TABLE),
        "measure": gain}


def on_curves(config) -> bool:
    """Whether a config is a point of Figure 5."""
    return config in families(EVALUATION.plan(config.scale))


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
CLAIMS = (
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
    economy("recurrent-0-baseline-30", 0, 30, "A recurrent model on disjoint windows is about as good (at most 1% "
            "worse) as a baseline with an overlap of a tenth of the window.",
            "Recurrence without overlap is as good as a baseline at 30.", 0.01),
    economy("recurrent-5-baseline-50", 5, 50, "A recurrent model with a small overlap beats a baseline with a much "
            "larger one (5 and 50 of 300).", "Recurrence at overlap 5 beats a baseline at 50."),
    economy("recurrent-5-baseline-75", 5, 75, "A recurrent model with a small overlap is about as good (at most 1% "
            "worse) as a baseline with a quarter of the window (5 and 75 of 300).",
            "Recurrence at overlap 5 is as good as a baseline at 75.", 0.01),
    economy("recurrent-50-baseline-200", 50, 200, "With an overlap of a sixth of the window, the recurrent model is as "
            "good (at most 0.5% worse) as a baseline with an overlap of two thirds, or better.",
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
          where=on_curves),
)
