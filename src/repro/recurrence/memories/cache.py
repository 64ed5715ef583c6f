"""The hidden states of the window before, from a reading of its own (after Dai et al. 2019, Transformer-XL)."""

import torch

from repro.errors import ReproError
from repro.recurrence.memories.base import Memory


class Cache(Memory):
    """Every layer also sees what its input was in the window before; no gradient passes there.

    Section 3.2. State: the inputs of all layers (B, L, stride, d). Transformer-XL keeps those of a reading that saw a
    cache itself, and is trained so from the start, with relative positions. GPT-2 has an embedding for each position,
    and states of states are far from what it was trained on. So every window is also read alone, at positions
    0 .. T-1: the inputs of that reading are kept. The window after it stands behind them, from position `stride` on,
    and is read exactly as the end of one window over both. So it scores what the model itself scores with windows of
    T + stride tokens that overlap by T, and costs as much; only in training does no gradient reach the part before.
    Raises ReproError where the context does not hold T + stride positions.
    """

    detached = True

    def read(self, layer, hidden, state, stride, places):
        if state is None:
            kept, last = self._alone(layer, hidden, stride)
            return layer(self.n_layer - 1, last), kept
        start, n = state.shape[2], hidden.shape[1]
        if start + n > len(places):
            raise ReproError(f"a cache of {start} tokens and a window of {n} need {start + n} positions, but the "
                             f"model's context ends at {len(places)}; choose a smaller window.")
        with torch.no_grad():
            kept, _ = self._alone(layer, hidden, stride)
        hidden = hidden + places[start:start + n] - places[:n]
        for index in range(self.n_layer):
            hidden = layer(index, hidden, state[:, index])
        return hidden, kept

    def _alone(self, layer, hidden, stride):
        """What enters all layers where nothing stands before the window, (B, L, stride, d), and the last one's whole
        input (B, T, d)."""
        entered = [hidden]
        for index in range(self.n_layer - 1):
            entered.append(layer(index, entered[-1]))
        return torch.stack([one[:, :stride].detach() for one in entered], 1), entered[-1]

    def state_numbers(self, window):
        return self.n_layer * window * self.d_model

    def flops_per_window(self, window):
        d = self.d_model  # alone: the weights and half of the pairs of all layers but the last, whose input is enough
        alone = (self.n_layer - 1) * window * (24 * d**2 + 2 * window * d)
        return alone + self.n_layer * self.before_flops(window, window)
