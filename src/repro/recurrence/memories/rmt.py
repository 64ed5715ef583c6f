"""Memory tokens that are read at the start of a window and written at its end (Bulatov, Kuratov and Burtsev 2022)."""

import torch
from torch import nn

from repro.errors import ReproError
from repro.recurrence.memories.base import Carried, Memory


class RecurrentMemoryTransformer(Memory):
    """The input of a window is [m, tokens, m]; the model's output for the last part is the next window's m.

    Section 3.3 ("Recurrent Memory Transformer"). State: m (B, n_tokens, d). The mask stays causal, so all tokens see
    the first part, and the last part sees all tokens. The first window's m is learned, so even that window is not read
    as by the plain model. With position embeddings, memory tokens have no position, and text tokens keep theirs.
    Rotary positions count all tokens, and layers with a sliding window see the first part at any distance.
    """

    plain_start = False

    def __init__(self, config, *, n_tokens: int = 8):
        super().__init__(config)
        if n_tokens < 1:
            raise ReproError(f"n_tokens of memory 'rmt' is {n_tokens}; it must be at least 1.")
        scaled = config.model_type == "gemma3_text"  # multiplies embeddings by the root of their width
        spread = getattr(config, "initializer_range", None) or getattr(config, "init_std", 0.02)  # so named in OPT
        self.n_tokens, self.spread = n_tokens, spread * (self.d_model**0.5 if scaled else 1)
        self.first = nn.Parameter(torch.zeros(n_tokens, self.d_model))

    def reset_parameters(self):
        nn.init.normal_(self.first, std=self.spread)  # like the embeddings around them

    def read(self, layer, hidden, state, stride, places):
        memory = self.first.expand(len(hidden), -1, -1) if state is None else state
        hidden = torch.cat([memory, hidden, memory], 1)
        for index in range(self.n_layer):
            hidden = layer(index, hidden, everywhere=self.n_tokens)
        n = self.n_tokens
        return hidden[:, n:hidden.shape[1] - n], hidden[:, hidden.shape[1] - n:]

    def carried(self, window):
        return Carried(f"{self.n_tokens} memory tokens", [self.n_layer - 1], [-1], columns=self.n_tokens)

    def state_numbers(self, window):
        return self.n_tokens * self.d_model

    def flops_per_window(self, window):
        n = 2 * self.n_tokens
        causal = ((window + n)**2 - window**2) / 2  # pairs, in the count that takes T / 2 keys a query
        return self.n_layer * (2 * n * self.layer_weights + 4 * causal * self.n_head * self.head_size)
