"""A gated carry of Yoshida's z: the gate of a GRU (Cho et al. 2014) lets a window keep the state it received."""

import torch
from torch import nn

from repro.recurrence.memories.base import Carried, Memory
from repro.recurrence.module import Recurrence, RecurrenceConfig


class Gated(Memory):
    """m' = g * m + (1 - g) * z with g = sigmoid(W [m, z] + b), and feedforward(m) is added to a layer's input.

    State: m (B, d), after the first window its z (Equation 1 of Yoshida et al. 2020). W and b start at 0 and `keep`,
    so that initially a number in m lasts about 1 / (1 - sigmoid(keep)) windows. The feedforward network is
    Yoshida's, with its last layer starting at zero: at first the model behaves as if it had no memory. Attention to a
    single vector always returns that vector, so it is simply added, at the input of `layer`.
    """

    def __init__(self, config, *, layer: int = 1, keep: int = 2, hidden_size: int = 200, hidden_layers: int = 3):
        super().__init__(config)
        self.layer, self.keep = self.check_layer(layer), keep
        self.recurrence = Recurrence(RecurrenceConfig(layer, hidden_size, hidden_layers), self.n_layer, self.d_model)
        self.gate = nn.Linear(2 * self.d_model, self.d_model)

    def reset_parameters(self):
        self.recurrence.reset_parameters()
        nn.init.zeros_(self.recurrence.feedforward[-1].weight)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, self.keep)

    def read(self, layer, hidden, state, stride, places):
        pooled = []
        for index in range(self.n_layer):
            if index == self.layer and state is not None:
                hidden = hidden + self.recurrence(state)  # (B, 1, d)
            hidden = layer(index, hidden)
            pooled.append(self.recurrence.pool(self.text(hidden), stride))
        z = self.recurrence.combine(pooled)
        if state is None:
            return hidden, z
        gate = self.gate(torch.cat([state, z], -1)).sigmoid()
        return hidden, gate * state + (1 - gate) * z

    def carried(self, window):
        return Carried("1 vector, kept by a gate", range(self.n_layer), [self.layer])

    def state_numbers(self, window):
        return self.d_model

    def flops_per_window(self, window):
        feedforward = sum(2 * part.weight.numel() for part in self.recurrence.feedforward if hasattr(part, "weight"))
        return feedforward + 2 * self.gate.weight.numel() + 2 * self.n_layer * self.d_model
