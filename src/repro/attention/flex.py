"""FlexAttention: the pattern's predicate inside a kernel that skips blocks without an allowed pair."""

import warnings
from functools import lru_cache

import torch
from torch import Tensor
from torch._dynamo import config as dynamo
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from repro.attention.patterns import Pattern
from repro.errors import ReproError

BLOCK = 128  # queries, and keys, in a block
LEAST_SIZE = 16  # features of a head, at least, in the kernel
PATTERNS = 64  # the most that a process may use: the kernel is compiled for each


def flex(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
         documents: Tensor | None = None, dropout: float = 0.0, compiled: bool | None = None) -> Tensor:
    """compiled: None compiles on a GPU only. On a CPU, compilation takes a minute and is useful only for measurements.

    The lists of a pattern (positions, documents) reach the kernel as tensors, so other lists need no new compilation.
    Raises ReproError for dropout, which the kernel does not support.
    """
    if dropout:
        raise ReproError(f"dropout is {dropout}, and FlexAttention has none; use 'blocked'.")
    blocks = block_mask(pattern, query.shape[2], query.device)
    if key_mask is not None or documents is not None:
        blocks = _for_samples(blocks, key_mask, documents)
    size = value.shape[-1]
    query, key, value = (pad(x, (0, max(0, LEAST_SIZE - x.shape[-1]))) for x in (query, key, value))
    operator = _compiled() if compiled or compiled is None and query.is_cuda else _uncompiled
    # symbolic sizes give wrong results (PyTorch 2.13), so every window is compiled separately
    with dynamo.patch(recompile_limit=PATTERNS, automatic_dynamic_shapes=False):
        return operator(query, key, value, block_mask=blocks, scale=scale)[..., :size]


@lru_cache(maxsize=1)
def _compiled():
    return torch.compile(flex_attention, dynamic=False)


def _uncompiled(*arguments, **settings) -> Tensor:
    """FlexAttention without compilation, which is intended here, and without PyTorch's advice to compile."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)
        return flex_attention(*arguments, **settings)


@lru_cache(maxsize=PATTERNS)
def block_mask(pattern: Pattern, n: int, device: torch.device | str = "cpu") -> BlockMask:
    """The blocks of keys that each block of queries sees in part or in full, from the progressions alone."""
    position = torch.arange(n)
    count = -(-n // BLOCK)
    start = torch.arange(count) * BLOCK
    needed, whole = torch.zeros(2, count, count, dtype=torch.bool)
    for part in pattern.parts:
        for first, last, step in (keys.within(n, position) for keys in part.keys(position)):
            none = first > last
            first, last = first.masked_fill(none, n), last.masked_fill(none, -1)
            lowest, latest = (_extreme(first, "amin"), _extreme(first, "amax"))
            highest, earliest = (_extreme(last, "amax"), _extreme(last, "amin"))
            needed |= (lowest[:, None] < start + BLOCK) & (highest[:, None] >= start)
            if step == 1:
                whole |= (latest[:, None] <= start) & (earliest[:, None] >= start + BLOCK - 1)
    counts, order = zip(*(_listed(blocks.to(device)) for blocks in (needed & ~whole, whole)), strict=True)
    asked = pattern.predicate(n, device)
    return BlockMask.from_kv_blocks(counts[0], order[0], counts[1], order[1], BLOCK, lambda b, h, i, j: asked(i, j),
                                    seq_lengths=(n, n))


def _extreme(of: Tensor, which: str) -> Tensor:
    """The smallest or largest entry of every block of queries."""
    return torch.stack([getattr(block, which)() for block in of.split(BLOCK)])


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many entries of a row are True (1, 1, rows), and its columns (1, 1, rows, columns), the True ones first."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], order.int()[None, None]


def _for_samples(blocks: BlockMask, key_mask: Tensor | None, documents: Tensor | None) -> BlockMask:
    """Also apply `key_mask` and `documents`, in every block."""
    asked = blocks.mask_mod
    if key_mask is not None:
        asked = _and_padding(asked, key_mask)
    if documents is not None:
        asked = _and_documents(asked, documents)
    return BlockMask.from_kv_blocks(*_listed(blocks.to_dense()[0, 0].bool()), BLOCK_SIZE=BLOCK,
                                    seq_lengths=blocks.seq_lengths, mask_mod=asked)


def _and_padding(asked, key_mask: Tensor):
    return lambda b, h, i, j: asked(b, h, i, j) & key_mask[b, j]


def _and_documents(asked, documents: Tensor):
    return lambda b, h, i, j: asked(b, h, i, j) & (documents[b, i] == documents[b, j])
