"""GPT-2 with any of the memories in `repro.recurrence.memories`."""

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import GPT2Config
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from repro.checked import checked
from repro.checkpoints import config_of, reading, whole
from repro.errors import ReproError, short
from repro.recompute import recomputed
from repro.recurrence.causal import BASE, WindowByWindowGPT2, attention_with_previous
from repro.recurrence.memories import MEMORIES, complete, make

ATTENTION = "repro_memory"


def attention_with_memory(module, query, key, value, *args, mix=None, **kwargs):
    """`attention_with_previous`; if `mix(query, key, value, out)` is given, it replaces the result. All (B, H, T,
    D)."""
    out, _ = attention_with_previous(module, query, key, value, *args, **kwargs)
    if mix is not None:
        out = mix(query, key, value, out.transpose(1, 2)).transpose(1, 2)
    return out, None


AttentionInterface.register(ATTENTION, attention_with_memory)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


@checked
class MemoryLM(WindowByWindowGPT2):
    """A GPT-2 language model with a memory; made by `with_memory`, called like a `RecurrentLM`.

    The base weights keep the names they have in `GPT2LMHeadModel`; the memory's are under `memory.`. `memory`
    in its config has the memory's name and settings.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "gated")
    >>> isinstance(model, MemoryLM), model.config.memory["name"]
    (True, 'gated')
    """

    attention = ATTENTION

    def __init__(self, config: GPT2Config, memory: dict | None = None):
        super().__init__(copy.deepcopy(config))
        self.config.memory = memory or getattr(config, "memory", None)
        if not isinstance(self.config.memory, dict) or self.config.memory.get("name") not in MEMORIES:
            raise ReproError(f"memory is {short(self.config.memory)}; give the result of `complete`.")
        self.set_attn_implementation(ATTENTION)
        self.memory = make(self.config, self.config.memory)

    @classmethod
    def from_pretrained(cls, name_or_path, memory: dict | None = None, **kwargs) -> "MemoryLM":
        """Load a saved MemoryLM, or put a fresh memory, described by `complete`, into any GPT-2 checkpoint.

        Raises ReproError if `memory` contradicts the saved model or is missing where none was saved, and for a missing
        or damaged checkpoint.
        """
        with reading(name_or_path, BASE) as name_or_path:
            stored = config_of("gpt2", name_or_path).get("memory")
            if stored is None and memory is None:
                raise ReproError(f"{name_or_path} was saved without a memory; give one.")
            if stored is None:
                return cls._attached(name_or_path, memory, **kwargs)
            if memory not in (None, stored):
                raise ReproError(f"{name_or_path} was saved with memory {stored}, not {memory}; leave the argument out "
                                 "to use the saved one.")
            return whole(super().from_pretrained, "gpt2", name_or_path, **kwargs)[0]

    def added_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that the base model does not have."""
        return self.memory.parameters()

    def _read_window(self, ids: Tensor, z, stride: int | None = None, recompute_layers: bool = False):
        """Hidden states (B, T, d) of one window after the final layer norm, and the memory's next state."""
        self._check_attention()

        def layer(index, hidden, before=None, mix=None, state=()):
            return recomputed(recompute_layers, self._layer, index, hidden, before, mix, state)

        return self.memory.read(layer, self._embedded(ids), z, stride, self.transformer.wpe.weight)

    def _layer(self, index, hidden, before, mix, state):
        """One block, as `Memory.read` describes it."""
        block, left = self.transformer.h[index], []

        def inside(query, key, value, out):
            out, kept = mix(query, key, value, out, *state)
            left.append(kept)
            return out

        previous = None if before is None else self._keys_and_values(block, before)
        hidden = block(hidden, previous=previous, mix=None if mix is None else inside)
        if index == self.config.n_layer - 1:
            hidden = self.transformer.ln_f(hidden)
        return hidden if mix is None else (hidden, left[-1])

    def _keys_and_values(self, block, before):
        """Keys and values (B, H, E, D) of vectors placed before a window; they need no queries."""
        d = self.config.n_embd
        projection = block.attn.c_attn
        both = nn.functional.linear(block.ln_1(before), projection.weight[:, d:].T, projection.bias[d:])
        return tuple(x.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for x in both.chunk(2, -1))


@checked
def with_memory(name_or_folder: str | Path, memory: str | None = None, dtype: torch.dtype = torch.float32,
                **settings) -> MemoryLM:
    """A GPT-2 checkpoint (hub name or folder) with a memory, in evaluation mode.

    memory: one of `repro.recurrence.MEMORIES`, with its own settings, such as `n_tokens=16` for "rmt"; None for a
    folder saved with one. `model(input_ids, window, overlap, labels, recompute)` returns loss and logits.
    Raises ReproError for an unknown memory or setting, and if another memory was saved.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "rmt", n_tokens=3)
    >>> model(torch.arange(8)[None], window=4).logits.shape
    torch.Size([1, 8, 9])
    """
    wanted = None if memory is None else complete(memory, **settings)
    return MemoryLM.from_pretrained(str(name_or_folder), wanted, dtype=dtype)
