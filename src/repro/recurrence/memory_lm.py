"""GPT-2 with any of the memories in `repro.recurrence.memories`, and the loading of all decoders with a memory."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from repro.checked import checked
from repro.checkpoints import config_of, reading, whole
from repro.errors import ReproError, short
from repro.ids import embedded
from repro.recurrence.carrier import Recurrent, WithMemory
from repro.recurrence.causal import ATTENTION
from repro.recurrence.decoders import check_reading, memory_class, of_family, plain_decoder, recurrent_class
from repro.recurrence.memories import complete
from repro.recurrence.module import RecurrenceConfig, check_same, check_settings
from repro.recurrence.windowed import check_attention, in_class

BASE = "openai-community/gpt2"  # an example, for messages about checkpoints


class GPT2WithMemory(WithMemory, GPT2LMHeadModel):
    """GPT-2 that carries a memory."""

    def _places(self):
        return self.transformer.wpe.weight

    def _embedded(self, ids: Tensor, start: int = 0) -> Tensor:
        """Tokens and their positions in the window (B, T, d); positions start again in every window."""
        base, places = self.transformer, torch.arange(start, start + ids.shape[1], device=ids.device)
        return base.drop(embedded(base.wte, ids) + base.wpe(places))

    def _normed(self, hidden):
        return self.transformer.ln_f(hidden)

    def _block(self, index, hidden, before=None, mix=None, everywhere=None, cache=None, start=0):
        """One block (B, T, d); GPT-2 has no sliding windows, and positions are in the embeddings."""
        block = self.transformer.h[index]
        return block(hidden, cache, previous=None if before is None else self._keys_and_values(block, before), mix=mix)

    def _keys_and_values(self, block, before):
        """Keys and values (B, H, E, D) of vectors placed before a window; they need no queries."""
        d = self.config.n_embd
        projection = block.attn.c_attn
        both = nn.functional.linear(block.ln_1(before), projection.weight[:, d:].T, projection.bias[d:])
        return tuple(x.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for x in both.chunk(2, -1))


@checked
class MemoryLM(GPT2WithMemory):
    """A GPT-2 language model with a memory; made by `with_memory`, called like a `RecurrentLM`.

    The base weights keep the names they have in `GPT2LMHeadModel`; the memory's are under `memory.`. `memory`
    in its config has the memory's name and settings.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "gated")
    >>> isinstance(model, MemoryLM), model.config.memory["name"]
    (True, 'gated')
    """

    def __init__(self, config: GPT2Config, memory: dict | None = None):  # `checked` reads these types
        super().__init__(config, memory)

    @classmethod
    def from_pretrained(cls, name_or_path, memory: dict | None = None, **kwargs) -> WithMemory:
        """Load a saved model with a memory, or put a fresh memory, described by `complete`, into a decoder.

        A decoder other than GPT-2 becomes a `repro.recurrence.decoders.MemoryDecoder`, with the same methods.
        Raises ReproError if `memory` contradicts the saved model or is missing and none was saved, for a model that
        cannot be given a memory, and for a missing or damaged checkpoint.
        """
        def check(name_or_path, stored):
            if stored is None and memory is None:
                raise ReproError(f"{name_or_path} was saved without a memory; give one.")
            if memory is not None and stored not in (None, memory) and memory != complete(**_named(stored)):
                raise ReproError(f"{name_or_path} was saved with memory {stored}, not {memory}; leave the argument out "
                                 "to use the saved one.")

        return _loaded(cls, memory_class, name_or_path, memory, check, **kwargs)


@checked
class RecurrentLM(Recurrent, GPT2WithMemory):
    """A GPT-2 language model with a recurrence module (Yoshida et al. 2020, section 3).

    The base weights keep the names they have in `GPT2LMHeadModel`; the module's are under `recurrence.`. It reads as
    a `MemoryLM` with memory "yoshida" does.

    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8))
    >>> ids = torch.arange(18)[None] % 9
    >>> out = model(ids, window=6, overlap=2, labels=ids)
    >>> out.logits.shape, out.loss.requires_grad
    (torch.Size([1, 18, 9]), True)
    """

    def __init__(self, config: GPT2Config, recurrence: RecurrenceConfig | None = None):
        super().__init__(config, recurrence)

    @classmethod
    def from_pretrained(cls, name_or_path, recurrence: RecurrenceConfig | None = None, **kwargs) -> "RecurrentLM":
        """Load a saved RecurrentLM, or attach a fresh recurrence module to a decoder: its folder, its hub name, or the
        name of a model that `repro models fetch` downloaded, such as gemma-3-270m.

        A decoder other than GPT-2, such as Llama or Gemma, becomes a class of its own with the same methods. Raises
        ReproError for other models, if `recurrence` contradicts the saved model, and for a missing or damaged
        checkpoint.
        """
        def check(name_or_path, stored):
            if stored is not None:
                check_same(name_or_path, stored, recurrence)

        check_settings(recurrence)
        return _loaded(cls, recurrent_class, name_or_path, recurrence, check, **kwargs)


def _loaded(cls: type, other: Callable[[type], type], name_or_path, given, check: Callable, **kwargs) -> WithMemory:
    """A saved model of `cls`, or one made of a plain checkpoint and `given`, in evaluation mode. other: makes the class
    of a decoder other than GPT-2. check(name_or_path, stored): compares what was saved with what is given."""
    with reading(name_or_path, BASE) as name_or_path:
        settings = config_of(None, name_or_path)
        kind, stored, new = settings.get("model_type"), settings.get(cls.setting), cls
        base = GPT2LMHeadModel if kind == "gpt2" else None
        if base is None:
            config, base = plain_decoder(name_or_path)
            new = other(base)
        check_attention(kwargs.get("attn_implementation") or ATTENTION, new.attention, new.__name__)
        if stored is not None and (not isinstance(stored, dict) or cls.setting == "memory" and "name" not in stored):
            raise ReproError(f"{cls.setting} in the config.json of {name_or_path} is {short(stored)}; it must be the "
                             "settings that were saved.")
        other = "recurrence" if cls.setting == "memory" else "memory"
        if stored is None and settings.get(other) is not None:
            raise ReproError(f"{name_or_path} was saved with a {other} ({short(settings[other], 60)}), which would be "
                             "lost; load it with repro.models.load_causal_lm, or give its plain model.")
        check(name_or_path, stored)
        if kind != "gpt2":
            with torch.device("meta"), of_family(kind):
                new(config, given)  # refuses an unsuitable model before its weights are read
        if stored is not None:
            model = whole(partial(PreTrainedModel.from_pretrained.__func__, new), kind, name_or_path, **kwargs)[0]
        else:
            model = in_class(new, whole(base.from_pretrained, kind, name_or_path, **kwargs)[0], given)
        if kind != "gpt2":
            check_reading(model)
        return model


def _named(stored: dict) -> dict:
    """Stored settings under the argument names of `complete`."""
    return {"memory" if key == "name" else key: value for key, value in stored.items()}


@checked
def with_memory(name_or_folder: str | Path, memory: str | None = None, dtype: torch.dtype = torch.float32,
                **settings) -> WithMemory:
    """A decoder (hub name, folder, or fetched model) with a memory, in evaluation mode: GPT-2, Llama, Mistral, Qwen 2
    or 3, Gemma 3, or another decoder with rotary positions or a table of positions. Memories that change the attention
    inside a layer ("infini", "knn") work only in the families named here.

    memory: one of `repro.recurrence.MEMORIES`, with its own settings, such as `n_tokens=16` for "rmt"; None for a
    folder saved with one. `model(input_ids, window, overlap, labels, recompute)` returns loss and logits.
    Raises ReproError for an unknown memory or setting, for any other model, and if a different memory was saved.

    >>> from repro.models import gpt2_mini, save_model
    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> model = with_memory(folder / "base", "rmt", n_tokens=3)
    >>> model(torch.arange(8)[None], window=4).logits.shape
    torch.Size([1, 8, 9])
    """
    wanted = None if memory is None else complete(memory, **settings)
    return MemoryLM.from_pretrained(str(name_or_folder), wanted, dtype=dtype)


@checked
class MaskedOut(nn.Module):
    """A RecurrentLM whose module is masked out, for scoring: the difference shows how much it relies on h_prev.

    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8)).eval()
    >>> MaskedOut(model)(torch.arange(8)[None]).shape
    torch.Size([1, 8, 9])
    """

    def __init__(self, model: RecurrentLM):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, T, V) of separate windows `ids` (B, T)."""
        return self.model(ids, recurrent=False).logits
