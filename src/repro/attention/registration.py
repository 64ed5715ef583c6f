"""Our patterns inside any model of transformers: `attn_implementation="repro_sliding"`, or a name of your own."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, fields
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
)
from transformers.modeling_utils import AttentionInterface, PreTrainedModel

from repro.attention.compiled import attend_in_graph, number, real_keys
from repro.attention.implementations import autocast
from repro.attention.patterns import PATTERNS, Full, Pattern, SlidingWindow, looking_back
from repro.attention.position_mask import BOTH_WAYS, KIND, attend_at, documents_of, position_mask
from repro.attention.positions import check_length
from repro.errors import ReproError
from repro.hf_compat import cache_in

PREFIX = "repro_"
PLAIN = causal_mask_function, bidirectional_mask_function
UNKNOWN_TO_US = "softcap", "position_bias", "s_aux"  # what some models add to their scores
LAYERS = "full_attention", "sliding_attention"  # the kinds of layers that we know
UNSAID = -1  # the window of a model that has no windows of its own
ALONE = "falcon", "data2vec-vision"  # model types that call sdpa themselves, without asking transformers
KEPT = "attn_implementation", "repro_attention"  # settings of a saved config; a model's inner parts lose the first
LONGEST = 4096  # positions up to which a model's attention probabilities are returned

LayerPattern = Pattern | Sequence[Pattern]  # of a layer: one pattern, or one for each head
_asked_for = ContextVar("attention probabilities", default=False)  # some models do not pass this on to their layers
_own: dict[str, LayerPattern | Callable[..., LayerPattern]] = {}
_given: dict[str, int] = {}  # how often each of these names was registered
_ours: dict[str, list[str]] = {}  # the names of our patterns, each with the settings that it reads in a model's config


def register(name: str | None = None, pattern: LayerPattern | Callable[..., LayerPattern] | None = None) -> None:
    """Make patterns available to transformers as `attn_implementation`.

    register() makes every pattern with a name available as "repro_<name>": full, causal, sliding, strided, fixed,
    block_local, global, and those that your program has defined so far. A pattern's settings come from the model's
    config, as <name>_<setting>: sliding_window and sliding_dilation, strided_stride, fixed_stride and fixed_summary,
    block_local_block, global_positions. In an encoder a sliding window looks both ways. A model that has windows of
    its own (Mistral, Gemma 3, Qwen 2, ModernBERT) keeps them under "repro_sliding", in the layers that have one.

    register(name, pattern) makes `pattern` available under a name of your own: one Pattern, a list with a Pattern for
    each head, or a function(config, layer) that returns either; `layer` is the index of the layer from 0. You can
    register a name again, or change settings that a function reads from the config: a compiled model is then compiled
    again. Only changes to numbers, strings and lists of them in the config itself are noticed; anything else that a
    function reads stays as it was at compilation.

    In a causal model, no query sees later keys, except under a pattern meant for it (`Prefix`). Attention to an encoder
    (cross-attention) stays as it is. A mask (B, 1, N, N) given to the model replaces the pattern, as in transformers; a
    mask (B, 1, 1, N) hides padding. Under autocast, attention is computed in the autocast dtype, as PyTorch's own is. A
    text longer than the model's learned positions raises ReproError, compiled or not; see `check_length`. A model is
    saved with the name of its attention. Before loading it, a program has to call register() for one of our names, or
    register(name, pattern) for its own; otherwise transformers raises a ValueError that the name is not supported.

    Raises ReproError for one argument without the other, and for a name that is taken. Also raises it for a model that
    would not call our attention, when it is built or when `set_attn_implementation` is called. Models that add unknown
    terms to their scores (softcap, sinks, biases by position) or have a mask for each head (Doge) are refused at their
    first forward pass.

    Two public methods of PreTrainedModel are wrapped, because transformers offers no hook there. It calls
    `get_correct_attn_implementation` once for every model that is built, loaded or switched to another attention: the
    wrapper stores the name for saving, and adds hooks that check text lengths and prepare caches.
    `set_attn_implementation` only warns about a model that computes its attention by itself: the wrapper refuses it.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> register("near-and-first", SlidingWindow(8) | Global([0]))
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_layer=1, n_head=2, n_embd=8))
    >>> model.set_attn_implementation("near-and-first")
    >>> model(torch.zeros(1, 20, dtype=torch.int64)).logits.shape
    torch.Size([1, 20, 9])
    """
    if (name is None) != (pattern is None):
        raise ReproError(f"name is {name!r} and pattern is {pattern!r}; give both, or neither for those of ours.")
    if name is not None:
        taken = name.startswith(PREFIX) or name not in _own and name in AttentionInterface().valid_keys()
        if taken or isinstance(pattern, type) or not (_is_layer_pattern(pattern) or callable(pattern)):
            raise ReproError(f"name is {name!r}, pattern {pattern!r}; the name must be new and not start with {PREFIX},"
                             " the pattern be a Pattern, one for each head, or a function(config, layer).")
        _own[name], _given[name] = pattern, _given.get(name, 0) + 1
    if name is None:
        _ours.update({PREFIX + short: [f"{short}_{setting.name}" for setting in fields(kind)]
                      for short, kind in PATTERNS.items()})
    for one in _ours if name is None else [name]:
        AttentionInterface.register(one, partial(_attention, one))
        AttentionMaskInterface.register(one, partial(_mask, one))
    for method, ours in ("get_correct_attn_implementation", _prepared), ("set_attn_implementation", _set):
        if getattr(PreTrainedModel, method) is not ours:
            ours.original = getattr(PreTrainedModel, method)
            setattr(PreTrainedModel, method, ours)


def pattern_of(name: str, config, layer: int | None, causal: bool, window: int | None = UNSAID) -> LayerPattern:
    """The pattern of a layer under `attn_implementation=name`. It is decided only here.

    layer: its index from 0. window: what a model with windows of its own would pass to FlashAttention here: None for no
    window, else one more than the keys on a side. Raises ReproError for a config that lacks a setting, and for a
    model with unknown kinds of layers.
    """
    _check_layers(name, config)
    if name in _own:
        pattern = _registered(name, config, layer)
    else:
        kind = PATTERNS[name.removeprefix(PREFIX)]
        if kind is SlidingWindow and _is_full(name, config, layer, window):
            kind = Full
        settings = _settings(name, kind, config)
        if kind is SlidingWindow:
            settings["causal"] = causal
            if window not in (UNSAID, None):
                settings["window"] = window if causal else 2 * (window - 1)
        pattern = kind(**settings)
    if not causal:
        return pattern
    return looking_back(pattern) if isinstance(pattern, Pattern) else [looking_back(one) for one in pattern]


def _check_layers(name: str, config) -> None:
    """Raise ReproError for a model with unknown kinds of layers: an indexer, say, reads the mask before we do."""
    if foreign := sorted(set(getattr(config, "layer_types", None) or ()) - set(LAYERS)):
        raise ReproError(f"layer_types of this {config.model_type} has {foreign[0]}; '{name}' knows only "
                         f"{' and '.join(LAYERS)}.")


def _registered(name: str, config, layer: int | None) -> LayerPattern:
    """The pattern registered under a custom name. Raises ReproError for a function that returns no pattern."""
    pattern = _own[name]
    if isinstance(pattern, (Pattern, Sequence)):
        return pattern
    try:
        pattern = pattern(config, layer)
    except (LookupError, TypeError) as error:
        raise ReproError(f"the function of '{name}' gives layer {layer} no pattern: {error}.") from error
    if not _is_layer_pattern(pattern):
        raise ReproError(f"the function of '{name}' gives layer {layer} {pattern!r}; it has to give a Pattern, or one "
                         "for each head.")
    return pattern


def _is_layer_pattern(pattern) -> bool:
    """Whether this is a pattern, or one for each head."""
    return isinstance(pattern, Pattern) or (isinstance(pattern, Sequence) and len(pattern) > 0
                                            and all(isinstance(one, Pattern) for one in pattern))


def _is_full(name: str, config, layer: int | None, window: int | None) -> bool:
    """Whether a layer has no window, in a model that mixes layers with and without one."""
    types = getattr(config, "layer_types", None)
    if types and LAYERS[1] not in types:
        raise ReproError(f"layer_types of this {config.model_type} names no {LAYERS[1]}, so '{name}' would change "
                         "nothing; set it for the layers that should have a window.")
    if types and layer is not None:
        return types[layer] == LAYERS[0]
    if window != UNSAID:
        return window is None and getattr(config, "sliding_window", None) is not None
    if types:
        raise ReproError(f"this {config.model_type} mixes layers, but they do not say which they are; '{name}' cannot "
                         "know which have a window.")
    return False


def _settings(name: str, kind: type[Pattern], config) -> dict:
    """The settings of a pattern in the config. Raises ReproError if one is missing."""
    settings, short = {}, name.removeprefix(PREFIX)
    for setting in fields(kind):
        value = getattr(config, f"{short}_{setting.name}", None)
        if value is not None:
            settings[setting.name] = value
        elif setting.default is MISSING:
            raise ReproError(f"{short}_{setting.name} is missing in the config; attn_implementation '{name}' needs it, "
                             f"as the {setting.name} of {kind.__name__}.")
    return settings


@torch.compiler.assume_constant_result
def _number(name, config, layer, causal, window, settings) -> int:
    """The number of a layer's pattern, found once for a compiled graph; a change of `settings` recompiles it."""
    return number(pattern_of(name, config, layer, causal, window))


def _mask(name, batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
          attention_mask=None, config=None, device=None, use_vmap=False, local_size=None, **rest) -> Tensor | None:
    """The mask that the attention function gets: `position_mask`, or None for whole sequences without padding."""
    _check_layers(name, config)
    if config is not None and name not in _own and not torch.compiler.is_compiling():
        kind = PATTERNS[name.removeprefix(PREFIX)]
        kind(**_settings(name, kind, config))  # bad settings raise here, not later in a cache
    if use_vmap or mask_function.__name__ == "or_mask":
        raise ReproError(f"this model adds its own mask to its attention (images, prefixes); '{name}' "
                         "does not know it. Give the model a mask (B, 1, N, N), or take attn_implementation='sdpa'.")
    whole = isinstance(q_offset, int) and q_offset == kv_offset == 0 and q_length == kv_length
    neighbours = None
    if whole and mask_function not in PLAIN and (local_size is None or local_size > 1):
        def neighbours(b, i):  # packed documents, or chunks, do not see past their own start
            return mask_function(b, torch.zeros_like(b), i, (i - 1).clamp(min=0))
    where = position_mask(batch_size, q_length, kv_length, q_offset, kv_offset, neighbours, attention_mask, device)
    two_texts = getattr(config, "is_encoder_decoder", False)  # then its dtype matters: see `_is_cross`
    if whole and not two_texts and not torch.compiler.is_compiling() and not where[:, :, 0].any():
        return None
    return where.to(BOTH_WAYS) if mask_function is bidirectional_mask_function else where


def _attention(name, module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, is_causal=None,
               **rest):
    """Attention (B, H, N, D) -> (B, N, H, D) as transformers calls it."""
    for setting in UNKNOWN_TO_US:
        if rest.get(setting) is not None:
            raise ReproError(f"{type(module).__name__} sets {setting}, which '{name}' does not know.")
    query, key, value = autocast(query, key, value)
    config, n = module.config, query.shape[2]
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    where = attention_mask if attention_mask is not None and attention_mask.dtype in (KIND, BOTH_WAYS) else None
    if attention_mask is not None and attention_mask.ndim == 4 and attention_mask.shape[1] > 1:
        raise ReproError(f"{type(module).__name__} has masks {tuple(attention_mask.shape)}, one for each head, which "
                         f"'{name}' does not know; a mask is (B, 1, N, N).")
    of_padding = where is None and attention_mask is not None and attention_mask.shape[-2] == 1 < n
    if of_padding and not _is_cross(module, None):
        where = _of_padding(attention_mask, name, module, query, key)
    if _is_cross(module, where) or attention_mask is not None and where is None or where is None and n != key.shape[2]:
        mask = attention_mask if where is None else (documents_of(where, query, key) >= 0)[:, None, None]

        def attend(query, key, value, dropout):
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scaling)
    else:
        if is_causal is None:  # models like LayoutLM do not pass it, but do pass a mask
            is_causal = getattr(module, "is_causal", attention_mask is None) or getattr(module, "is_decoder", False)
        causal = is_causal and getattr(config, "is_causal", True)
        asked = name, config, getattr(module, "layer_idx", None), causal, rest.get("sliding_window", UNSAID)

        def attend(query, key, value, dropout):
            if not torch.compiler.is_compiling():
                return attend_at(query, key, value, pattern_of(*asked), where, scaling, dropout)
            pattern = _number(*asked, _watched(name, config))
            seed = torch.randint(2**62, ()) if dropout else torch.zeros((), dtype=torch.int64)
            return attend_in_graph(query, key, value, where, pattern, scaling, float(dropout), seed)
    if not (rest.get("output_attentions") or not torch.compiler.is_compiling() and _asked_for.get()):
        return attend(query, key, value, dropout).transpose(1, 2).contiguous(), None
    if key.shape[2] > LONGEST:
        raise ReproError(f"output_attentions asks for {n} x {key.shape[2]} probabilities a head; '{name}' returns "
                         f"them for at most {LONGEST} keys.")
    shares = attend(query, key, torch.eye(key.shape[2]).to(key).expand(*key.shape[:3], -1), dropout)
    return (shares @ value).transpose(1, 2).contiguous(), shares  # gradients flow through these, as in eager attention


def _of_padding(mask: Tensor, name: str, module, query: Tensor, key: Tensor) -> Tensor:
    """The `position_mask` for a mask (B, 1, 1, N), which a model that makes its own (LayoutLM) hides padding with."""
    real = _real_keys(mask, name, module) if mask.is_floating_point() else mask
    n, keys = query.shape[2], key.shape[2]
    return position_mask(len(query), n, keys, keys - n, real=real[..., 0, :].flatten(0, -2), device=query.device)


def _real_keys(mask: Tensor, name: str, module) -> Tensor:
    """Which keys an additive mask lets through; all layers of a forward pass share one check of the mask."""
    if torch.compiler.is_compiling() or mask.is_inference():  # then tensors do not count the writes into them
        return real_keys(mask.detach(), type(module).__name__, name)
    version, real = getattr(mask, "repro_real_keys", (None, None))
    if version != mask._version:
        real = real_keys(mask.detach(), type(module).__name__, name)
        mask.repro_real_keys = mask._version, real
    return real


def _watched(name: str, config) -> tuple:
    """Everything except the layer that determines a pattern: if it changes, a compiled graph is compiled again."""
    if name in _own:
        plain = int, float, str, list, tuple
        return _given[name], *[value for value in vars(config).values() if isinstance(value, plain)]
    return tuple([getattr(config, setting, None) for setting in _ours[name]])


def _is_cross(module, where: Tensor | None) -> bool:
    """Whether keys come from an encoder: modules show it in different ways, those of PEGASUS-X only by the mask."""
    return (getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__
            or getattr(module, "is_decoder", False) and not module.is_causal
            and (where is None or where.dtype == BOTH_WAYS))


def _prepared(model, requested_attention: str | None, *arguments, **named) -> str:
    """The implementation that a model uses; if it is one of ours, the model is prepared for it.

    The model's config stores the name, which transformers would not save. The stored name applies if none is requested:
    when a model for images is loaded, none is requested for the text model inside it. Before every forward pass, text
    lengths are checked (transformers looks up positions before it asks for a mask), and caches are made to keep the
    keys that the pattern needs.
    """
    kept = getattr(model.config, KEPT[1], None)
    name = _prepared.original(model, requested_attention or kept, *arguments, **named)
    if name in _own or name in _ours:
        _check_that_it_asks(model, name)
        for key in KEPT:
            setattr(model.config, key, name)
        for one in model.modules():
            if isinstance(one, PreTrainedModel) and check_length not in one._forward_pre_hooks.values():
                one.register_forward_pre_hook(check_length, with_kwargs=True)
                one.register_forward_pre_hook(_before_reading, with_kwargs=True)
    else:
        for key in KEPT:
            if hasattr(model.config, key):
                delattr(model.config, key)
    return name


def _set(model, attn_implementation: str | dict, *arguments, **named) -> None:
    """`set_attn_implementation` that refuses a model which would only warn and keep its own attention."""
    parts = attn_implementation if isinstance(attn_implementation, dict) else {None: attn_implementation}
    for part, name in parts.items():
        if name not in _own and name not in _ours:
            continue
        chosen = model.config if part == "" else getattr(model.config, part or "", None)
        for one in model.modules():
            if isinstance(one, PreTrainedModel) and (part is None or one.config is chosen):
                _check_that_it_asks(one, name)
    return _set.original(model, attn_implementation, *arguments, **named)


def _check_that_it_asks(model, name: str) -> None:
    """Raise ReproError for a model that computes its attention by itself: it would silently ignore the pattern.

    transformers checks the same attributes before it gives a model PyTorch's attention.
    """
    asks = any(getattr(model, f"_supports_{what}", False) for what in ("attention_backend", "sdpa", "flex_attn"))
    if not asks or model.config.model_type in ALONE:
        advice = " Replace its layers by LongformerSelfAttention." if model.config.model_type == "longformer" else ""
        raise ReproError(f"{type(model).__name__} computes its attention by itself and would not ask for '{name}'; "
                         f"take a model of another family, or set it for a part that can.{advice}")


def _before_reading(model, inputs: tuple, named: dict) -> None:
    """Record whether attention probabilities are requested, and make a cache that is still empty keep every key.

    Otherwise the cache of a model with windows keeps only the last `sliding_window` keys. These are enough for its own
    window, but not for a dilated window, any other pattern, or an encoder's keys.
    """
    if torch.compiler.is_compiling():
        return
    asked = named.get("output_attentions")
    _asked_for.set(bool(getattr(model.config, "output_attentions", False) if asked is None else asked))
    cache, name = cache_in(named), getattr(model.config, "attn_implementation", None)
    if cache is None or name is None:
        return
    if isinstance(cache, EncoderDecoderCache):
        _widen(cache.cross_attention_cache)
        cache = cache.self_attention_cache
    dilation, window = (getattr(model.config, f"sliding_{setting}", None) or 0 for setting in ("dilation", "window"))
    if name != PREFIX + "sliding" or dilation > 1 or window == 1:  # a cache layer for one key gets its length wrong
        _widen(cache)


def _widen(cache) -> None:
    layers = getattr(cache, "layers", ())
    for k, layer in enumerate(layers):
        if type(layer) is DynamicSlidingWindowLayer and not layer.is_initialized:
            layers[k] = DynamicLayer()
