"""The hidden states of the window before, as they are (Dai et al. 2019, Transformer-XL)."""

import torch

from repro.errors import ReproError
from repro.recurrence.memories.base import Memory


class Cache(Memory):
    """Every layer also sees what its input was in the window before; no gradient passes there.

    Section 3.2. State: the inputs of all layers (B, L, T, d). Transformer-XL has relative positions; GPT-2 adds one of
    an absolute position to the embedding, from where it runs through all layers. So what is kept stands at positions
    0 .. T-1 and the window after it, which begins there, at T .. 2T-1; when that one is kept in turn, the difference
    of the two embeddings is taken off again. Of two windows the second is read exactly as one model of a window twice
    as long reads it; later ones differ in what nonlinear layers made of the position. The context has to hold 2T.
    """

    detached = True

    def read(self, layer, hidden, state, stride, places):
        start = 0 if state is None else state.shape[2]
        if start + hidden.shape[1] > len(places):
            raise ReproError(f"a cache of {start} tokens and a window of {hidden.shape[1]} need "
                             f"{start + hidden.shape[1]} positions, but the model's context ends at {len(places)}; "
                             "choose a smaller window.")
        moved = places[start:start + hidden.shape[1]] - places[:hidden.shape[1]]
        hidden, kept = hidden + moved, []
        for index in range(self.n_layer):
            kept.append((hidden - moved)[:, :stride].detach())
            hidden = layer(index, hidden, None if state is None else state[:, index])
        return hidden, torch.stack(kept, 1)

    def state_numbers(self, window):
        return self.n_layer * window * self.d_model

    def flops_per_window(self, window):
        return self.n_layer * self.before_flops(window, window)
