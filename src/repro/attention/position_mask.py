"""Positions of queries and keys, used instead of a mask: padding, packed documents and caches in one small tensor.

transformers makes one mask per model, independent of the layer, and passes it to every layer. Ours is linear in the
number of positions and does not depend on the pattern: (B, 1, 2, Q + N) whole numbers, the documents of Q
queries and N keys (-1 for padding), and then their positions. A plain four-dimensional tensor passes through
everything on the way: `generate`, recomputation, compilation, and models that got their own mask. Its dtype encodes
whether the model asked for a mask without restrictions (`BOTH_WAYS`), as for an encoder's keys.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from repro.attention.decoding import last_rows
from repro.attention.implementations import attend
from repro.attention.patterns import Pattern
from repro.errors import ReproError

KIND, BOTH_WAYS = torch.int64, torch.int32  # distinguish it from a boolean or an additive mask


def position_mask(batch: int, n_queries: int, n_keys: int, first_query: int | Tensor = 0, first_key: int = 0,
           neighbours: Callable[[Tensor, Tensor], Tensor] | None = None, real: Tensor | None = None,
           device: torch.device | str | None = None) -> Tensor:
    """The tensor for a batch: (B, 1, 2, Q + N).

    first_query, first_key: the positions of the first query and the first key, counting cached tokens.
    neighbours(b, i): whether position i sees the previous one, and so belongs to the same document; None: one document.
    real (B, positions): False for padding; positions after these are not filled yet.
    """
    i = torch.arange(n_queries, device=device) + first_query
    j = torch.arange(n_keys, device=device) + first_key
    document = torch.zeros(batch, n_keys, dtype=KIND, device=device)
    if neighbours is not None:
        new = ~neighbours(torch.arange(batch, device=device)[:, None], i[None]).expand(batch, -1)
        document = (new & (i > 0)).to(KIND).cumsum(1)
    if real is not None:
        missing = max(0, first_key + n_keys - real.shape[1])
        kept = torch.nn.functional.pad(real.to(torch.bool), (0, missing))[:, first_key:first_key + n_keys]
        document = torch.where(kept, document, -1)
    asked = document if n_queries == n_keys else document.new_zeros(batch, n_queries)
    position = torch.cat([i, j]).to(KIND).expand(batch, -1)
    return torch.stack([torch.cat([asked, document], 1), position], 1)[:, None]


def documents_of(where: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, N): the document of every key, -1 for padding. Raises ReproError if a cache has dropped keys."""
    n, keys = query.shape[2], where.shape[3] - query.shape[2]
    if key.shape[2] != keys:
        raise ReproError(f"there are {key.shape[2]} keys, but the mask was made for {keys}; the cache dropped some: "
                         "use one that keeps them, such as DynamicCache().")
    return where[:, 0, 0, n:]


def check_padding(pattern: Pattern | list[Pattern], real: Tensor | None) -> None:
    """Raise ReproError for rows that begin with padding under a pattern that counts positions from the row's start.

    real: (B, N), False for padding; None: there is none. Windows are not affected: they use distances only.
    """
    patterns = pattern if isinstance(pattern, list) else [pattern]
    if real is not None and not all(one.steady for one in patterns) and not bool(real[:, 0].all()):
        moved = next(one for one in patterns if not one.steady)
        raise ReproError(f"a row begins with padding, but {moved} counts positions from the start of the row, so "
                         "padding would change the result; pad on the right "
                         "(tokenizer.padding_side='right').")


def attend_at(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern | list[Pattern], where: Tensor | None,
              scale: float | None = None, dropout: float = 0.0) -> Tensor:
    """`attend` for queries and keys at the positions `where`; None: one complete document each, without padding.

    Raises ReproError if a query sees a key that the cache has dropped, or if an earlier token should have seen these
    tokens but was read before them.
    """
    n, settings = query.shape[2], {"scale": scale, "dropout": dropout}
    if where is None:
        return attend(query, key, value, pattern, **settings)
    document, position = documents_of(where, query, key), where[0, 0, 1]
    start, first = int(position[0]), int(position[n])
    real = document >= 0
    if n == key.shape[2]:
        check_padding(pattern, real)
        packed = document if bool((document > 0).any()) else None
        return attend(query, key, value, pattern, key_mask=None if real.all() else real, documents=packed, **settings)
    patterns = pattern if isinstance(pattern, list) else [pattern]
    for one in dict.fromkeys(patterns):
        if start > 0 and one(start - 1, start):
            raise ReproError(f"under {one} position {start - 1} sees position {start}, but was read before it; put the "
                             "whole prefix into the first text that a cache reads, or set use_cache=False.")
    end = int(position[n - 1]) + 1 - first  # a static cache is empty after it
    key, value, real = key[:, :, :end], value[:, :, :end], real[:, :end]
    real = None if real.all() else real
    if first == 0:
        check_padding(pattern, real)
        return attend(query, key, value, pattern, key_mask=real, **settings)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    rows = [slice(head, head + 1) for head in range(len(patterns))] if len(patterns) > 1 else [slice(None)]
    return torch.cat([last_rows(query[:, at], key[:, at], value[:, at], one, scale, real, dropout, first)
                      for one, at in zip(patterns, rows, strict=True)], 1)
