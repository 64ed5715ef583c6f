"""How long a text a model of transformers can read: as long as its table of learned positions."""

from inspect import signature

import torch
from torch import Tensor, nn

from repro.errors import ReproError

TABLES = "wpe", "position_embeddings", "embed_positions"  # as GPT-2, RoBERTa and BERT, BART and OPT call it


def check_length(model: nn.Module, inputs: tuple, named: dict) -> None:
    """Raise ReproError where a text, with what a cache holds of it, goes beyond the positions that `model` has learned.

    A hook to run before the model's forward, which else ends in an index error, or on a GPU in a stopped device. Models
    without such a table, such as those with rotary positions, read texts of any length.
    """
    table = _table(model)
    if table is None or torch.compiler.is_compiling():
        return
    given = signature(model.forward).bind_partial(*inputs, **named).arguments
    ids, vectors = given.get("input_ids"), given.get("inputs_embeds")
    if ids is None and vectors is None:
        return
    cache = given.get("past_key_values")
    past = 0 if cache is None else int(cache.get_seq_length())
    n = past + (vectors.shape[-2] if ids is None else ids.shape[-1])
    unused = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts from behind its padding
    limit = table.num_embeddings - unused - getattr(table, "offset", 0)
    if n > limit:  # padding may account for that
        n = _reached(given.get("position_ids"), ids, table.padding_idx, past, n)
    if n > limit:
        before = f" ({past} of them in the cache)" if past else ""
        raise ReproError(f"the text has {n} tokens{before}, but this {type(model).__name__} has learned {limit} "
                         f"positions; give it at most {limit} tokens, or load a model with more positions.")


def _table(model: nn.Module) -> nn.Embedding | None:
    """The learned positions that a model itself adds to its tokens; None for the models around it, too."""
    owner = getattr(model, "embeddings", model)
    found = (getattr(owner, name, None) for name in TABLES)
    return next((table for table in found if isinstance(table, nn.Embedding)), None)


def _reached(positions: Tensor | None, ids: Tensor | None, padding: int | None, past: int, n: int) -> int:
    """How many positions a text reaches, padding left aside where the model does so."""
    if positions is not None:
        return int(positions.max()) + 1 - (0 if padding is None else padding + 1)
    if padding is not None and ids is not None:
        return past + int((ids != padding).sum(-1).max())
    return n
