"""Child, Gray, Radford and Sutskever (2019), *Generating Long Sequences with Sparse Transformers*: its chapters."""

from repro.papers.sparse2019.density import trained, unpacked
from repro.papers.sparse2019.pictures import drawn_sound, drawn_text, learned_attention

__all__ = ["drawn_sound", "drawn_text", "learned_attention", "trained", "unpacked"]
