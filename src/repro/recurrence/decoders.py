"""Memories in transformers' decoders that have rotary positions, such as Llama, Mistral, Qwen and Gemma, or a table of
position embeddings, such as OPT."""

import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from repro.checkpoints import config_of
from repro.errors import ReproError, short
from repro.hf_compat import check_logits, layer_cache_name
from repro.ids import embedded
from repro.recurrence.carrier import Recurrent, WithMemory
from repro.recurrence.opening import open_windows

FAMILIES = ("gemma3_text", "llama", "mistral", "qwen2", "qwen3")  # model types whose layers are known in detail here
KNOWN = "give GPT-2, Llama, Mistral, Qwen or Gemma"
LAYERS = ("layers", "h")  # names of a model's list of layers, of its final norm, and so on
NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
TABLES = ("embed_positions", "wpe")
DROPOUTS = ("embed_dropout", "emb_dropout", "drop")
TOGETHER = 2048  # tokens that layers below a state read at once: enough for near-peak matrix products on a CPU


class MemoryDecoder(WithMemory):
    """A decoder with a memory; `memory_class` and `recurrent_class` add the model's own class.

    Vectors before a window become keys and values through the norm and projections of the layer, at the positions
    before the first token. All tokens see them, even in a layer with a sliding window. Outside of FAMILIES they pass
    through the whole layer in front of the tokens, and are removed from its output. Layers below the state read many
    windows at once.
    """

    together = TOGETHER

    def __init__(self, config, memory: dict | None = None):
        super().__init__(config, memory)
        config, stack = self.config, self._stack
        check_logits(config)
        self.layer_list, self.final_norm, self.table, rotary = (
            _first(stack, names) for names in (LAYERS, NORMS, TABLES, ("rotary_emb",)))
        n_layers = len(getattr(stack, self.layer_list)) if self.layer_list else 0
        scaled = getattr(config, "embedding_multiplier", 1) != 1
        if n_layers != config.num_hidden_layers or not self.final_norm or scaled or not (rotary or self.table):
            raise ReproError(f"{type(self).__name__} has no list of decoder layers with one rotary embedding or table "
                             "of positions, a final norm and a plain embedding, so no state can be carried to a layer; "
                             f"{KNOWN}.")
        self.rotates = bool(rotary)
        self.rotates_by_type = self.rotates and "layer_type" in inspect.signature(stack.rotary_emb.forward).parameters
        self.n_opening = self.memory.n_opening = open_windows(self)

    @property
    def _stack(self) -> nn.Module:
        """The part of the model that holds its layers."""
        return getattr(self.base_model, "decoder", self.base_model)

    @property
    def _layers(self) -> nn.ModuleList:
        return getattr(self._stack, self.layer_list)

    def _places(self):
        """The position embeddings (context, d); None for rotary ones."""
        if self.rotates:
            return None
        table = getattr(self._stack, self.table)
        return table.weight[getattr(table, "offset", 0):]

    def _embedded(self, ids: Tensor, start: int = 0) -> Tensor:
        """The embedded tokens of a window (B, T, d), with the opening token in front if there is one."""
        if self.n_opening and not start:
            ids = F.pad(ids, (self.n_opening, 0), value=self.config.opening_token)
        hidden, places = embedded(self.get_input_embeddings(), ids), self._places()
        if places is not None:
            if (stop := start + ids.shape[1]) > len(places):
                raise ReproError(f"a window with its opening token needs {stop} positions, but the model has "
                                 f"{len(places)}; choose a smaller window.")
            hidden = hidden + places[start:stop]
        for name in DROPOUTS:
            hidden = getattr(self._stack, name, nn.Identity())(hidden)
        return F.dropout(hidden, getattr(self.config, "embedding_dropout", 0.0), self.training)  # in Starcoder 2

    def _normed(self, hidden):
        return getattr(self._stack, self.final_norm)(hidden)

    def _block(self, index, hidden, before=None, mix=None, everywhere=None, cache=None, start=0):
        """One layer (B, T, d). mix gets queries and keys before their rotation."""
        layer, n = self._layers[index], 0 if before is None else before.shape[1]
        more = {} if cache is None else {layer_cache_name(layer): cache}
        rotation = self._rotation(index, hidden, start - n, start + hidden.shape[1]) if self.rotates else None
        if self.config.model_type not in FAMILIES:
            if rotation is not None:
                more["position_embeddings"] = rotation
            if "position_ids" in inspect.signature(layer.forward).parameters:  # vectors get the first token's
                places = torch.arange(start - n, start + hidden.shape[1], device=hidden.device)
                more["position_ids"] = places.clamp(min=0)[None]
            return self._unknown_block(layer, hidden, before, mix, everywhere, more)
        cos, sin = rotation
        if n:
            more["previous"] = _keys_and_values(layer, before, cos[:, :n], sin[:, :n])
        own = cos[:, n:], sin[:, n:]

        def inside(query, key, value, out):
            return mix(*_turned_back(layer, query, key, *own), value, out)

        return layer(hidden, position_embeddings=own, attention_mask=None, everywhere=everywhere,
                     mix=None if mix is None else inside, **more)

    def _unknown_block(self, layer, hidden, before, mix, everywhere, more):
        """One layer of another family, whose internals are unknown: vectors go in front of its input."""
        n = 0 if before is None else before.shape[1]
        if mix is not None:
            raise ReproError(f"memory {short(self.config.memory['name'])} changes the attention inside a layer, and is "
                             f"not possible in a model of type {self.config.model_type}; choose another, or {KNOWN}.")
        if n:
            hidden = torch.cat([before.to(hidden.dtype), hidden], 1)
        everywhere = n if everywhere is None else everywhere
        if any(part.kind is part.VAR_KEYWORD for part in inspect.signature(layer.forward).parameters.values()):
            out = layer(hidden, attention_mask=None, everywhere=everywhere, **more)
        if not any(getattr(part, "carries", False) for part in layer.children()):
            raise ReproError(f"the layers of {type(self).__name__} do not get the keyword arguments of the model or "
                             f"have an attention of their own, so they cannot be given h_prev; {KNOWN}.")
        return (out if isinstance(out, Tensor) else out[0])[:, n:]

    def _rotation(self, index: int, hidden: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (1, stop - start, D) of a layer at these positions."""
        kind = (self.config.layer_types[index],) if self.rotates_by_type else ()
        return self._stack.rotary_emb(hidden, torch.arange(start, stop, device=hidden.device)[None], *kind)

    def _reader(self, z, stride):
        """As in `WithMemory`. There is no cache if a layer takes none, or if a rotary embedding of type "longrope"
        changes the rotation of all keys once the window is long."""
        if "longrope" in kinds_of_rotation(self.config) or not all(map(layer_cache_name, self._layers)):
            return super(WithMemory, self)._reader(z, stride)
        return super()._reader(z, stride)


def _first(stack: nn.Module, names: Sequence[str]) -> str:
    """The first of these names that a part of `stack` has; "" if there is none."""
    return next((name for name in names if isinstance(getattr(stack, name, None), nn.Module)), "")


def kinds_of_rotation(config) -> set[str]:
    """The types of a model's rotary embedding, such as "default" or "yarn"; Gemma has one for each kind of layer."""
    settings = getattr(config, "rope_parameters", None) or {}
    return {one.get("rope_type") for one in (settings, *settings.values()) if isinstance(one, dict)}


def _rotated(layer: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (B, H, T, D) rotated by the rotary embedding of the layer's family."""
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


@lru_cache
def recurrent_class(base: type) -> type:
    """The class of a decoder with a recurrence module, from its class in transformers, such as LlamaForCausalLM."""
    return type(f"Recurrent{base.__name__}", (Recurrent, MemoryDecoder, base), {
        "__doc__": f"{base.__name__} with recurrence.", "__module__": __name__})


def __getattr__(name: str) -> type:  # pickle looks for the class of a model here
    import transformers

    for start, made in (("Recurrent", recurrent_class), ("Memory", memory_class)):
        if name.startswith(start) and (base := getattr(transformers, name.removeprefix(start), None)):
            return made(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def decoder_of(name_or_path) -> tuple:
    """The config of a checkpoint (hub name or folder) and its class in transformers. Raises ReproError for a model that
    is not a decoder."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, AutoConfig

    kind = config_of(None, name_or_path).get("model_type")
    known = isinstance(kind, str) and kind in CONFIG_MAPPING_NAMES
    config = AutoConfig.from_pretrained(str(name_or_path)) if known else None
    decodes = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    # Without this setting, BERT and similar models see later tokens even in their class for causal language modeling.
    if not decodes or type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise ReproError(f"{name_or_path} is a checkpoint of {kind}, which is no decoder; {KNOWN}.")
    return config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def plain_decoder(name_or_path) -> tuple:
    """`decoder_of` for a model that can be given a memory. Raises ReproError for any other model."""
    config, plain = decoder_of(name_or_path)
    if getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
        raise ReproError(f"{name_or_path} is a mixture of experts ({config.model_type}), whose layers cannot be given "
                         "h_prev; give Llama, Mistral, Qwen or Gemma without experts.")
    return config, plain


@contextmanager
def of_family(kind: str) -> Iterator[None]:
    """Outside of FAMILIES, turn every error into a ReproError: such a model may need something unknown here."""
    try:
        yield
    except Exception as error:
        if kind in FAMILIES or isinstance(error, ReproError):
            raise
        raise ReproError(f"a model of type {kind} cannot be read layer by layer ({type(error).__name__}: "
                         f"{short(str(error))}); {KNOWN}.") from error


@torch.no_grad()
def check_reading(model: MemoryDecoder) -> None:
    """Check a model outside of FAMILIES. Raises ReproError if its layers, one after the other, do not reproduce the
    plain model, which may do more than its layers, or if it cannot read two windows with its memory."""
    kind = model.config.model_type
    if kind in FAMILIES:
        return
    with of_family(kind):
        ids = torch.randint(model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(0))
        ids = ids.to(model.device)
        with _plain_attention(model):
            expected = model.base_model(ids, use_cache=False).last_hidden_state
        hidden = model._embedded(ids)
        for index in range(model.config.num_hidden_layers):
            hidden = model._layer(index, hidden)
        hidden = model._normed(hidden)[:, -ids.shape[1]:]
        off = (hidden - expected).abs().max() / expected.abs().max()
        if not off < torch.finfo(model.dtype).eps**0.5:
            raise ReproError(f"a model of type {kind} does more than its layers, one after the other: without a memory "
                             f"its states would be off by {off:.1%}; {KNOWN}.")
        model(ids, window=4)


@contextmanager
def _plain_attention(model: MemoryDecoder) -> Iterator[None]:
    """Inside the `with` block, the base of `model` uses transformers' attention, as the plain model does."""
    own = model.config._attn_implementation
    model.config._attn_implementation = "eager"
    try:
        yield
    finally:
        model.config._attn_implementation = own
