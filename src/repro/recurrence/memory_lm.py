"""GPT-2, Llama, Mistral, Qwen or Gemma with any of the memories in `repro.recurrence.memories`."""

from pathlib import Path

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from repro.checked import checked
from repro.checkpoints import config_of, reading, whole
from repro.errors import ReproError
from repro.recurrence.causal import BASE, WindowByWindowGPT2
from repro.recurrence.memories import complete
from repro.recurrence.memory_decoder import GPT2_ATTENTION, WithMemory, memory_class, plain_decoder
from repro.recurrence.windowed import in_class


@checked
class MemoryLM(WithMemory, WindowByWindowGPT2):
    """A GPT-2 language model with a memory; made by `with_memory`, called like a `RecurrentLM`.

    The base weights keep the names they have in `GPT2LMHeadModel`; the memory's are under `memory.`. `memory`
    in its config has the memory's name and settings.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "gated")
    >>> isinstance(model, MemoryLM), model.config.memory["name"]
    (True, 'gated')
    """

    attention = (GPT2_ATTENTION,)
    final_norm = "transformer.ln_f"

    def __init__(self, config: GPT2Config, memory: dict | None = None):  # types are checked as they stand here
        super().__init__(config, memory)

    @classmethod
    def from_pretrained(cls, name_or_path, memory: dict | None = None, **kwargs) -> WithMemory:
        """Load a saved model with a memory, or put a fresh memory, described by `complete`, into a decoder.

        A decoder other than GPT-2 becomes a `repro.recurrence.memory_decoder.MemoryDecoder`, with the same methods.
        Raises ReproError if `memory` contradicts the saved model or is missing where none was saved, for a model that
        cannot be given a memory, and for a missing or damaged checkpoint.
        """
        with reading(name_or_path, BASE) as name_or_path:
            settings = config_of(None, name_or_path)
            kind, stored = settings.get("model_type"), settings.get("memory")
            base = GPT2LMHeadModel if kind == "gpt2" else plain_decoder(name_or_path)
            if stored is None and memory is None:
                raise ReproError(f"{name_or_path} was saved without a memory; give one.")
            if memory not in (None, stored) and stored is not None:
                raise ReproError(f"{name_or_path} was saved with memory {stored}, not {memory}; leave the argument out "
                                 "to use the saved one.")
            new = cls if kind == "gpt2" else memory_class(base)
            if stored is None:
                return in_class(new, whole(base.from_pretrained, kind, name_or_path, **kwargs)[0], memory)
            read = super().from_pretrained if kind == "gpt2" else new.from_pretrained
            return whole(read, kind, name_or_path, **kwargs)[0]

    def _places(self):
        return self.transformer.wpe.weight

    def _block(self, index, hidden, before, mix, everywhere):
        """One block (B, T, d); GPT-2 has no sliding windows."""
        block = self.transformer.h[index]
        return block(hidden, previous=None if before is None else self._keys_and_values(block, before), mix=mix)

    def _keys_and_values(self, block, before):
        """Keys and values (B, H, E, D) of vectors placed before a window; they need no queries."""
        d = self.config.n_embd
        projection = block.attn.c_attn
        both = nn.functional.linear(block.ln_1(before), projection.weight[:, d:].T, projection.bias[d:])
        return tuple(x.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for x in both.chunk(2, -1))


@checked
def with_memory(name_or_folder: str | Path, memory: str | None = None, dtype: torch.dtype = torch.float32,
                **settings) -> WithMemory:
    """A decoder (hub name, folder, or fetched model) with a memory, in evaluation mode: GPT-2, Llama, Mistral, Qwen 2
    or 3, or Gemma 3.

    memory: one of `repro.recurrence.MEMORIES`, with its own settings, such as `n_tokens=16` for "rmt"; None for a
    folder saved with one. `model(input_ids, window, overlap, labels, recompute)` returns loss and logits.
    Raises ReproError for an unknown memory or setting, another model, and if another memory was saved.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "rmt", n_tokens=3)
    >>> model(torch.arange(8)[None], window=4).logits.shape
    torch.Size([1, 8, 9])
    """
    wanted = None if memory is None else complete(memory, **settings)
    return MemoryLM.from_pretrained(str(name_or_folder), wanted, dtype=dtype)
