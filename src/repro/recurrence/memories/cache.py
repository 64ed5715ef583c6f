"""The hidden states of the window before, as they are (Dai et al. 2019, Transformer-XL)."""

import torch
from torch import nn

from repro.recurrence.memories.base import Memory


class Cache(Memory):
    """Every layer also sees what its input was in the window before; no gradient passes there.

    Section 3.2. State: the inputs of all layers (B, L, T, d). Transformer-XL has relative positions; GPT-2 has not.
    Positions start again in every window and what is kept carries the ones it had there, so a learned vector a layer,
    zero at first, is added to it: it can tell the model which of two equal positions is the older one.
    """

    detached = True

    def __init__(self, config):
        super().__init__(config)
        self.older = nn.Parameter(torch.zeros(self.n_layer, self.d_model))

    def read(self, layer, hidden, state, stride):
        kept = []
        for index in range(self.n_layer):
            kept.append(hidden[:, :stride].detach())
            hidden = layer(index, hidden, None if state is None else state[:, index] + self.older[index])
        return hidden, torch.stack(kept, 1)

    def state_numbers(self, window):
        return self.n_layer * window * self.d_model

    def flops_per_window(self, window):
        return self.n_layer * self.before_flops(window, window)
