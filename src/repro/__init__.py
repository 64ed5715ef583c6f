"""Reproduction study of language models with long context."""

__version__ = "0.1.0"
