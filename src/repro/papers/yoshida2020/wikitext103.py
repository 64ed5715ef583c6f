"""Recurrence against the fine-tuned baseline on WikiText-103 (Yoshida et al. 2020, section 4.2 and Table 1)."""

from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.finetuning import SCALES
from repro.papers.yoshida2020.tables import gains, judge_gain, judge_overlap, judge_shrinking, literal, perplexities
from repro.study import Artifact, Claim, register

PAPERS = (0, 5, 10, 30, 50)
ROWS = {  # of Table 1, by scale
    "smoke": table_rows((0, 3, 5), (0, 3, 5), controls=(5,)),
    "small": table_rows(PAPERS, PAPERS, controls=(50,)),
    "medium": table_rows(PAPERS, PAPERS, controls=PAPERS[1:]),
    "paper": table_rows(PAPERS, PAPERS, controls=PAPERS[1:]),
}
# Of `small` from the next revision on: fewer overlaps, more seeds, and both readings of "the second layer".
NEXT = table_rows(PAPERS, (0, 5, 50), controls=(5, 50), first=(0, 50))
NEXT_SCORED = 390_000


def most(scale: str) -> int:
    """The largest overlap of the table, in tokens."""
    return max(row["overlap"] for row in ROWS[scale])


def grid(scale: str) -> list[dict]:
    """Table 1, and as a control baselines that were trained on the overlapping windows they are tested on."""
    return ROWS[scale]


ROWS["small"] = NEXT
SCORED = {"smoke": 35_000, "small": NEXT_SCORED, "medium": 600_000, "paper": 536_000}
EVALUATION = evaluation("recurrence-wikitext103", "Word perplexity at every overlap (Table 1).", SCALES, grid, SCORED)
register(EVALUATION)

PAPER, TABLE = "yoshida2020", "yoshida2020_table1_wikitext103"
register(
    Artifact(id="yoshida2020-table1", paper=PAPER, title="Word perplexity of baseline and recurrent models by overlap",
             chapter="06_wikitext103", experiment=EVALUATION.name, source="Table 1",
             build=lambda context: perplexities(context, TABLE)),
    Artifact(id="yoshida2020-table1-gain", paper=PAPER, title="What recurrence changes at equal overlap",
             chapter="06_wikitext103", experiment=EVALUATION.name, source="Table 1",
             build=lambda context: gains(context, TABLE)),
    Claim(id="yoshida2020-table1-gain-disjoint", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          about=("yoshida2020-table1-gain", "yoshida2020-table1"),
          sentence="Without overlap, the recurrent model has a lower test perplexity than the fine-tuned baseline.",
          where=lambda config: config.overlap == 0 and literal(config), judge=judge_gain),
    Claim(id="yoshida2020-table1-gain-overlapped", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          about=("yoshida2020-table1-gain", "yoshida2020-table1"),
          sentence="Recurrence still helps when both models read with the largest overlap of the table.",
          where=lambda config: config.overlap == most(config.scale) and literal(config), judge=judge_gain),
    Claim(id="yoshida2020-table1-overlap", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          about=("yoshida2020-table1",),
          sentence="The baseline has a lower test perplexity with the largest overlap than on disjoint windows.",
          where=lambda config: config.model == "baseline" and config.overlap in (0, most(config.scale)),
          judge=judge_overlap),
    Claim(id="yoshida2020-table1-gain-shrinks", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          about=("yoshida2020-table1-gain", "yoshida2020-table1"),
          sentence="What recurrence gains is largest on disjoint windows and shrinks as the overlap grows.",
          where=lambda config: config.overlap in (0, most(config.scale)) and literal(config), judge=judge_shrinking))
