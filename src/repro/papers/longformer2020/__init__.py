"""Beltagy, Peters and Cohan (2020), *Longformer: The Long-Document Transformer*: what its chapters show."""

from repro.papers.longformer2020.charlm_phases import updates
from repro.papers.longformer2020.charlm_settings import counted_weights, one_run, schedule
from repro.papers.longformer2020.conversion import by_position, hidden, losses, read

__all__ = ["by_position", "counted_weights", "hidden", "losses", "one_run", "read", "schedule",
           "updates"]
