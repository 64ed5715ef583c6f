"""The base of all decoders with a memory, and memories in decoders with rotary positions: Llama, Mistral, Qwen 2 and 3,
Gemma 3."""

import copy
import importlib
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from repro.errors import ReproError, short
from repro.hf_compat import check_logits
from repro.ids import embedded
from repro.recompute import recomputed
from repro.recurrence.causal import attention_with_previous, check_scores
from repro.recurrence.decoders import decoder_of
from repro.recurrence.memories import MEMORIES, make
from repro.recurrence.opening import open_windows
from repro.recurrence.windowed import WindowByWindow

ATTENTION, GPT2_ATTENTION = "repro_memory_decoder", "repro_memory"
FAMILIES = ("gemma3_text", "llama", "mistral", "qwen2", "qwen3")  # whose layers are read as they are here


def attention_with_memory(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None,
                          sliding_window=None, previous=None, everywhere=None, mix=None, **others):
    """Causal attention of queries (B, H, T, D) to keys and values (B, G, T, D), each shared by H / G heads; in GPT-2 G
    is H.

    previous: keys and values (B, G, E, D) at the positions before. In a sliding window, every position also sees the
    first `everywhere` keys, by default the E. If `mix(query, key, value, out)` is given, it replaces the result.
    Raises ReproError for `others` that would change the scores.
    """
    check_scores(others)
    n_before = 0 if previous is None else previous[0].shape[2]
    shared = query.shape[1] // key.shape[1]
    before = () if previous is None else previous
    keys, values, *before = (x if shared == 1 else x.repeat_interleave(shared, 1) for x in (key, value, *before))
    if sliding_window is None or n_before + key.shape[2] <= sliding_window:
        out, _ = attention_with_previous(module, query, keys, values, attention_mask, dropout, scaling, before or None)
        out = out.transpose(1, 2)
    else:
        if before:
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        j = torch.arange(keys.shape[2], device=query.device)
        i = j[n_before:, None]
        seen = (j <= i) & ((i - j < sliding_window) | (j < (n_before if everywhere is None else everywhere)))
        out = F.scaled_dot_product_attention(query, keys, values, seen, dropout, scale=scaling)
    if mix is not None:
        out = mix(query, key, value, out)
    return out.transpose(1, 2), None


for one in (ATTENTION, GPT2_ATTENTION):
    AttentionInterface.register(one, attention_with_memory)
    AttentionMaskInterface.register(one, sdpa_mask)


class WithMemory(WindowByWindow):
    """A decoder with a memory. A subclass, whose other base is the model's class, embeds tokens in `_embedded` and
    reads one block in `_block`."""

    n_opening = 0
    final_norm = "model.norm"

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

    def _read_window(self, ids: Tensor, z, stride: int | None = None, recompute_layers: bool = False):
        """Hidden states (B, T, d) of one window after the final norm, and the memory's next state."""
        self._check_attention()

        def layer(index, hidden, before=None, mix=None, state=(), everywhere=None):
            return recomputed(recompute_layers, self._layer, index, hidden, before, mix, state, everywhere)

        hidden, z = self.memory.read(layer, self._embedded(ids), z, stride, self._places())
        return hidden[:, -ids.shape[1]:], z

    def _layer(self, index, hidden, before, mix, state, everywhere):
        """One layer, as `Memory.read` describes it."""
        left = []

        def inside(query, key, value, out):
            out, kept = mix(query, key, value, out, *state)
            left.append(kept)
            return out

        hidden = self._block(index, hidden, before, None if mix is None else inside, everywhere)
        if index == self.config.num_hidden_layers - 1:
            hidden = self.get_submodule(self.final_norm)(hidden)
        return hidden if mix is None else (hidden, left[-1])

    def _places(self) -> Tensor | None:
        """The position embeddings (context, d); None for rotary ones."""
        return None


class MemoryDecoder(WithMemory):
    """A decoder with a memory; `memory_class` adds the model's own class, and `with_memory` makes one.

    Vectors before a window become keys and values through the norm and projections of the layer, at the positions
    before the first. All tokens see them, in a layer with a sliding window, too.
    """

    attention = (ATTENTION,)

    def __init__(self, config, memory: dict | None = None):
        super().__init__(config, memory)
        check_logits(self.config)
        self.n_opening = self.memory.n_opening = open_windows(self)

    def _embedded(self, ids: Tensor) -> Tensor:
        """The tokens of a window, an opening token in front (B, T, d)."""
        ids = F.pad(ids, (self.n_opening, 0), value=self.config.opening_token) if self.n_opening else ids
        return embedded(self.base_model.embed_tokens, ids)

    def _block(self, index, hidden, before, mix, everywhere):
        """One layer (B, T, d). mix gets queries and keys before their rotation."""
        layer, previous = self.base_model.layers[index], None
        n_before = 0 if before is None else before.shape[1]
        cos, sin = self._rotation(index, hidden, n_before)
        own = cos[:, n_before:], sin[:, n_before:]
        if before is not None:
            previous = _keys_and_values(layer, before, cos[:, :n_before], sin[:, :n_before])

        def inside(query, key, value, out):
            return mix(*_turned_back(layer, query, key, *own), value, out)

        return layer(hidden, position_embeddings=own, attention_mask=None, previous=previous, everywhere=everywhere,
                     mix=None if mix is None else inside)

    def _rotation(self, index: int, hidden: Tensor, n_before: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (1, E + T, D) of a layer at the positions of `n_before` vectors and of the window."""
        positions = torch.arange(-n_before, hidden.shape[1], device=hidden.device)[None]
        kind = (self.config.layer_types[index],) if self.config.model_type == "gemma3_text" else ()
        return self.base_model.rotary_emb(hidden, positions, *kind)


def _rotated(layer: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (B, H, T, D) turned by the rotary embedding of the layer's own family."""
    return importlib.import_module(type(layer).__module__).apply_rotary_pos_emb(x, x, cos, sin)[0]


def _turned_back(layer: nn.Module, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys before their rotation; some rotary embeddings also scale."""
    squared = (cos.square() + sin.square()).unsqueeze(1)
    return tuple(_rotated(layer, x, cos, -sin) / squared for x in (query, key))


def _keys_and_values(layer: nn.Module, before: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (B, G, E, D) of vectors placed before a window; they need no queries."""
    attention, normed = layer.self_attn, layer.input_layernorm(before)
    key, value = (project(normed).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
                  for project in (attention.k_proj, attention.v_proj))
    if hasattr(attention, "k_norm"):
        key = attention.k_norm(key)
    return _rotated(layer, key, cos, sin), value


@lru_cache
def memory_class(base: type) -> type:
    """The class of a decoder with a memory, from its class in transformers, such as LlamaForCausalLM."""
    return type(f"Memory{base.__name__}", (MemoryDecoder, base), {
        "__doc__": f"{base.__name__} with a memory.", "__module__": __name__})


def __getattr__(name: str) -> type:  # pickle looks for the class of a model here
    import transformers

    base = getattr(transformers, name.removeprefix("Memory"), None) if name.startswith("Memory") else None
    if base is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return memory_class(base)


def plain_decoder(name_or_path) -> type:
    """The class of a checkpoint in transformers. Raises ReproError for a model that cannot be given a memory."""
    config, plain = decoder_of(name_or_path)
    if config.model_type not in FAMILIES:
        raise ReproError(f"{name_or_path} is a checkpoint of {config.model_type}, which cannot be given a memory; give "
                         "GPT-2, Llama, Mistral, Qwen 2 or 3, or Gemma 3. `RecurrentLM` takes more decoders.")
    return plain
