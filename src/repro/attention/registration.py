"""Our patterns inside any model of transformers: `attn_implementation="repro_sliding"` and so on."""

from dataclasses import MISSING, fields
from functools import partial
from inspect import getclosurevars

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import cache_utils
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)
from transformers.modeling_utils import AttentionInterface, PreTrainedModel

from repro.attention.implementations import attend
from repro.attention.patterns import BlockLocal, Causal, Fixed, Full, Global, Pattern, SlidingWindow, Strided
from repro.attention.positions import check_length
from repro.errors import ReproError

PREFIX = "repro_"
PATTERNS = {"full": Full, "causal": Causal, "sliding": SlidingWindow, "strided": Strided, "fixed": Fixed,
            "block_local": BlockLocal, "global": Global}
PLAIN = causal_mask_function, bidirectional_mask_function
UNKNOWN_TO_US = "softcap", "position_bias", "s_aux"  # what some models add to their scores


def register() -> None:
    """Make every pattern available to transformers as `attn_implementation="repro_<name>"`.

    Names: full, causal, sliding, strided, fixed, block_local, global. A pattern's settings come from the model's
    config, as <name>_<setting>: sliding_window and sliding_dilation, strided_stride, fixed_stride and fixed_summary,
    block_local_block, global_positions. In a causal model every pattern is causal; in an encoder a sliding window looks
    both ways. Attention to an encoder (cross-attention) stays as it is. With a cache every key is kept.
    A mask (B, 1, N, N) that is given to the model takes the pattern's place, as it does in transformers.
    A text beyond the model's learned positions raises ReproError.
    """
    for name in PATTERNS:
        AttentionInterface.register(PREFIX + name, partial(_attention, name))
        AttentionMaskInterface.register(PREFIX + name, partial(_mask, name))
    if cache_utils.get_layer_types_and_kwargs is not _keep_every_key:
        _keep_every_key.original = cache_utils.get_layer_types_and_kwargs
        cache_utils.get_layer_types_and_kwargs = _keep_every_key
    if PreTrainedModel.get_correct_attn_implementation is not _check_lengths:
        _check_lengths.original = PreTrainedModel.get_correct_attn_implementation
        PreTrainedModel.get_correct_attn_implementation = _check_lengths


def pattern_from_config(name: str, config, causal: bool) -> Pattern:
    """The pattern called `name` with the settings of a model's config.

    Raises ReproError when the config lacks one.
    """
    kind, settings = PATTERNS[name], {}
    for setting in fields(kind):
        value = getattr(config, f"{name}_{setting.name}", None)
        if value is not None:
            settings[setting.name] = value
        elif setting.default is MISSING:
            raise ReproError(f"{name}_{setting.name} is missing in the config; attn_implementation '{PREFIX}{name}' "
                             f"needs it, as the {setting.name} of {kind.__name__}.")
    if kind is SlidingWindow:
        settings["causal"] = causal
    pattern = kind(**settings)
    return pattern & Causal() if causal and kind in (Full, Global) else pattern


def _mask(name, batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
          attention_mask=None, config=None, **rest) -> Tensor | None:
    """What the attention function gets as its mask: (B, N) bool padding or None for whole sequences, else 4-D."""
    rest |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask_function = _without_window(mask_function)
    whole = isinstance(q_offset, int) and q_offset == kv_offset == 0 and q_length == kv_length
    if whole and mask_function in PLAIN:
        return None if attention_mask is None or attention_mask.all() else attention_mask
    if rest.get("local_size") and mask_function not in PLAIN:
        raise ReproError("sliding_window is set together with packed sequences or a mask function of the model's own; "
                         f"'{PREFIX}{name}' cannot tell them apart. Pass attention_mask, or one sequence at a time.")
    mask = sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **rest)
    zero = torch.zeros((), dtype=torch.long, device=mask.device)
    causal = not mask_function(zero, zero, zero, zero + 1)
    if not causal and not whole:
        return mask  # cross-attention
    i = torch.arange(q_length, device=mask.device) + q_offset
    j = torch.arange(kv_length, device=mask.device) + kv_offset
    return mask & pattern_from_config(name, config, causal)(i[:, None], j)


def _without_window(mask_function):
    """Where transformers itself made a sliding window of the config's, what it laid that over: ours comes instead."""
    laid = getclosurevars(mask_function).nonlocals.get("mask_functions", ())
    overlaid = len(laid) == 2 and laid[0].__qualname__.startswith("sliding_window_") and laid[1] in PLAIN
    return laid[1] if overlaid else mask_function


def _attention(name, module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, is_causal=None,
               **rest):
    """Attention (B, H, N, D) -> (B, N, H, D) as transformers calls it."""
    if dropout:
        raise ReproError(f"attention dropout is {dropout}; '{PREFIX}{name}' has none. Set it to 0 in the config.")
    for setting in UNKNOWN_TO_US:
        if rest.get(setting) is not None:
            raise ReproError(f"{type(module).__name__} sets {setting}, which '{PREFIX}{name}' does not know.")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if _is_cross(module, query, key) or attention_mask is not None and attention_mask.ndim == 4:
        if attention_mask is not None and attention_mask.ndim == 2:
            attention_mask = attention_mask[:, None, None]
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling)
    else:
        causal = module.is_causal if is_causal is None else is_causal
        pattern = pattern_from_config(name, module.config, causal and getattr(module.config, "is_causal", True))
        out = attend(query, key, value, pattern, scale=scaling, key_mask=attention_mask)
    return out.transpose(1, 2).contiguous(), None


def _is_cross(module, query: Tensor, key: Tensor) -> bool:
    """Whether keys come from an encoder: modules say so in different ways."""
    return (getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__
            or getattr(module, "is_decoder", False) and not module.is_causal or query.shape[2] != key.shape[2])


def _keep_every_key(config):
    """Cache layers of full length: by itself transformers reads `sliding_window` as leave to drop older keys.

    A dilated window still needs them, and a decoder needs all of its encoder's.
    """
    types, settings = _keep_every_key.original(config)
    if not str(config._attn_implementation).startswith(PREFIX):
        return types, settings
    kept = ["full_attention" if kind == "sliding_attention" else kind for kind in types]
    return kept, [{} if kind == "sliding_attention" else one for kind, one in zip(types, settings, strict=True)]


def _check_lengths(model, *arguments, **named) -> str:
    """The implementation that a model takes. Where it is one of ours, texts are measured before they are read.

    transformers looks up a token's position before it asks for a mask; a mask function comes too late for that.
    """
    name = _check_lengths.original(model, *arguments, **named)
    if name.startswith(PREFIX):
        for one in model.modules():
            if isinstance(one, PreTrainedModel) and check_length not in one._forward_pre_hooks.values():
                one.register_forward_pre_hook(check_length, with_kwargs=True)
    return name
