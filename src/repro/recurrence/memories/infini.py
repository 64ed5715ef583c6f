"""Linear attention to everything before, in a matrix of fixed size (Munkhdalai, Faruqui and Gopal 2024)."""

import torch
from torch import nn
from torch.nn import functional as F

from repro.recurrence.memories.base import Carried, Memory


class Infini(Memory):
    """Each head mixes its attention with what its queries recall from the keys and values of all earlier windows.

    Equations 3 to 10, with the linear update. With s = ELU + 1, a query recalls s(Q) M / (s(Q) n). A head returns
    g * recalled + (1 - g) * attention with g = sigmoid(b), one learned b per head. A window adds s(K)^T V to M and the
    sum of its s(K) to n. State: M (B, L, H, D, D) and n (B, L, H, D) for H heads of keys, sums in the precision of the
    weights, which are loaded in single precision. The first window recalls nothing and is read as by the plain model.
    As in the paper, queries and keys have no rotary positions; GPT-2's positions are part of its embeddings, and stay.
    """

    def __init__(self, config):
        super().__init__(config)
        self.gate = nn.Parameter(torch.zeros(self.n_layer, self.n_head))

    def reset_parameters(self):
        nn.init.constant_(self.gate, -2.0)  # 0.12 recalled: close to the original model

    def read(self, layer, hidden, state, stride, places):
        first, new = state is None, []
        if first:
            size = self.head_size
            matrix = hidden.new_zeros(len(hidden), self.n_layer, self.n_key_head, size, size)
            state = matrix, matrix[..., 0]
        for index in range(self.n_layer):
            gate = None if first else self.gate[index].sigmoid()
            hidden, sums = layer(index, hidden, mix=self._mix,
                                 state=(state[0][:, index], state[1][:, index], gate, stride))
            new.append(sums)
        return hidden, tuple(torch.stack(sums, 1) for sums in zip(*new, strict=True))

    def _mix(self, query, key, value, out, matrix, norm, gate, stride):
        with torch.autocast(query.device.type, enabled=False):  # sums over a long text
            query, key, value = (x.to(matrix.dtype) for x in (
                query, self.text(key, stride, 2), self.text(value, stride, 2)))
            if gate is not None:
                query, gate = F.elu(query) + 1, gate[:, None, None]
                recalled = query @ self.for_queries(matrix) / (query @ self.for_queries(norm)[..., None])
                out = (gate * recalled + (1 - gate) * out).to(out.dtype)
            key = F.elu(key) + 1
            return out, (matrix + key.transpose(-1, -2) @ value, norm + key.sum(-2))

    def carried(self, window):
        blocks = range(self.n_layer)
        return Carried("a matrix of sums per head", blocks, blocks, 3, 3 * self.n_key_head, every=3)

    def state_numbers(self, window):
        return self.n_layer * self.n_key_head * (self.head_size**2 + self.head_size)

    def flops_per_window(self, window):
        size = self.head_size
        return self.n_layer * window * (self.n_head * (2 * size**2 + 2 * size) + self.n_key_head * 2 * size**2)
