"""The study's own base models: the architectures of the papers at sizes that a laptop or one GPU can pretrain."""

from repro.models.gpt2_mini import gpt2_mini, load_causal_lm, parameters, save_causal_lm

__all__ = ["gpt2_mini", "load_causal_lm", "parameters", "save_causal_lm"]
