"""What all memories have in common: a state goes in, a state comes out."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from repro.errors import ReproError, unknown
from repro.windows import check_window

State = Any  # a tensor or a tuple of tensors, the batch first in each


class Memory(nn.Module):
    """What one window leaves to the next, and how the next one sees it.

    A subclass takes the GPT-2's config and settings of its own, by name. `detached` says that no gradient passes
    through its state; `plain_start` that a window without a state is read as the plain model reads it.

    >>> kind, settings = MEMORIES["embeddings-4"]
    >>> issubclass(kind, Memory), settings
    (True, {'insert': 'every', 'n_embeddings': 4})
    """

    detached = False
    plain_start = True

    def __init__(self, config):
        super().__init__()
        self.n_layer, self.d_model, self.n_head = config.n_layer, config.n_embd, config.n_head

    def read(self, layer: Callable, hidden: Tensor, state: State | None, stride: int | None,
             places: Tensor) -> tuple[Tensor, State]:
        """Read one window: hidden states (B, T, d) after the final layer norm, and the state for the next window.

        hidden: (B, T, d) embedded tokens, at positions 0 .. T-1 of `places` (context, d), the model's embeddings of
        positions. state: what this returned for the window before; None where there is none.
        stride: tokens until the next window starts, None for all: what is read again there need not be remembered.

        `layer(index, hidden, before=None)` is one block of the model (the last one with the final layer norm): hidden
        states (B, T, d) in which every position also sees `before` (B, E, d), vectors in the place of earlier inputs
        of the block. With `mix` it is `layer(index, hidden, mix=..., state=(...))`: the block's attention then returns
        the first of what `mix(query, key, value, out, *state)` gives, `out` being its ordinary result, all of them
        (B, H, T, D); the second comes back beside the hidden states.
        """
        raise NotImplementedError

    def state_numbers(self, window: int) -> int:
        """How many numbers a sequence carries from window to window, at most; `window` in tokens, no overlap."""
        raise NotImplementedError

    def flops_per_window(self, window: int) -> float:
        """Forward FLOPs that the memory adds to a window of so many tokens, once its state is full; 2 per product."""
        raise NotImplementedError

    def flops_per_token(self, window: int, overlap: int) -> float:
        """What the memory adds to `repro.evaluation.flops_per_token`: forward FLOPs per scored token."""
        check_window(window, overlap)
        return self.flops_per_window(window) / (window - overlap)

    def reset_parameters(self) -> None:
        """Initial weights of what torch does not already initialise as wanted."""

    def before_flops(self, window: int, n: int) -> float:
        """FLOPs of `n` vectors before a window in one layer: their keys and values, and attention to them."""
        return 4 * n * self.d_model**2 + 4 * window * n * self.d_model

    def check_layer(self, index: int) -> int:
        """`index` as it is, if the model has such a layer."""
        if not 0 <= index < self.n_layer:
            raise ReproError(f"the memory's layer is {index}, but the model has layers 0 to {self.n_layer - 1}.")
        return index


def settings_of(kind: type[Memory], name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All settings of a kind of memory, those not given at their defaults. Raises ReproError for an unknown one."""
    known = {key: part.default for key, part in inspect.signature(kind.__init__).parameters.items()
             if part.kind is part.KEYWORD_ONLY}
    for key, value in given.items():
        if key not in known:
            raise unknown(f"setting of memory '{name}'", key, known)
        if isinstance(known[key], int) and (not isinstance(value, int) or value < 0):
            raise ReproError(f"{key} of memory '{name}' is {value!r}; it must be a whole number, at least 0.")
    return known | given
