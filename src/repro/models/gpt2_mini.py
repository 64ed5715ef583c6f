"""gpt2-mini: GPT-2's architecture (Radford et al. 2019), fresh weights, any size."""

from pathlib import Path

from repro.errors import ReproError
from repro.models.checkpoints import reading


def gpt2_mini(n_layer: int, n_embd: int, n_head: int, vocab_size: int, n_positions: int = 1024, bos: int = 0):
    """An untrained `GPT2LMHeadModel` without dropout.

    The texts here are read once or twice, where dropout costs more than it gives. Raises ReproError when the width
    does not divide among the heads.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    if n_embd % n_head:
        raise ReproError(f"n_embd is {n_embd} and n_head {n_head}; the width must be a multiple of the heads.")
    return GPT2LMHeadModel(GPT2Config(
        n_layer=n_layer, n_embd=n_embd, n_head=n_head, vocab_size=vocab_size, n_positions=n_positions,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, "gelu_new", in one operation instead of eight
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=bos, eos_token_id=bos))


def parameters(n_layer: int, n_embd: int, vocab_size: int, n_positions: int = 1024) -> int:
    """Number of weights of such a model: biases and layer norms included, the tied output layer counted once."""
    block = 12 * n_embd**2 + 13 * n_embd
    return n_layer * block + (vocab_size + n_positions) * n_embd + 2 * n_embd


def load_causal_lm(name_or_folder: str | Path, recurrence=None):
    """A GPT-2 checkpoint (hub name or folder), with a recurrence module if `recurrence` is a RecurrenceConfig.

    Its weights are fp32, as whatever they were kept. A folder saved by a RecurrentLM comes back as one. Raises
    ReproError when there is no such checkpoint.
    """
    import torch
    from transformers import GPT2LMHeadModel

    from repro.recurrence.causal import RecurrentLM, is_recurrent

    folder = Path(name_or_folder)
    with reading(name_or_folder, "openai-community/gpt2"):
        if recurrence is not None or ((folder / "config.json").exists() and is_recurrent(folder)):
            return RecurrentLM.from_pretrained(str(name_or_folder), recurrence, dtype=torch.float32)
        return GPT2LMHeadModel.from_pretrained(str(name_or_folder), dtype=torch.float32)
