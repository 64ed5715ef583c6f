"""State vectors that one layer reads and rewrites by cross-attention (Hutchins et al. 2022)."""

from math import gcd

import torch
from torch import nn
from torch.nn import functional as F

from repro.errors import ReproError
from repro.recurrence.memories.base import Carried, Memory


class BlockRecurrent(Memory):
    """Tokens attend to the state; the state attends to itself and the tokens, and is updated through a gate.

    Sections 3.1 to 3.3, in the form that the paper found best: the fixed gate, s' = g * s + (1 - g) * W c with
    g = sigmoid(b), and no feedforward network for the state ("skip"). State: s (B, n_states, d), 0 before the first
    window, which does not see it. Learned vectors distinguish the states. Three things differ from the paper. One
    softmax covers states and tokens; the paper concatenates the results of two. The tokens' attention to the state is
    added to the layer's input; in the paper, to its attention output. Its output projection starts at zero, so that the
    model starts as the plain one.
    """

    def __init__(self, config, *, layer: int = 1, n_states: int = 16):
        super().__init__(config)
        if n_states < 1:
            raise ReproError(f"n_states of memory 'block-recurrent' is {n_states}; it must be at least 1.")
        d = self.d_model
        self.layer, self.n_states = self.check_layer(layer), n_states
        self.heads = gcd(self.n_head, d)
        self.ids = nn.Parameter(torch.zeros(n_states, d))
        self.bias = nn.Parameter(torch.zeros(d))  # of the gate
        self.norm_tokens, self.norm_states = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens, self.states = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d)  # keys and values serve both directions
        self.read_out, self.write_out = nn.Linear(d, d), nn.Linear(d, d)

    def reset_parameters(self):
        nn.init.normal_(self.ids)
        nn.init.ones_(self.bias)  # 0.73 of s is kept
        nn.init.zeros_(self.read_out.weight)
        nn.init.zeros_(self.read_out.bias)

    def read(self, layer, hidden, state, stride, places):
        for index in range(self.n_layer):
            if index == self.layer:
                hidden, new = self._meet(hidden, state, stride)
            hidden = layer(index, hidden)
        return hidden, new

    def _meet(self, hidden, state, stride):
        """The layer's input plus what the tokens read from the state, and the next state."""
        old = hidden.new_zeros(len(hidden), self.n_states, self.d_model) if state is None else state
        token_query, token_key, token_value = self._heads(self.tokens(self.norm_tokens(hidden)), 3)
        query, key, value = self._heads(self.states(self.norm_states(old + self.ids)), 3)
        key_seen = torch.cat([key, self.text(token_key, stride, 2)], 2)
        value_seen = torch.cat([value, self.text(token_value, stride, 2)], 2)
        change = self.write_out(self._joined(F.scaled_dot_product_attention(query, key_seen, value_seen)))
        gate = self.bias.sigmoid()
        if state is not None:
            found = F.scaled_dot_product_attention(token_query, key, value)
            hidden = hidden + self.read_out(self._joined(found))
        return hidden, gate * old + (1 - gate) * change

    def _heads(self, x, n):
        """`n` tensors (B, H, T, D) from one (B, T, n d)."""
        return (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in x.chunk(n, -1))

    def _joined(self, x):
        return x.transpose(1, 2).flatten(2)

    def carried(self, window):
        columns = min(self.n_states, 8)
        return Carried(f"{self.n_states} state vectors", [self.layer], [self.layer], -(-self.n_states // columns),
                       columns)

    def state_numbers(self, window):
        return self.n_states * self.d_model

    def flops_per_window(self, window):
        n, d = self.n_states, self.d_model
        projections = 2 * d**2 * (3 * window + 3 * n + window + n)
        return projections + 4 * d * n * (window + n) + 4 * d * window * n
