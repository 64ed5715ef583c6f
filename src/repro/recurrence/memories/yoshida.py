"""One vector made of all layers' mean (Yoshida, Ettinger and Gimpel 2020, section 3)."""

from dataclasses import asdict

from repro.recurrence.memories.base import Carried, Memory
from repro.recurrence.module import Recurrence, RecurrenceConfig


class Yoshida(Memory):
    """z = the layers' weighted mean over a window (Equation 1), then h_prev = feedforward(z) before the next window.

    State: z (B, d), of the last window only: information from older windows reaches it only through the hidden states
    of the windows between. With `residual`, a pair of z and the pooled input of `insert_layer`. The settings are those
    of `RecurrenceConfig`. `repro.recurrence.RecurrentLM` is a model with this memory.
    """

    def __init__(self, config, **settings):
        super().__init__(config)
        settings = RecurrenceConfig(**settings)
        self.recurrence = Recurrence(settings, self.n_layer, self.d_model)
        self.layers = range(self.n_layer) if settings.insert == "every" else (settings.insert_layer,)
        self.n_below = self.layers[0]

    @classmethod
    def settings(cls):
        return asdict(RecurrenceConfig())

    def reset_parameters(self):
        self.recurrence.reset_parameters()

    def before(self, state):
        h_prev = self.recurrence.h_prev(state)
        return {} if h_prev is None else dict.fromkeys(self.layers, h_prev)

    def read(self, layer, hidden, state, stride, places):
        module, before, pooled, layer_input = self.recurrence, self.before(state), [], None
        for index in range(self.n_layer):
            if module.config.residual and index == module.config.insert_layer:
                layer_input = module.pool(self.text(hidden), stride)
            hidden = layer(index, hidden, before.get(index))
            pooled.append(module.pool(self.text(hidden), stride))
        return hidden, module.state(pooled, layer_input)

    def carried(self, window):
        n = self.recurrence.config.n_embeddings
        words = "1 vector, a mean" if n == 1 else f"1 mean, read as {n} vectors"
        return Carried(words, range(self.n_layer), self.layers)

    def state_numbers(self, window):
        return self.d_model * (1 + self.recurrence.config.residual)

    def flops_per_window(self, window):
        feedforward = sum(2 * part.weight.numel() for part in self.recurrence.feedforward if hasattr(part, "weight"))
        weighted = 2 * self.n_layer * self.d_model
        if self.recurrence.config.pool == "attention":
            weighted += 4 * self.n_layer * window * self.d_model
        n = self.recurrence.config.n_embeddings
        return weighted + feedforward + len(self.layers) * self.before_flops(window, n)
