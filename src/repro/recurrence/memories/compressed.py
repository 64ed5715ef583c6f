"""Compressed hidden states of several windows (Rae et al. 2020, Compressive Transformer)."""

import torch
from torch import nn

from repro.errors import ReproError, unknown
from repro.recurrence.memories.base import Carried, Memory

BY = ("mean", "convolution")


class Compressed(Memory):
    """Every layer also sees its own inputs in the last `windows` windows, with `rate` neighbors compressed into one.

    Section 3.1 and Algorithm 1, with two of the paper's compression functions: the "mean", and a strided
    "convolution", one for all layers, which starts as the mean. State: for each window (B, L, T // rate, d), the oldest
    first. The oldest T % rate positions of a window are left out. Unlike in the paper, there is no uncompressed memory,
    and gradients pass through. Positions restart in every window; a learned vector per layer and age, initially zero,
    is added to the stored states to encode how many windows ago they were.
    """

    def __init__(self, config, *, rate: int = 8, windows: int = 4, by: str = "mean"):
        super().__init__(config)
        if by not in BY:
            raise unknown("way to compress", by, BY)
        if min(rate, windows) < 1:
            raise ReproError(f"rate is {rate} and windows is {windows}; both must be at least 1.")
        self.rate, self.windows = rate, windows
        self.age = nn.Parameter(torch.zeros(self.n_layer, windows, self.d_model))
        self.weight = nn.Parameter(torch.zeros(rate, self.d_model, self.d_model)) if by == "convolution" else None

    def reset_parameters(self):
        if self.weight is not None:
            with torch.no_grad():
                self.weight.copy_((torch.eye(self.d_model) / self.rate).expand_as(self.weight))

    def read(self, layer, hidden, state, stride, places):
        kept, before = [], self.before(state)
        for index in range(self.n_layer):
            kept.append(self._compressed(self.text(hidden, stride)))
            hidden = layer(index, hidden, before.get(index))
        return hidden, (*(state or ()), torch.stack(kept, 1))[-self.windows:]

    def before(self, state):
        return {index: self._aged(state, index) for index in range(self.n_layer)} if state else {}

    def _aged(self, state, index):
        """The stored states of a layer (B, E, d) plus the vectors for their age; the last window is the youngest."""
        ages = self.age[index, -len(state):]
        return torch.cat([window[:, index] + age for window, age in zip(state, ages, strict=True)], 1)

    def _compressed(self, hidden):
        """(B, T // rate, d) from (B, T, d)."""
        groups = hidden[:, hidden.shape[1] % self.rate:].unflatten(1, (-1, self.rate))
        return groups.mean(2) if self.weight is None else torch.einsum("bnrd,rde->bne", groups, self.weight)

    def carried(self, window):
        blocks, n = range(self.n_layer), min(max(window // self.rate, 1), 8)
        return Carried(f"{self.windows} windows, {self.rate} tokens to 1", blocks, blocks, columns=self.windows * n,
                       every=n)

    def state_numbers(self, window):
        return self.n_layer * self.windows * (window // self.rate) * self.d_model

    def flops_per_window(self, window):
        n = window // self.rate
        compress = 0 if self.weight is None else 2 * n * self.weight.numel()
        return self.n_layer * (compress + self.before_flops(window, self.windows * n))
