"""Radford, Wu, Child, Luan, Amodei and Sutskever (2019), *Language Models are Unsupervised Multitask Learners*."""

from repro.papers.gpt2_2019.prompts import PROMPTS

__all__ = ["PROMPTS"]
