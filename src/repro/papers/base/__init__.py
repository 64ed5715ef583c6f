"""The base models that the papers' experiments start from."""

from repro.papers.base.gpt2_mini import training_flops
from repro.papers.base.models import base_model, base_models
from repro.papers.base.pretraining import tokeniser_of

__all__ = ["base_model", "base_models", "tokeniser_of", "training_flops"]
