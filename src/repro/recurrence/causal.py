"""Causal attention in which every position of a window also sees keys and values from before the window."""

import torch
from torch.nn import functional as F
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from repro.errors import ReproError

ATTENTION = "repro_memory"
SCORES = "softcap", "s_aux", "position_bias", "head_mask", "attention_mask"  # arguments that change the scores


def attention_with_previous(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, previous=None,
                            **others):
    """Causal attention (B, H, N, D) in which every position also sees the keys and values of h_prev, if given.

    previous: (key, value), each (B, H, E, D). They are never queries: the E queries put in front only align the
    causal triangle with the longer keys, and their results are dropped. The same holds for keys of a cache, when there
    are more of them than queries. attention_mask: as the plain model has it, also for a cache; replaces the triangle.
    Raises ReproError for a mask with h_prev, which it says nothing about, and `others` that would change the scores.
    """
    check_scores(others if previous is None else others | {"attention_mask": attention_mask})
    if previous is not None:
        key, value = torch.cat([previous[0], key], 2), torch.cat([previous[1], value], 2)
    n_before = key.shape[2] - query.shape[2]
    if query.dtype == torch.bfloat16 and query.device.type == "cpu" and attention_mask is None:
        return plain_products(query, key, value, dropout, scaling).transpose(1, 2), None
    if attention_mask is not None:
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
    elif query.shape[2] == 1:  # generation with a cache: the single new position sees everything
        out = F.scaled_dot_product_attention(query, key, value, None, dropout, scale=scaling)
    else:
        query = F.pad(query, (0, 0, n_before, 0))
        out = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scaling)
        out = out[:, :, n_before:]
    return out.transpose(1, 2), None


def attention_with_memory(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None,
                          sliding_window=None, previous=None, everywhere=None, mix=None, **others):
    """Causal attention of queries (B, H, T, D) to keys and values (B, G, T, D), each shared by H / G heads; in GPT-2 G
    is H. Keys of a cache come first; then there are more keys than queries.

    attention_mask: as the plain model has it; replaces all masks here. previous: keys and values (B, G, E, D) of the
    positions before the window. With a sliding window, every position also sees the first `everywhere` keys, by default
    these E. If `mix(query, key, value, out)` is given, its result replaces `out`.
    Raises ReproError for `others` that would change the scores.
    """
    check_scores(others if everywhere is None else others | {"attention_mask": attention_mask})
    if not getattr(module, "carries", False):
        module.carries = True  # shows that this attention was called; any other would drop the carried state
    shared = query.shape[1] // key.shape[1]
    before = () if previous is None else previous
    keys, values, *before = (x if shared == 1 else x.repeat_interleave(shared, 1) for x in (key, value, *before))
    n_before = before[0].shape[2] if before else 0
    if attention_mask is not None or sliding_window is None or n_before + key.shape[2] <= sliding_window:
        out, _ = attention_with_previous(module, query, keys, values, attention_mask, dropout, scaling, before or None)
        out = out.transpose(1, 2)
    else:
        if before:
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        j = torch.arange(keys.shape[2], device=query.device)
        i = j[-query.shape[2]:, None]
        seen = (j <= i) & ((i - j < sliding_window) | (j < (n_before if everywhere is None else everywhere)))
        out = F.scaled_dot_product_attention(query, keys, values, seen, dropout, scale=scaling)
    if mix is not None:
        out = mix(query, key, value, out)
    return out.transpose(1, 2), None


def check_scores(others: dict) -> None:
    """Raise ReproError if a model passes its attention an argument that changes the scores and is unsupported here."""
    if given := [name for name in SCORES if others.get(name) is not None]:
        raise ReproError(f"this model's attention uses {', '.join(given)}, which is not possible with a carried state; "
                         "give a model without it.")


def plain_products(query, key, value, dropout=0.0, scaling=None):
    """Causal attention (B, H, N, D) as two products and a softmax. Extra keys come first and are visible to all
    queries. In bfloat16 on a CPU, training with it is 1.1 to 1.3 times as fast as with the fused function."""
    scaling = query.shape[-1]**-0.5 if scaling is None else scaling
    n_queries, n_keys = query.shape[2], key.shape[2]
    mask = query.new_full((n_queries, n_keys), -torch.inf).triu(n_keys - n_queries + 1)
    weights = ((query * scaling) @ key.transpose(2, 3) + mask).softmax(-1)
    return F.dropout(weights, dropout) @ value


AttentionInterface.register(ATTENTION, attention_with_memory)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
