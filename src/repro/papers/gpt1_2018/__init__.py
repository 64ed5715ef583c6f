"""Radford, Narasimhan, Salimans and Sutskever (2018), *Improving Language Understanding by Generative Pre-Training*."""

from repro.papers.gpt1_2018.finetuning import FORMS, GENERATED, encoded, transfer
from repro.study.paper import Paper
from repro.study.registry import register

__all__ = ["FORMS", "GENERATED", "encoded", "transfer"]

register(Paper(
    id="gpt1_2018", name="GPT", cite="radford2018gpt1",
    idea="pretrain a decoder on books, then fine-tune it for each task",
    part="Decoder-only models", chapters=(11, 11),
    findings=("gpt1_2018-lstm-worse",)))
