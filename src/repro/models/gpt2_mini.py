"""gpt2-mini: GPT-2's architecture (Radford et al. 2019), fresh weights, any size."""

from pathlib import Path

from repro.checked import checked
from repro.checkpoints import read_config, reading, whole
from repro.errors import ReproError, check_whole, unknown


@checked
def gpt2_mini(n_layer: int, n_embd: int, n_head: int, vocab_size: int, n_positions: int = 1024, bos: int = 0,
              activation: str = "gelu_new"):
    """An untrained `GPT2LMHeadModel` without dropout.

    The study trains on each text only once or twice, so dropout would cost more than it gains. activation: GPT-2's,
    or "gelu_pytorch_tanh", the same function in one operation instead of eight: it is faster and takes less memory in
    the backward pass. Raises ReproError if the width is not a multiple of the heads.

    >>> gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9).config.n_positions
    1024
    >>> gpt2_mini(n_layer=2, n_embd=8, n_head=3, vocab_size=9)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: n_embd is 8 and n_head 3; the width must be a multiple of the heads.
    """
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.activations import ACT2FN

    for name, size in (("n_layer", n_layer), ("n_embd", n_embd), ("n_head", n_head), ("vocab_size", vocab_size),
                       ("n_positions", n_positions)):
        check_whole(size, name)
    check_whole(bos, "bos", 0, vocab_size - 1)
    if activation not in ACT2FN:
        raise unknown("activation", activation, ACT2FN)
    if n_embd % n_head:
        raise ReproError(f"n_embd is {n_embd} and n_head {n_head}; the width must be a multiple of the heads.")
    return GPT2LMHeadModel(GPT2Config(
        n_layer=n_layer, n_embd=n_embd, n_head=n_head, vocab_size=vocab_size, n_positions=n_positions,
        activation_function=activation, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=bos,
        eos_token_id=bos))


@checked
def parameters(n_layer: int, n_embd: int, vocab_size: int, n_positions: int = 1024) -> int:
    """Number of weights of such a model: biases and layer norms included, the tied output layer counted once.

    Raises ReproError for sizes below 1.

    >>> f"{parameters(n_layer=12, n_embd=768, vocab_size=50_257):,}"
    '124,439,808'
    """
    for name, size in (("n_layer", n_layer), ("n_embd", n_embd), ("vocab_size", vocab_size),
                       ("n_positions", n_positions)):
        check_whole(size, name)
    block = 12 * n_embd**2 + 13 * n_embd
    return n_layer * block + (vocab_size + n_positions) * n_embd + 2 * n_embd


@checked
def load_causal_lm(name_or_folder: str | Path, recurrence=None, memory: str | None = None, **settings):
    """Load a GPT-2 checkpoint (hub name or folder), another decoder from its folder, or a fetched model by its name.

    recurrence: a RecurrenceConfig, to add a recurrence module. memory: the name of a memory of `repro.recurrence`, to
    add it. A decoder other than GPT-2 whose config has an `opening_token` reads this token in front of every window.
    The weights become fp32, however they were stored. A folder saved by a RecurrentLM or MemoryLM loads as such.
    Raises ReproError for a missing checkpoint.

    >>> from repro.recurrence import RecurrenceConfig
    >>> _ = save_causal_lm(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base")
    >>> type(load_causal_lm(folder / "base", RecurrenceConfig(hidden_size=4))).__name__
    'RecurrentLM'
    """
    import torch
    from transformers import GPT2LMHeadModel

    from repro.recurrence import RecurrentLM, with_memory
    from repro.recurrence.decoders import decoder_of
    from repro.recurrence.opening import open_windows

    with reading(name_or_folder, "openai-community/gpt2") as name_or_folder:
        saved = read_config(name_or_folder)
        if memory is not None or "memory" in saved:
            return with_memory(name_or_folder, memory, **settings)
        if recurrence is not None or "recurrence" in saved:
            return RecurrentLM.from_pretrained(str(name_or_folder), recurrence, dtype=torch.float32)
        if saved.get("model_type", "gpt2") != "gpt2":
            config, plain = decoder_of(name_or_folder)
            model, _ = whole(plain.from_pretrained, config.model_type, name_or_folder, dtype=torch.float32)
            open_windows(model)
            return model
        return whole(GPT2LMHeadModel.from_pretrained, "gpt2", name_or_folder, dtype=torch.float32)[0]
