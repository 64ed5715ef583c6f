"""The receptive field of a position, from the patterns of the layers and from the gradients of a model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from repro.attention import Pattern
from repro.checked import checked
from repro.errors import ReproError, check_whole
from repro.ids import evaluating, what
from repro.models.decoder import Decoder


@checked
@torch.no_grad()
def receptive_field(patterns: Sequence[Sequence[Pattern]], n: int) -> Tensor:
    """(n_layer, n) bool: whether the last of n positions, after a layer, can depend on an input position.

    patterns: per layer, from the bottom, one for each head. A position always sees itself, through the
    residual connection. (Beltagy et al. 2020, section 3.1: l windows of w reach l * w, with dilation d * l * w.)

    >>> receptive_field(longformer_patterns([2, 2], n_head=2), n=5).int()
    tensor([[0, 0, 0, 1, 1],
            [0, 0, 1, 1, 1]], dtype=torch.int32)
    """
    check_whole(n, "n")
    if not len(patterns) or not all(isinstance(layer, Sequence) and layer and all(
            isinstance(one, Pattern) for one in layer) for layer in patterns):
        raise ReproError("patterns names no pattern for each head of each layer; give [[SlidingWindow(4), …], …].")
    position, rows = torch.arange(n), []
    for top in range(len(patterns)):
        seen = position == n - 1
        for layer in reversed(patterns[:top + 1]):
            at = position[seen]
            for pattern in dict.fromkeys(layer):
                seen = seen | pattern(at[:, None], position).any(0)
        rows.append(seen)
    return torch.stack(rows)


@checked
def measured_field(model: Decoder, ids: Tensor) -> Tensor:
    """The receptive field, measured: where the gradient of the last position after each layer is not zero.

    ids: (N,). Use a model in double precision: a small gradient may vanish in single. Raises ReproError for ids of
    another shape or outside the vocabulary.

    >>> model = Decoder(DecoderConfig(9, 8, 2, tuple(longformer_patterns([2, 2], n_head=2)))).double()
    >>> measured_field(model, torch.zeros(5, dtype=torch.int64)).int()
    tensor([[0, 0, 0, 1, 1],
            [0, 0, 1, 1, 1]], dtype=torch.int32)
    """
    if not isinstance(ids, Tensor) or ids.ndim != 1:
        raise ReproError(f"ids are {what(ids)}; give one text of shape (N,).")
    with evaluating(model):
        embedded, *states = model.states(ids[None])
        rows = [torch.autograd.grad(state[0, -1].sum(), embedded, retain_graph=True)[0][0].abs().sum(-1) > 0
                for state in states]
    return torch.stack(rows)
