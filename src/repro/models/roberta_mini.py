"""roberta-mini: RoBERTa's architecture (Liu et al. 2019), fresh weights, any size."""

from pathlib import Path

from repro.errors import ReproError
from repro.models.checkpoints import load_whole

START, PAD, END, UNKNOWN = 0, 1, 2, 3  # ids of its special tokens; <mask> has the last one


def roberta_mini(n_layer: int, n_embd: int, n_head: int, vocab_size: int, n_positions: int = 512):
    """An untrained `RobertaForMaskedLM` without dropout, for sequences of up to `n_positions` tokens.

    As in RoBERTa, positions count from the id of padding on, so that there are two more rows of them than positions.
    Raises ReproError when the width does not divide among the heads.

    >>> roberta_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9).config.max_position_embeddings
    514
    """
    from transformers import RobertaConfig, RobertaForMaskedLM

    if n_embd % n_head:
        raise ReproError(f"n_embd is {n_embd} and n_head {n_head}; the width must be a multiple of the heads.")
    return RobertaForMaskedLM(RobertaConfig(
        num_hidden_layers=n_layer, hidden_size=n_embd, num_attention_heads=n_head, intermediate_size=4 * n_embd,
        vocab_size=vocab_size, max_position_embeddings=n_positions + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        bos_token_id=START, pad_token_id=PAD, eos_token_id=END))


def roberta_parameters(n_layer: int, n_embd: int, vocab_size: int, n_positions: int = 512) -> int:
    """Number of weights of such a model: biases and layer norms included, the tied output matrix counted once.

    >>> f"{roberta_parameters(n_layer=12, n_embd=768, vocab_size=50_265):,}"
    '124,697,433'
    """
    block = 12 * n_embd**2 + 13 * n_embd
    embeddings = (vocab_size + n_positions + 2 + 1) * n_embd + 2 * n_embd  # one row of token types
    return n_layer * block + embeddings + n_embd**2 + 3 * n_embd + vocab_size


def load_masked_lm(name_or_folder: str | Path):
    """A RoBERTa checkpoint (hub name or folder) with fp32 weights.

    Raises ReproError when there is no such one, and for one of another kind, damaged or without some of its weights.

    >>> _ = save_model(roberta_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> type(load_masked_lm(folder / "base")).__name__
    'RobertaForMaskedLM'
    """
    import torch
    from transformers import RobertaForMaskedLM

    return load_whole(RobertaForMaskedLM.from_pretrained, "roberta", name_or_folder, "FacebookAI/roberta-base",
                      dtype=torch.float32)
