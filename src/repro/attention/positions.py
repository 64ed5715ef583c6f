"""How long a text a model of transformers can read: as long as its table of learned positions."""

from inspect import signature

import torch
from torch import Tensor, nn

from repro.errors import ReproError
from repro.hf_compat import cache_in

TABLES = "wpe", "position_embeddings", "embed_positions"  # as GPT-2, RoBERTa and BERT, BART and OPT call it


def check_length(model: nn.Module, inputs: tuple, named: dict) -> None:
    """Raise ReproError where a text, with what a cache holds of it, goes beyond the positions that `model` has learned.

    A hook to run before the model's forward, which else ends in an index error, or on a GPU in a stopped device. Models
    without such a table, such as those with rotary positions, read texts of any length. While a graph is compiled, only
    shapes are known: a text is measured there that has no cache and no position_ids, by a model that leaves no padding
    aside; under fullgraph=True PyTorch puts the sentence into an error of its own. Behind a cache position_ids are not
    looked at either: a GPU would have to be waited for at every token.
    """
    table = _table(model)
    if table is None:
        return
    given = dict(zip(signature(model.forward).parameters, inputs, strict=False)) | named
    ids, vectors, positions = (given.get(name) for name in ("input_ids", "inputs_embeds", "position_ids"))
    cache = cache_in(given)
    shapes_tell = cache is None and positions is None and table.padding_idx is None
    if ids is None and vectors is None or torch.compiler.is_compiling() and not shapes_tell:
        return
    past = 0 if cache is None else int(cache.get_seq_length())
    n = past + (vectors.shape[-2] if ids is None else ids.shape[-1])
    unused = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts from behind its padding
    limit = table.num_embeddings - unused - getattr(table, "offset", 0)
    before = f" ({past} of them in the cache)" if past else ""
    if positions is not None and cache is None or n > limit:  # padding may account for that
        reached = _reached(positions, ids, table.padding_idx, past, n)
        if reached > limit:
            what = f"the text has {reached} tokens{before}" if n > limit else f"position_ids reach {reached} positions"
            raise ReproError(f"{what}, but this {type(model).__name__} has learned {limit} positions; give it at most "
                             f"{limit} tokens, or load a model with more positions.")


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
