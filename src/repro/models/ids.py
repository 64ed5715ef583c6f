"""Token ids, checked where they enter a model."""

import torch
from torch import Tensor, nn

from repro.errors import ReproError


def embedded(embed: nn.Embedding, ids: Tensor) -> Tensor:
    """What stands for token ids (B, N): (B, N, width).

    Raises ReproError for another shape, numbers that are neither int64 nor int32, and ids that the model does not know
    (on a GPU, where looking would make each step wait, CUDA stops at these).

    >>> embedded(nn.Embedding(9, 4), torch.tensor([3, 1]))
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: ids are torch.int64 of shape (2,); give int64 numbers of shape (B, N), a text as ids[None].
    """
    if ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise ReproError(f"ids are {ids.dtype} of shape {tuple(ids.shape)}; give int64 numbers of shape (B, N), a text "
                         "as ids[None].")
    try:
        return embed(ids)
    except IndexError:
        raise ReproError(f"ids go from {int(ids.min())} to {int(ids.max())}, but the model knows 0 to "
                         f"{embed.num_embeddings - 1:,}; encode the text with its own tokeniser.") from None
