"""The base models that the papers' experiments start from."""

from repro.papers.base.gpt2_mini import tokeniser_of, training_flops

__all__ = ["tokeniser_of", "training_flops"]
