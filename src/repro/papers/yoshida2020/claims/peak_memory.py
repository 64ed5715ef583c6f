"""The claims on the memory of recurrent training."""

from repro.papers.yoshida2020.peak_memory import EXPERIMENT, PAPER, SOURCE
from repro.study import Claim, Measured

ALLOWED = 1.2  # times the growth of the paper's model
SLACK = 0.05  # forward passes


def growth(records):
    """The most that a further window adds between two lengths, relative to the paper's 2k in M + 2k ceil(N/T)."""
    found = records[0].metrics
    with_text = (found["most_growth"] + found["text"]) / found["paper_growth"]
    return Measured([[found["most_growth"] / found["paper_growth"]]], note=f"{with_text:.2f} with the token ids")


CLAIMS = (
    Claim(id="yoshida2020-memory-window", paper=PAPER, source=SOURCE, experiment=EXPERIMENT.name,
          about=("yoshida2020-memory-growth", "yoshida2020-memory"),
          sentence="With each window recomputed, memory grows with the sequence by no more than 2k numbers a window.",
          short="With each window recomputed, one more adds 2k numbers.",
          where=lambda config: config.recompute == "window", measure=growth, direction="lower", null=ALLOWED,
          margin=True, unit="exact", paper_effect=lambda: 1.0, unit_shown="times 2k"),
    Claim(id="yoshida2020-memory-forward", paper=PAPER, source=SOURCE, experiment=EXPERIMENT.name,
          about=("yoshida2020-memory",), sentence="Recomputing each window costs one more forward pass.",
          where=lambda config: config.recompute == "window", direction="lower", null=2 + SLACK, margin=True,
          unit="exact", measure=lambda records: Measured([[records[0].metrics["forward_passes"]]]),
          paper_effect=lambda: 2.0, unit_shown="forward passes"),
)
