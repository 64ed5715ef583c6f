"""Recurrence against the fine-tuned baseline on WikiText-103 (Yoshida et al. 2020, section 4.2 and Table 1)."""

from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.perplexity.tables import gain_figure, gains, perplexities
from repro.study import Artifact, register

SCALES = finetuning.SCALES | {"smoke": finetuning.SCALES["smoke"] | {"test_head": 1000}}
PAPER_OVERLAPS = (0, 5, 10, 30, 50)
ROWS = {  # of Table 1, by scale
    "smoke": table_rows((0, 3, 5), (0, 3, 5), controls=(5,)),
    # Both readings of "the second layer".
    "small": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:], first=(0, 50)),
    "pretrained": table_rows((0, 50), (0, 50), controls=(50,), literal=(0,)),
    "medium": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:]),
    "paper": table_rows(PAPER_OVERLAPS, PAPER_OVERLAPS, controls=PAPER_OVERLAPS[1:]),
}


def most(scale: str) -> int:
    """The largest overlap of the table, in tokens."""
    return max(row["overlap"] for row in ROWS[scale])


def grid(scale: str) -> list[dict]:
    """Table 1 and, as controls, baselines that were trained on the overlapping windows of the test."""
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
