"""One vector made of all layers' mean (Yoshida, Ettinger and Gimpel 2020, section 3)."""

from repro.recurrence.memories.base import Carried, Memory
from repro.recurrence.module import Recurrence, RecurrenceConfig


class Yoshida(Memory):
    """z = the layers' weighted mean over a window (Equation 1), then h_prev = feedforward(z) before the next window.

    State: z (B, d), of the last window only: information from older windows has to have passed through the
    hidden states of those between. `insert` "one": layer `insert_layer` sees the `n_embeddings` vectors of h_prev;
    "every": all layers do. `zero_init`: the last layer starts at 0. It is `repro.recurrence.RecurrentLM` behind the
    interface of the other memories.
    """

    def __init__(self, config, *, insert_layer: int = 1, n_embeddings: int = 1, insert: str = "one",
                 hidden_size: int = 200, hidden_layers: int = 3, zero_init: bool = False):
        super().__init__(config)
        settings = RecurrenceConfig(insert_layer, hidden_size, hidden_layers, "mean", n_embeddings, insert,
                                    zero_init=zero_init)
        self.recurrence = Recurrence(settings, self.n_layer, self.d_model)
        self.layers = range(self.n_layer) if insert == "every" else (insert_layer,)

    def reset_parameters(self):
        self.recurrence.reset_parameters()

    def read(self, layer, hidden, state, stride, places):
        h_prev = None if state is None else self.recurrence(state)
        pooled = []
        for index in range(self.n_layer):
            hidden = layer(index, hidden, h_prev if index in self.layers else None)
            pooled.append(self.recurrence.pool(self.text(hidden), stride))
        return hidden, self.recurrence.combine(pooled)

    def carried(self, window):
        n = self.recurrence.config.n_embeddings
        words = "1 vector, a mean" if n == 1 else f"1 mean, read as {n} vectors"
        return Carried(words, range(self.n_layer), self.layers)

    def state_numbers(self, window):
        return self.d_model

    def flops_per_window(self, window):
        feedforward = sum(2 * part.weight.numel() for part in self.recurrence.feedforward if hasattr(part, "weight"))
        weighted = 2 * self.n_layer * self.d_model
        n = self.recurrence.config.n_embeddings
        return weighted + feedforward + len(self.layers) * self.before_flops(window, n)
