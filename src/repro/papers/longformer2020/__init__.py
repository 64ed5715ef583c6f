"""Beltagy, Peters and Cohan (2020), *Longformer: The Long-Document Transformer*: what its chapters show."""

from repro.papers.longformer2020.charlm_settings import counted_weights, one_run, schedule

__all__ = ["counted_weights", "one_run", "schedule"]
