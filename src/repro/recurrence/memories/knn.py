"""The nearest of the keys of all earlier windows (Wu et al. 2022, Memorizing Transformers)."""

import torch
from torch import nn

from repro.errors import ReproError
from repro.recurrence.memories.base import Carried, Memory


class NearestKeys(Memory):
    """In one layer every query also finds the `k` cached keys nearest to it, and a gate mixes both results.

    Section 3, Equation 1: a head returns g * found + (1 - g) * attention with g = sigmoid(b), one learned b per head;
    found is softmax attention to only the k keys with the largest products. State: keys and values of the last
    `n_tokens` tokens, each (B, H, n, D), H heads of keys; no gradient passes through them. The search is exact
    (approximate in the paper), and keys and queries are not normalized. As in the paper, they are compared without
    rotary positions; GPT-2's positions are part of its embeddings, and stay.
    """

    detached = True

    def __init__(self, config, *, layer: int | None = None, k: int = 32, n_tokens: int = 1024):
        super().__init__(config)
        if min(k, n_tokens) < 1:
            raise ReproError(f"k is {k} and n_tokens is {n_tokens}; both must be at least 1.")
        layer = max(0, 3 * self.n_layer // 4 - 1) if layer is None else layer  # the paper's is the 9th of 12
        self.layer = self.check_layer(layer)
        self.k, self.n_tokens = k, n_tokens
        self.gate = nn.Parameter(torch.zeros(self.n_head))

    def reset_parameters(self):
        nn.init.constant_(self.gate, -2.0)  # 0.12 found: close to the original model

    def read(self, layer, hidden, state, stride, places):
        for index in range(self.n_layer):
            if index == self.layer:
                hidden, state = layer(index, hidden, mix=self._mix, state=(state, stride))
            else:
                hidden = layer(index, hidden)
        return hidden, state

    def _mix(self, query, key, value, out, state, stride):
        fresh = tuple(self.text(x, stride, 2).detach() for x in (key, value))
        if state is None:
            return out, tuple(x[:, :, -self.n_tokens:] for x in fresh)
        keys, values = (self.for_queries(x) for x in state)
        scores = query @ keys.transpose(-1, -2) / self.scale  # (B, H, T, n)
        least = scores.topk(min(self.k, keys.shape[2])).values[..., -1:]
        found = scores.masked_fill(scores < least, -torch.inf).softmax(-1).to(values.dtype) @ values
        gate = self.gate.sigmoid()[:, None, None].to(out.dtype)
        kept = tuple(torch.cat(both, 2)[:, :, -self.n_tokens:] for both in zip(state, fresh, strict=True))
        return gate * found + (1 - gate) * out, kept

    def carried(self, window):
        cells = min(max(self.n_tokens // self.k, 1), 64)  # each is k keys
        columns = min(cells, 16)
        return Carried(f"{self.k} nearest of {self.n_tokens:,} keys", [self.layer], [self.layer], -(-cells // columns),
                       columns, found=1)

    def state_numbers(self, window):
        return 2 * self.n_tokens * self.n_key_head * self.head_size

    def flops_per_window(self, window):
        return 4 * window * self.n_tokens * self.n_head * self.head_size
