"""The hidden states of the previous window, from a separate reading (after Dai et al. 2019, Transformer-XL)."""

import torch

from repro.errors import ReproError
from repro.recurrence.memories.base import Carried, Memory


class Cache(Memory):
    """Every layer also sees its own inputs in the previous window; no gradient passes through them.

    Section 3.2. State: the inputs of all layers (B, L, stride, d). Transformer-XL keeps the inputs of a reading that
    itself saw a cache, because it is trained this way from the start. Other models have never seen such states. So
    every window is also read alone, at positions 0 .. T-1, and the inputs of that reading are kept. The next window
    follows them, from position `stride` on, and is read exactly like the end of one window over both; an opening token
    is kept with them. Scores equal those of the plain model with windows of T + stride tokens that overlap by
    T; only in training, no gradient reaches the earlier part. The second reading costs one more pass, except for its
    last layer.
    Raises ReproError if the context has fewer than T + stride positions.
    """

    detached = True

    def read(self, layer, hidden, state, stride, places):
        if state is None:
            kept, last = self._alone(layer, hidden, stride)
            return layer(self.n_layer - 1, last), kept
        start, n = state.shape[2], hidden.shape[1] - self.n_opening
        if start + n > self.context:
            raise ReproError(f"a cache of {start - self.n_opening} tokens and a window of {n} need {start + n} "
                             f"positions, but the model's context ends at {self.context}; choose a smaller window.")
        with torch.no_grad():
            kept, _ = self._alone(layer, hidden, stride)
        hidden = self.text(hidden)
        if places is not None:
            hidden = hidden + places[start:start + n] - places[:n]
        for index in range(self.n_layer):
            hidden = layer(index, hidden, state[:, index], everywhere=0)
        return hidden, kept

    def _alone(self, layer, hidden, stride):
        """The inputs of all layers for a window without a predecessor, (B, L, stride, d), and the complete input of the
        last layer (B, T, d). An opening token adds one position to each."""
        entered = [hidden]
        for index in range(self.n_layer - 1):
            entered.append(layer(index, entered[-1]))
        end = None if stride is None else self.n_opening + stride
        return torch.stack([one[:, :end].detach() for one in entered], 1), entered[-1]

    def carried(self, window):
        blocks = range(self.n_layer)
        return Carried("the window's inputs", blocks, blocks, min(self.n_layer, 6), min(window, 16))

    def state_numbers(self, window):
        return self.n_layer * (self.n_opening + window) * self.d_model

    def flops_per_window(self, window):
        pairs = 2 * window * self.n_head * self.head_size  # of the separate reading, which ends below the last layer
        alone = (self.n_layer - 1) * window * (2 * self.layer_weights + pairs)
        return alone + self.n_layer * self.before_flops(window, window)
