"""The hidden states of the window before, from a reading of its own (after Dai et al. 2019, Transformer-XL)."""

import torch

from repro.errors import ReproError
from repro.evaluation import flops_per_token
from repro.recurrence.memories.base import Memory


class Cache(Memory):
    """Every layer also sees what its input was in the window before; no gradient passes there.

    Section 3.2. State: the inputs of all layers (B, L, T, d). Transformer-XL keeps those of the reading that saw a
    cache itself, and is trained so from the start, with relative positions. GPT-2 has an embedding for each position,
    and states of states are far from what it was trained on. So a window is read twice: as a first one, at positions
    0 .. T-1, for the next window; and at T .. 2T-1 with what was so kept of the one before, exactly as one model of a
    window twice as long reads it. The context has to hold 2T.
    """

    detached = True

    def read(self, layer, hidden, state, stride, places):
        alone, kept = self._through(layer, hidden, None)  # not under no_grad: autocast would then reuse weights without
        kept = kept[:, :, :stride].detach()
        if state is None:
            return alone, kept
        start, n = state.shape[2], hidden.shape[1]
        if start + n > len(places):
            raise ReproError(f"a cache of {start} tokens and a window of {n} need {start + n} positions, but the "
                             f"model's context ends at {len(places)}; choose a smaller window.")
        return self._through(layer, hidden + places[start:start + n] - places[:n], state)[0], kept

    def _through(self, layer, hidden, state):
        """What comes out behind all layers, and what entered each of them (B, L, T, d)."""
        entered = []
        for index in range(self.n_layer):
            entered.append(hidden)
            hidden = layer(index, hidden, None if state is None else state[:, index])
        return hidden, torch.stack(entered, 1)

    def state_numbers(self, window):
        return self.n_layer * window * self.d_model

    def flops_per_window(self, window):
        again = flops_per_token(self.n_layer, self.d_model, window, 0) * window
        return again + self.n_layer * self.before_flops(window, window)
