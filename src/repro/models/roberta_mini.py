"""roberta-mini: RoBERTa's architecture (Liu et al. 2019), fresh weights, any size."""

from pathlib import Path

from repro.checked import checked
from repro.checkpoints import load_whole
from repro.errors import ReproError, check_number, check_whole

LARGEST = 1e30  # largest amplitude of the waves, well within float32
START, PAD, END, UNKNOWN = 0, 1, 2, 3  # ids of its special tokens; <mask> has the last id


@checked
def roberta_mini(n_layer: int, n_embd: int, n_head: int, vocab_size: int, n_positions: int = 512,
                 sinusoids: float | None = None):
    """An untrained `RobertaForMaskedLM` without dropout, for sequences of up to `n_positions` tokens.

    As in RoBERTa, positions count from the padding id on, so there are two more rows than positions. sinusoids: the
    amplitude, 0 to 1e30, of the sinusoids (Vaswani et al. 2017, section 3.5) with which the learned positions are
    initialized; None: random, as in RoBERTa. With few training tokens, a model with random positions does not learn to
    look at its neighbors.
    Raises ReproError if the width is not a multiple of the heads, and for sizes below 1.

    >>> roberta_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9).config.max_position_embeddings
    514
    """
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    for name, size in (("n_layer", n_layer), ("n_embd", n_embd), ("n_head", n_head), ("vocab_size", vocab_size),
                       ("n_positions", n_positions)):
        check_whole(size, name)
    if sinusoids is not None:
        check_number(sinusoids, "sinusoids", below=LARGEST)
    if n_embd % n_head:
        raise ReproError(f"n_embd is {n_embd} and n_head {n_head}; the width must be a multiple of the heads.")
    model = RobertaForMaskedLM(RobertaConfig(
        num_hidden_layers=n_layer, hidden_size=n_embd, num_attention_heads=n_head, intermediate_size=4 * n_embd,
        vocab_size=vocab_size, max_position_embeddings=n_positions + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        bos_token_id=START, pad_token_id=PAD, eos_token_id=END))
    if sinusoids:
        with torch.no_grad():
            model.roberta.embeddings.position_embeddings.weight[PAD + 1:] = sinusoids * waves(n_positions, n_embd)
    return model


def waves(n_positions: int, width: int):
    """Positional encodings (n_positions, width), of amplitude 1: sine and cosine of each wavelength alternate, from
    2 pi to 10,000 times that (Vaswani et al. 2017, section 3.5).

    >>> waves(2, 4).round(decimals=2).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]]
    """
    import torch

    angles = torch.arange(n_positions)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


@checked
def roberta_parameters(n_layer: int, n_embd: int, vocab_size: int, n_positions: int = 512) -> int:
    """Number of weights of a `roberta_mini`: biases and layer norms included, the tied output matrix counted once.

    Raises ReproError for sizes below 1.

    >>> f"{roberta_parameters(n_layer=12, n_embd=768, vocab_size=50_265):,}"
    '124,697,433'
    """
    for name, size in (("n_layer", n_layer), ("n_embd", n_embd), ("vocab_size", vocab_size),
                       ("n_positions", n_positions)):
        check_whole(size, name)
    block = 12 * n_embd**2 + 13 * n_embd
    embeddings = (vocab_size + n_positions + 2 + 1) * n_embd + 2 * n_embd  # one row of token types
    return n_layer * block + embeddings + n_embd**2 + 3 * n_embd + vocab_size


@checked
def load_masked_lm(name_or_folder: str | Path):
    """Load a RoBERTa checkpoint (hub name or folder) with fp32 weights.

    Raises ReproError for a checkpoint that is missing, of another kind, damaged or incomplete.

    >>> _ = save_model(roberta_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> type(load_masked_lm(folder / "base")).__name__
    'RobertaForMaskedLM'
    """
    import torch
    from transformers import RobertaForMaskedLM

    return load_whole(RobertaForMaskedLM.from_pretrained, "roberta", name_or_folder, "FacebookAI/roberta-base",
                      dtype=torch.float32)
