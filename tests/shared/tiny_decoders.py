"""Tiny decoders of transformers with rotary positions, with random weights, and one of their layers written out."""

from functools import cache

import torch
from torch import nn

SIZES = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 0}
FAMILIES = {"llama": {}, "mistral": {"sliding_window": 5}, "qwen2": {}, "qwen3": {},
            "gemma3_text": {"sliding_window": 5, "query_pre_attn_scalar": 9, "layer_types": [
                "sliding_attention", "full_attention", "sliding_attention"]}}


def text(n, batch=2, seed=0):
    """Token ids (batch, n) of such a model."""
    return torch.randint(3, 29, (batch, n), generator=torch.Generator().manual_seed(seed))


def config(family, **changes):
    """The config of a tiny decoder."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **SIZES | FAMILIES.get(family, {}) | changes)


@cache
def plain_class(family):
    """The class of a decoder in transformers."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config(family))]


def shaken(model, dtype=torch.float64):
    """The model in evaluation mode, every weight random and large enough to matter."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        weight.data = 1 + 0.1 * noise if "norm" in name else 0.3 * noise
    return model.to(dtype).eval()


def layer_by_hand(model, index, hidden, before=None, mix=None, state=(), everywhere=None):
    """A layer (with the final norm, if it is the last) on (B, T, d), as `Memory.read` describes it. `before` goes
    through the norm and the projections as tokens would; rotations are complex numbers, attention is dense."""
    config, layer = model.config, model.base_model.layers[index]
    part, size = layer.self_attn, config.head_dim if config.model_type != "qwen2" else 4
    n_before = 0 if before is None else before.shape[1]
    normed = layer.input_layernorm(hidden if before is None else torch.cat([before, hidden], 1))
    q, k, v = (project(normed).unflatten(-1, (-1, size)).transpose(1, 2)
               for project in (part.q_proj, part.k_proj, part.v_proj))
    if config.model_type in ("qwen3", "gemma3_text"):
        q, k = part.q_norm(q), part.k_norm(k)
    kind = config.layer_types[index] if getattr(config, "layer_types", None) else None
    of_rope = config.rope_parameters[kind] if config.model_type == "gemma3_text" else config.rope_parameters
    position = torch.arange(-n_before, hidden.shape[1])
    angle = position[:, None].float() * of_rope["rope_theta"]**(-torch.arange(0, size, 2).float() / size)
    turn = torch.complex(angle.cos().double(), angle.sin().double())
    turned = [torch.view_as_real(torch.complex(*x.double().chunk(2, -1)) * turn).transpose(-1, -2).flatten(-2)
              for x in (q, k)]
    queries, keys, values = turned[0][:, :, n_before:], *(
        torch.stack([x[:, h // 2] for h in range(4)], 1) for x in (turned[1], v))
    scores = queries @ keys.transpose(-1, -2) / (3 if config.model_type == "gemma3_text" else size**0.5)
    i, j = position[n_before:, None], position[None]
    seen = j <= i
    if config.model_type == "mistral" or (kind == "sliding_attention" and config.model_type == "gemma3_text"):
        far = n_before if everywhere is None else everywhere
        seen = seen & ((i - j < config.sliding_window) | (j + n_before < far))
    out = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values
    if mix is not None:
        out, kept = mix(q, k, v, out, *state)
    out = part.o_proj(out.transpose(1, 2).flatten(2))
    if config.model_type == "gemma3_text":
        hidden = hidden + layer.post_attention_layernorm(out)
        hidden = hidden + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(hidden)))
    else:
        hidden = hidden + out
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    if index == config.num_hidden_layers - 1:
        hidden = model.base_model.norm(hidden)
    return hidden if mix is None else (hidden, kept)


def window_by_hand(model, ids, state, stride):
    """The hidden states and the next state of a window, by the memory of a model and `layer_by_hand`."""
    if model.n_opening:
        ids = nn.functional.pad(ids, (1, 0), value=model.config.opening_token)
    scale = 4 if model.config.model_type == "gemma3_text" else 1  # the root of the width
    hidden = model.base_model.embed_tokens.weight[ids] * scale

    def layer(index, hidden, *args, **kwargs):
        return layer_by_hand(model, index, hidden, *args, **kwargs)

    return model.memory.read(layer, hidden, state, stride, None)
