"""Child, Gray, Radford and Sutskever (2019), *Generating Long Sequences with Sparse Transformers*: its chapters."""

from repro.papers.sparse2019.data import as_tokens, waveform
from repro.papers.sparse2019.density import trained
from repro.papers.sparse2019.depth import at_start, doublings
from repro.papers.sparse2019.pictures import Clip, drawn_sound, drawn_text, heard, learned_attention
from repro.study.paper import Finding, Paper
from repro.study.published import printed_rows
from repro.study.registry import register

__all__ = ["Clip", "as_tokens", "at_start", "doublings", "drawn_sound", "drawn_text", "heard", "learned_attention",
           "trained", "waveform"]

register(Paper(
    id="sparse2019", name="Sparse Transformer", cite="child2019sparse",
    idea="factorize attention into two sparse patterns",
    part="Sparse Transformer", chapters=(13, 15),
    weights=lambda: max(float(row["parameters_millions"])
                        for row in printed_rows("sparse2019_table1_density_modelling") if "Sparse" in row["model"]),
    says="Two sparse patterns replace dense attention at a fraction of the cost, and each is best on its own kind of "
         "data.",
    finding=Finding(
        "On images, strided attention takes {0.size:.0%} fewer operations than dense attention. On text, we cannot say "
        "which pattern predicts best, because our dense attention is no better than a local window.",
        {"sparse2019-table2-images-strided-cost": "reproduced",
         "sparse2019-table2-text-fixed-dense": "not testable here"})))
