"""The base of all language models that carry a memory from window to window."""

import copy
from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from repro.errors import ReproError, short
from repro.recompute import recomputed
from repro.recurrence.causal import ATTENTION
from repro.recurrence.memories import MEMORIES, make
from repro.recurrence.module import RecurrenceConfig, check_settings
from repro.recurrence.windowed import WindowByWindow


class WithMemory(WindowByWindow):
    """A decoder with a memory. A subclass, whose other base is the model's class, embeds tokens in `_embedded`, runs
    one block in `_block`, and applies the final norm in `_normed`."""

    setting = "memory"  # the name of the setting in its config
    attention = (ATTENTION,)
    n_opening = 0

    def __init__(self, config, memory: dict | None = None):
        super().__init__(copy.deepcopy(config))
        self.config.memory = memory or getattr(config, "memory", None)
        if not isinstance(self.config.memory, dict) or self.config.memory.get("name") not in MEMORIES:
            raise ReproError(f"memory is {short(self.config.memory)}; give the result of `complete`.")
        self.set_attn_implementation(*self.attention)
        self.memory = make(self.config, self.config.memory)

    def added_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that the base model does not have."""
        return self.memory.parameters()

    def _read_below(self, ids: list[Tensor], stride: int | None, recompute_layers: bool = False) -> list[tuple]:
        """For each window, the embedded tokens and the outputs of the layers that no state reaches."""
        if len(ids) == 1 or not self.memory.n_below:
            return [()] * len(ids)
        self._check_attention()
        states = [self._embedded(torch.stack(ids, 1).flatten(0, 1))]
        for index in range(self.memory.n_below):
            states.append(recomputed(recompute_layers, self._layer, index, states[-1]))
        return list(zip(*(x.unflatten(0, (-1, len(ids))).unbind(1) for x in states), strict=True))

    def _read_window(self, ids: Tensor, z, stride: int | None = None, recompute_layers: bool = False, *below: Tensor):
        """Hidden states (B, T, d) of one window after the final norm, and the memory's next state.

        z: the state of the previous window; None for the first. stride: tokens until the next window starts. below:
        from `_read_below`.
        """
        self._check_attention()

        def layer(index, hidden, before=None, mix=None, state=(), everywhere=None):
            if index + 1 < len(below):
                return below[index + 1]
            out = recomputed(recompute_layers, self._layer, index, hidden, before, mix, state, everywhere)
            if index + 1 < self.config.num_hidden_layers:
                return out
            return self._normed(out) if mix is None else (self._normed(out[0]), out[1])

        embedded = below[0] if below else self._embedded(ids)
        hidden, z = self.memory.read(layer, embedded, z, stride, self._places())
        return hidden[:, -ids.shape[1]:], z

    def _layer(self, index, hidden, before=None, mix=None, state=(), everywhere=None, cache=None, start=0):
        """One layer, as `Memory.read` describes it, without the final norm. cache: keys and values of the tokens before
        position `start`."""
        left = []

        def inside(query, key, value, out):
            out, kept = mix(query, key, value, out, *state)
            left.append(kept)
            return out

        hidden = self._block(index, hidden, before, None if mix is None else inside, everywhere, cache, start)
        return hidden if mix is None else (hidden, left[-1])

    def _places(self) -> Tensor | None:
        """The position embeddings (context, d); None for rotary ones."""
        return None

    def _reader(self, z, stride):
        """As in `WindowByWindow`. If a window sees the state only as vectors before it, each layer reads its vectors
        first, so that its cache begins with their keys and values."""
        vectors = self.memory.before(z)
        if vectors is None:
            return super()._reader(z, stride)
        self._check_attention()
        vectors = {index: before for index, before in vectors.items() if before.shape[1]}
        cache, n_read = DynamicCache(), 0
        for index, before in vectors.items():
            self._block(index, before, cache=cache, start=-before.shape[1])

        def read(ids: Tensor) -> Tensor:
            nonlocal n_read
            start = n_read and n_read + self.n_opening
            hidden, n_read = self._embedded(ids[:, n_read:], start), ids.shape[1]
            for index in range(self.config.num_hidden_layers):
                everywhere = vectors[index].shape[1] if index in vectors else None
                hidden = self._layer(index, hidden, everywhere=everywhere, cache=cache, start=start)
            return self._normed(hidden[:, -1])

        return read


class Recurrent:
    """A `WithMemory` whose memory is "yoshida". A RecurrenceConfig describes the memory, `recurrence` in the model's
    config stores its settings, and its weights are under `recurrence.`"""

    setting = "recurrence"

    def __init__(self, config, recurrence: RecurrenceConfig | None = None):
        check_settings(recurrence)
        settings = recurrence or RecurrenceConfig(**(getattr(config, "recurrence", None) or {}))
        super().__init__(config, {"name": "yoshida"} | asdict(settings))
        del self.config.memory
        self.config.recurrence = settings.to_dict()
        self.__dict__["memory"] = self._modules.pop("memory")  # so that its weights have only one name
        self.recurrence = self.memory.recurrence
