"""The cost of a scored token (Yoshida et al. 2020, Tables 1 and 2, last column)."""

from typing import Any

from repro.errors import check_whole
from repro.windows import check_window


def flops_per_token(n_layer: int, d_model: int, window: int, overlap: int) -> float:
    """Forward floating-point operations per scored token of a GPT-2 style decoder.

    Counted from the architecture: 2 per weight of the matrices inside the blocks (12 d^2 per layer, without
    embeddings, output layer, biases and layer norms) and `2 * window * d_model` per layer for attention. The paper
    prints only results; this count reproduces them: 1.754e8 for GPT-2 small at 300 tokens. With overlap, each scored
    token costs `window / (window - overlap)` read ones. Raises ReproError unless `0 <= overlap < window` and both
    sizes are at least 1.

    >>> f"{flops_per_token(12, 768, window=300, overlap=0):.3e}"
    '1.754e+08'
    >>> flops_per_token(12, 768, 300, 150) / flops_per_token(12, 768, 300, 0)
    2.0
    """
    check_window(window, overlap)
    for name, value in (("n_layer", n_layer), ("d_model", d_model)):
        check_whole(value, name)
    per_read_token = 2 * 12 * n_layer * d_model**2 + 2 * n_layer * window * d_model
    return per_read_token * window / (window - overlap)


def decoder_flops(config: Any, window: int, overlap: int) -> float:
    """`flops_per_token` of a decoder of transformers, from its config: GPT-2, or one with grouped heads and a gated
    feedforward network (Llama, Mistral, Qwen, Gemma).

    >>> from transformers import GPT2Config
    >>> decoder_flops(GPT2Config(), window=300, overlap=0) == flops_per_token(12, 768, window=300, overlap=0)
    True
    """
    if config.model_type == "gpt2":
        return flops_per_token(config.n_layer, config.n_embd, window, overlap)
    check_window(window, overlap)
    d, head = config.hidden_size, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    matrices = 2 * d * (queries + keys) + 3 * d * config.intermediate_size
    return config.num_hidden_layers * (2 * matrices + 2 * window * queries) * window / (window - overlap)
