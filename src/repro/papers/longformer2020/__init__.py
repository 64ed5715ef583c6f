"""Beltagy, Peters and Cohan (2020), *Longformer: The Long-Document Transformer*: what its chapters show."""

from repro.papers.longformer2020.charlm_phases import updates
from repro.papers.longformer2020.charlm_settings import counted_weights, one_run, schedule
from repro.papers.longformer2020.conversion import by_position, hidden, losses, read
from repro.study.paper import Paper
from repro.study.published import printed_rows
from repro.study.registry import register

__all__ = ["by_position", "counted_weights", "hidden", "losses", "one_run", "read", "schedule",
           "updates"]

register(Paper(
    id="longformer2020", name="Longformer", cite="beltagy2020longformer",
    idea="attend within a sliding window, and let a few tokens attend everywhere",
    part="Longformer", chapters=(16, 21),
    weights=lambda: max(float(row["parameters_millions"])
                        for row in printed_rows("longformer2020_table2_small_char_lm") if "ours" in row["model"]),
    findings=("longformer2020-table4-order",)))
