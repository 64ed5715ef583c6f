"""Child, Gray, Radford and Sutskever (2019), *Generating Long Sequences with Sparse Transformers*: its chapters."""

from repro.papers.sparse2019.data import as_tokens, waveform
from repro.papers.sparse2019.density import trained
from repro.papers.sparse2019.depth import at_start, doublings
from repro.papers.sparse2019.pictures import Clip, drawn_sound, drawn_text, heard, learned_attention

__all__ = ["Clip", "as_tokens", "at_start", "doublings", "drawn_sound", "drawn_text", "heard", "learned_attention",
           "trained", "waveform"]
