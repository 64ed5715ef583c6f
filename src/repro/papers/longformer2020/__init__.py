"""Beltagy, Peters and Cohan (2020), *Longformer: The Long-Document Transformer*: what its chapters show."""

from repro.papers.longformer2020.charlm import decoder_config, phase_length, training_tokens
from repro.papers.longformer2020.charlm_tables import told_text

__all__ = ["decoder_config", "phase_length", "told_text", "training_tokens"]
