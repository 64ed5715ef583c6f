"""The longest text that a transformers model can read: the length of its table of learned positions."""

from inspect import signature

import torch
from torch import Tensor, nn

from repro.errors import ReproError
from repro.hf_compat import cache_in

TABLES = "wpe", "position_embeddings", "embed_positions"  # the names in GPT-2, RoBERTa and BERT, BART and OPT


def check_length(model: nn.Module, inputs: tuple, named: dict) -> None:
    """Raise ReproError if a text, including its cached part, exceeds the learned positions of `model`.

    This hook runs before the model's forward, which would otherwise fail with an index error, or on a GPU with a device
    failure. Models without such a table, such as those with rotary positions, read texts of any length. During
    compilation only shapes are known, so a text is checked only without a cache and position_ids, and in models that
    do not skip padding; under fullgraph=True PyTorch wraps the message in its own error. With a cache, position_ids are
    not checked, because reading them would stall a GPU at every token.
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
    unused = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts from after its padding index
    limit = table.num_embeddings - unused - getattr(table, "offset", 0)
    before = f" ({past} of them in the cache)" if past else ""
    if positions is not None and cache is None or n > limit:  # n may include padding that has no position
        reached = _reached(positions, ids, table.padding_idx, past, n)
        if reached > limit:
            what = f"the text has {reached} tokens{before}" if n > limit else f"position_ids reach {reached} positions"
            raise ReproError(f"{what}, but this {type(model).__name__} has {limit} learned positions; give it at most "
                             f"{limit} tokens, or load a model with more positions.")


def _table(model: nn.Module) -> nn.Embedding | None:
    """The learned positions that a model itself adds to its tokens; None if it has none, or an inner model does it."""
    owner = getattr(model, "embeddings", model)
    found = (getattr(owner, name, None) for name in TABLES)
    return next((table for table in found if isinstance(table, nn.Embedding)), None)


def _reached(positions: Tensor | None, ids: Tensor | None, padding: int | None, past: int, n: int) -> int:
    """The number of positions that a text uses, without padding if the model skips it."""
    if positions is not None:
        return int(positions.max()) + 1 - (0 if padding is None else padding + 1)
    if padding is not None and ids is not None:
        return past + int((ids != padding).sum(-1).max())
    return n
