"""Beltagy, Peters and Cohan (2020), *Longformer: The Long-Document Transformer*: what its chapters show."""

from repro.papers.base.bart_mini import in_pairs
from repro.papers.longformer2020.charlm_phases import updates
from repro.papers.longformer2020.charlm_settings import counted_weights, one_run, schedule
from repro.papers.longformer2020.conversion import by_position, hidden, losses, read
from repro.papers.longformer2020.tasks.classification import IMDB, fold
from repro.papers.longformer2020.tasks.frame import collate
from repro.papers.longformer2020.tasks.reader import Example, Words
from repro.papers.longformer2020.tasks.wikihop import Candidates
from repro.study.paper import Finding, Paper
from repro.study.published import printed_rows
from repro.study.registry import register

__all__ = ["IMDB", "Candidates", "Example", "Words", "by_position", "collate", "counted_weights", "fold", "hidden",
           "in_pairs", "losses", "one_run", "read", "schedule", "updates"]

register(Paper(
    id="longformer2020", name="Longformer", cite="beltagy2020longformer",
    idea="attend within a sliding window, and let a few tokens attend everywhere",
    part="Longformer", chapters=(16, 21),
    weights=lambda: max(float(row["parameters_millions"])
                        for table in ("longformer2020_table2_small_char_lm", "longformer2020_table3_large_enwik8")
                        for row in printed_rows(table) if "ours" in row["model"]),
    says="Attention windows should grow with depth, and a pretrained RoBERTa can be converted to use them.",
    finding=Finding(
        "A character-level model needs {0.size:.3f} fewer bits per character if its attention windows grow with depth "
        "than if they shrink (paper: {0.paper_size:.3f}). After long training, a converted RoBERTa needs "
        "{1.size:.3f} fewer bits per masked token than RoBERTa, but RoBERTa itself, trained as long, saves "
        "{1.control_size:.3f}.",
        {"longformer2020-table4-order": "reproduced", "longformer2020-beyond-roberta": "not reproduced"})))
