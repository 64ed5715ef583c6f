"""Radford, Narasimhan, Salimans and Sutskever (2018), *Improving Language Understanding by Generative Pre-Training*."""

from repro.papers.gpt1_2018.finetuning import FORMS, GENERATED, encoded, transfer

__all__ = ["FORMS", "GENERATED", "encoded", "transfer"]
