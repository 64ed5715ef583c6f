"""The claims on Table 1: recurrence and overlap on articles."""

from repro.papers.yoshida2020.claims.effects import (
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
from repro.papers.yoshida2020.perplexity.tables import CONTROL, FIRST
from repro.papers.yoshida2020.perplexity.wikitext103 import EVALUATION, PAPER, TABLE
from repro.study import Claim

GAIN = {"paper": PAPER, "source": "Table 1", "experiment": EVALUATION.name, "unit": "document", "direction": "lower",
        "relative": True, "unit_shown": "in perplexity", "control": MASKED, "assay": context_counts(TABLE),
        "measure": gain, "about": ("yoshida2020-table1-gain", "yoshida2020-table1")}
OVERLAP = GAIN | {"control": "", "assay": None, "same_weights": True, "why_no_control": SAME_WEIGHTS,
                  "why_no_assay": "it is the assay itself", "about": ("yoshida2020-table1",)}
CLAIMS = (
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
          paper_effect=lambda: printed(TABLE, *both(0))() - printed(TABLE, *both(50))()),
)
