"""Recurrence against the fine-tuned baseline on WikiText-103 (Yoshida et al. 2020, section 4.2 and Table 1)."""

from repro.papers.yoshida2020 import finetuning
from repro.papers.yoshida2020.effects import (
    MASKED,
    SAME_WEIGHTS,
    at_points,
    both,
    context_counts,
    falling,
    first_gain,
    gain,
    matched_baseline,
    overlap_gain,
    printed,
    printed_steps,
    shrinking,
)
from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.tables import CONTROL, FIRST, gain_figure, gains, perplexities
from repro.study import Artifact, Claim, register

SCALES = finetuning.SCALES | {"smoke": finetuning.SCALES["smoke"] | {"test_head": 1000}}
PAPER_OVERLAPS = (0, 5, 10, 30, 50)
ROWS = {  # of Table 1, by scale
    "smoke": table_rows((0, 3, 5), (0, 3, 5), controls=(5,)),
    # More seeds, and both readings of "the second layer".
    "small": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:], first=(0, 50)),
    "pretrained": table_rows((0, 50), (0, 50), controls=(50,), literal=(0,)),
    "medium": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:]),
    "paper": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:]),
}


def most(scale: str) -> int:
    """The largest overlap of the table, in tokens."""
    return max(row["overlap"] for row in ROWS[scale])


def grid(scale: str) -> list[dict]:
    """Table 1, and as a control baselines that were trained on the overlapping windows they are tested on."""
    return ROWS[scale]


SCORED = {"smoke": 55_000, "small": 390_000, "pretrained": 370_000, "medium": 600_000, "paper": 536_000}
EVALUATION = evaluation("recurrence-wikitext103", "Word perplexity at every overlap (Table 1).", SCALES, grid, SCORED)
register(EVALUATION)

PAPER, TABLE = "yoshida2020", "yoshida2020_table1_wikitext103"
register(
    Artifact(id="yoshida2020-table1", paper=PAPER, title="Perplexity per word on articles, by overlap",
             chapter="06_wikitext103", experiment=EVALUATION.name, source="Table 1",
             build=lambda context: perplexities(context, TABLE)),
    Artifact(id="yoshida2020-table1-gain", paper=PAPER, chapter="06_wikitext103",
             title="Effect of recurrence on the perplexity of articles, at equal overlap",
             experiment=EVALUATION.name, source="Table 1",
             build=lambda context: gains(context, TABLE)),
    Artifact(id="yoshida2020-table1-gain-figure", paper=PAPER, title="Gain from recurrence on articles, by overlap",
             chapter="04_recurrence_module", experiment=EVALUATION.name, source="Table 1", kind="figure",
             build=lambda context: gain_figure(context, TABLE),
             look_for="Recurrence helps where the marks of the recurrent model lie above zero and above the "
                      "hollow marks of the controls, which show the gain that remains without it."))

GAIN = {"paper": PAPER, "source": "Table 1", "experiment": EVALUATION.name, "unit": "document", "direction": "lower",
        "relative": True, "control": MASKED, "assay": context_counts(TABLE), "measure": gain,
        "about": ("yoshida2020-table1-gain", "yoshida2020-table1")}
OVERLAP = GAIN | {"control": "", "assay": None, "same_weights": True, "why_no_control": SAME_WEIGHTS,
                  "why_no_assay": "it is the assay itself", "about": ("yoshida2020-table1",)}
register(
    Claim(id="yoshida2020-table1-gain-disjoint", **GAIN, family="yoshida2020-table1-gain",
          where=at_points(*both(0)), seeds=5,
          sentence="Without overlap, the recurrent model has a lower test perplexity than the fine-tuned baseline.",
          short="Recurrence helps without overlap.",
          paper_effect=printed(TABLE, *both(0))),
    *(Claim(id=f"yoshida2020-table1-gain-{overlap}", **GAIN, family="yoshida2020-table1-gain",
            sentence=f"With an overlap of {overlap} of 300 tokens, the recurrent model has a lower test perplexity "
                     "than the fine-tuned baseline.", short=f"Recurrence helps at an overlap of {overlap} of 300.",
            where=at_points(*both(overlap), also=matched_baseline(overlap)),
            paper_effect=printed(TABLE, *both(overlap)))
      for overlap in (5, 10, 30)),
    Claim(id="yoshida2020-table1-gain-disjoint-first-block", **GAIN | {"measure": first_gain},
          where=at_points((FIRST, 0), ("baseline", 0)), paper_effect=printed(TABLE, *both(0)),
          family="yoshida2020-table1-gain",
          sentence="Without overlap, the recurrent model with its module at the first of six blocks, as deep as the "
                   "second of twelve, has a lower test perplexity than the fine-tuned baseline.",
          short="Recurrence at the first of six blocks helps."),
    Claim(id="yoshida2020-table1-gain-overlapped", **GAIN, family="yoshida2020-table1-gain",
          sentence="Recurrence still helps when both models read with the largest overlap of the table.",
          short="Recurrence still helps at the largest overlap.",
          where=at_points(*both(50), (CONTROL, 50)), paper_effect=printed(TABLE, *both(50))),
    Claim(id="yoshida2020-table1-overlap", **OVERLAP | {"measure": overlap_gain},
          sentence="The baseline has a lower test perplexity with the largest overlap than on disjoint windows.",
          short="The baseline is better at the largest overlap than at none.",
          where=at_points(("baseline", 0), ("baseline", 50)),
          paper_effect=printed(TABLE, ("baseline", 50), ("baseline", 0))),
    Claim(id="yoshida2020-table1-overlap-falls", **OVERLAP | {"measure": falling},
          sentence="The baseline's test perplexity falls with every step of the overlap.",
          short="The baseline improves with every step of overlap.",
          where=at_points(*(("baseline", overlap) for overlap in (0, 5, 10, 30, 50))),
          paper_effect=printed_steps(TABLE, "baseline")),
    Claim(id="yoshida2020-table1-recurrent-falls",
          **OVERLAP | {"measure": falling, "same_weights": False, "assay": context_counts(TABLE), "why_no_assay": "",
                       "why_no_control": "the claim is about overlap, in which the module plays no part"},
          sentence="The recurrent model's test perplexity falls with every step of the overlap.",
          short="The recurrent model improves with every step of overlap.",
          where=at_points(*(("recurrent", overlap) for overlap in (0, 5, 10, 30, 50))),
          paper_effect=printed_steps(TABLE, "recurrent")),
    Claim(id="yoshida2020-table1-gain-shrinks", **GAIN | {"measure": shrinking},
          sentence="The gain from recurrence is largest on disjoint windows and shrinks as the overlap grows.",
          short="The gain from recurrence shrinks as the overlap grows.",
          where=at_points(*both(0), *both(50), (CONTROL, 50)),
          paper_effect=lambda: printed(TABLE, *both(0))() - printed(TABLE, *both(50))()))
