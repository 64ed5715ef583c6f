"""The base of all memories: a state goes in, a state comes out."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from repro.errors import ReproError, unknown
from repro.windows import check_window

State = Any  # a tensor or a tuple of tensors, the batch first in each


@dataclass(frozen=True)
class Carried:
    """How a figure draws a state: a few words, the blocks that it leaves and enters (-1: the input of the first), and
    its cells."""

    words: str
    leaves: Sequence[int]
    enters: Sequence[int]
    rows: int = 1
    columns: int = 1
    every: int = 0  # columns between gaps; 0 for no gaps
    found: int = 0  # cells that are looked up; 0 for all of them


class Memory(nn.Module):
    """A memory: the state that one window passes to the next, and how the next one uses it.

    A subclass takes the model's config and its own settings, by name. `defaults`: settings that differ from those of
    the constructor, for a variant of another memory. `detached`: no gradient passes through its state. `plain_start`: a
    window without a state is read as by the plain model. `n_below`: layers that the state does not reach, so that
    they can read many windows at once.

    >>> memory = MEMORIES["embeddings-4"]
    >>> issubclass(memory, Memory), memory.defaults
    (True, {'insert': 'every', 'n_embeddings': 4})
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    detached = False
    plain_start = True
    n_below = 0
    n_opening = 0  # positions in front of the tokens of every window: 1 in a model with an opening token

    def __init__(self, config):
        super().__init__()
        self.n_layer, self.d_model = config.num_hidden_layers, config.hidden_size
        self.n_head, self.context = config.num_attention_heads, config.max_position_embeddings
        self.n_key_head = getattr(config, "num_key_value_heads", None) or self.n_head
        self.head_size = getattr(config, "head_dim", None) or self.d_model // self.n_head
        self.scale = (getattr(config, "query_pre_attn_scalar", None) or self.head_size)**0.5  # divides scores
        gated = getattr(config, "intermediate_size", None)  # gated feedforward layers have three matrices
        feedforward = 3 * self.d_model * gated if gated else 8 * self.d_model**2
        self.layer_weights = 2 * self.d_model * self.head_size * (self.n_head + self.n_key_head) + feedforward

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """Its settings by name, each with its default."""
        return {key: part.default for key, part in inspect.signature(cls.__init__).parameters.items()
                if part.kind is part.KEYWORD_ONLY}

    def read(self, layer: Callable, hidden: Tensor, state: State | None, stride: int | None,
             places: Tensor | None) -> tuple[Tensor, State]:
        """Read one window: hidden states (B, T, d) after the final norm, and the next state.

        hidden: (B, T, d) embedded tokens, the first `n_opening` of which are not text. The model uses as many of the
        last hidden states as the window has tokens. places: (context, d) the model's position embeddings; None if it
        has rotary ones. state: returned for the previous window; None if there is none.
        stride: tokens until the next window starts, None for all: tokens that are read again there need not be
        remembered.

        `layer(index, hidden, before=None)` is one block of the model (the last one with the final norm). It returns
        hidden states (B, T, d). Every position also sees `before` (B, E, d), vectors used as earlier inputs of the
        block, at the positions before 0. In a block with a sliding window, the first `everywhere` keys are seen at any
        distance; by default these are the E vectors. With `layer(index, hidden, mix=..., state=(...))`, the block's
        attention returns the first result of `mix(query, key, value, out, *state)`, where `out` is its ordinary result.
        query and out are (B, H, T, D), key and value (B, `n_key_head`, T, D), without rotary positions. The second
        result is returned with the hidden states.
        """
        raise NotImplementedError

    def before(self, state: State | None) -> dict[int, Tensor] | None:
        """The vectors (B, E, d) before each layer's window, if a window sees nothing else of the state:
        generation then uses a key/value cache. None: no cache is possible, and every new token reads its window
        again."""
        return None

    def text(self, x: Tensor, stride: int | None = None, dim: int = 1) -> Tensor:
        """The part of `x` that belongs to the first `stride` tokens of a window, its positions in dimension `dim`."""
        start = self.n_opening
        return x[(slice(None),) * dim + (slice(start, None if stride is None else start + stride),)]

    def for_queries(self, x: Tensor) -> Tensor:
        """`x` (B, `n_key_head`, ...) repeated for every query head (B, H, ...)."""
        return x if self.n_key_head == self.n_head else x.repeat_interleave(self.n_head // self.n_key_head, 1)

    def state_numbers(self, window: int) -> int:
        """The most numbers that a sequence carries between windows; `window` in tokens, no overlap."""
        raise NotImplementedError

    def flops_per_window(self, window: int) -> float:
        """Forward FLOPs that the memory adds to a window of `window` tokens once its state is full; 2 per product."""
        raise NotImplementedError

    def carried(self, window: int) -> Carried:
        """How figures draw the state that `window` tokens leave; by default one cell, from all blocks to all."""
        return Carried("a state", range(self.n_layer), range(self.n_layer))

    def flops_per_token(self, window: int, overlap: int) -> float:
        """Forward FLOPs per scored token that the memory adds to `repro.evaluation.flops_per_token`."""
        check_window(window, overlap)
        return self.flops_per_window(window) / (window - overlap)

    def reset_parameters(self) -> None:
        """Initialize weights that torch does not already initialize as needed."""

    def before_flops(self, window: int, n: int) -> float:
        """FLOPs of `n` vectors before a window in one layer: their keys and values, and attention to them."""
        return n * self.head_size * (4 * self.d_model * self.n_key_head + 4 * window * self.n_head)

    def check_layer(self, index: int) -> int:
        """`index`, after checking that the model has such a layer."""
        if not 0 <= index < self.n_layer:
            raise ReproError(f"the memory's layer is {index}, but the model has layers 0 to {self.n_layer - 1}.")
        return index


def settings_of(kind: type[Memory], name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All settings of a kind of memory, with defaults for those not given. Raises ReproError for an unknown setting."""
    known = kind.settings()
    own = {**kind.defaults, **given}
    for key, value in own.items():
        if key not in known:
            raise unknown(f"setting of memory '{name}'", key, known)
        if isinstance(known[key], int) and (not isinstance(value, int) or value < 0):
            raise ReproError(f"{key} of memory '{name}' is {value!r}; it must be a whole number, at least 0.")
    return known | own
