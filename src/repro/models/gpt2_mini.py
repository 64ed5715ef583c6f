"""gpt2-mini: GPT-2's architecture (Radford et al. 2019), fresh weights, any size."""

import copy
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.errors import ReproError
from repro.processes import is_first


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


def load_causal_lm(name_or_folder: str | Path, recurrence=None, memory: str | None = None):
    """A GPT-2 checkpoint (hub name or folder), with a recurrence module if `recurrence` is a RecurrenceConfig,
    or with one of the memories of `repro.recurrence`.

    Its weights are fp32, as whatever they were kept. A folder saved by a RecurrentLM or MemoryLM comes back as one.
    Raises ReproError when there is no such checkpoint.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import GPT2LMHeadModel

    from repro.recurrence import RecurrentLM, with_memory

    folder = Path(name_or_folder)
    try:
        with _without_bars():
            saved = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
            if memory is not None or "memory" in saved:
                return with_memory(name_or_folder, memory)
            if recurrence is not None or "recurrence" in saved:
                return RecurrentLM.from_pretrained(str(name_or_folder), recurrence, dtype=torch.float32)
            return GPT2LMHeadModel.from_pretrained(str(name_or_folder), dtype=torch.float32)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ReproError(f"the checkpoint in {name_or_folder} is damaged ({error}); delete the folder and make it "
                         "again.") from error
    except OSError as error:
        raise ReproError(f"there is no checkpoint '{name_or_folder}' here or on the hub; give a hub name such as "
                         "openai-community/gpt2 or a folder with config.json and model.safetensors.") from error


def save_causal_lm(model, folder: str | Path, weights: str = "fp32") -> None:
    """Save `model` so that `load_causal_lm(folder)` gives it back; the folder appears whole or not at all.

    weights: "fp32", or "bf16", to which they are rounded and which takes half the space. Under torchrun only the first
    process writes. Raises ReproError when the disk refuses.
    """
    from safetensors import SafetensorError

    if not is_first():
        return
    folder = Path(folder)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # what a killed save left
    try:
        with _without_bars():
            kept = copy.deepcopy(model).bfloat16() if weights == "bf16" else model
            kept.save_pretrained(unfinished)
        for path in unfinished.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise ReproError(f"cannot write {folder}: {error}. Free some space and run it again; it goes on where it "
                         "was.") from error


@contextmanager
def _without_bars() -> Iterator[None]:
    """transformers shows a progress bar for a single file; here it would only be noise."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()
