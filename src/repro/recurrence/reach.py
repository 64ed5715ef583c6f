"""How far back a memory reaches, measured on text."""

from typing import NamedTuple

import torch
from torch import Tensor

from repro.checked import checked
from repro.errors import ReproError, check_method, check_number
from repro.ids import check_ids, evaluating
from repro.loss import cross_entropy
from repro.windows import windows


class Reach(NamedTuple):
    """windows: how many windows back a change of text still has an effect. changes[j - 1]: the effect of a change j
    windows back."""

    windows: int
    changes: list[float]


@checked
@torch.no_grad()
def reach_windows(model, tokens: Tensor, other: Tensor, window: int, overlap: int = 0,
                  tolerance: float = 1e-4) -> Reach:
    """Replace the text of one earlier window at a time, and measure the change in the loss of the last window.

    model: one that carries a state (`RecurrentLM`, `MemoryLM`); any other has a reach of 0. tokens, other: ids (B, N)
    of at least two windows. A change is the mean absolute difference in nats per target of the last window; one above
    `tolerance` counts. Only the text whose state is passed on is replaced, not the overlap that the next window reads
    itself. Raises ReproError for texts of different shapes or of one window, anything but a model, and a tolerance
    below 0.

    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8)).eval()
    >>> text, other = torch.arange(18)[None] % 9, torch.arange(18)[None] % 7
    >>> len(reach_windows(model, text, other, window=6).changes)
    2
    """
    check_method(model, "model", "__call__", "a language model")
    check_number(tolerance, "tolerance")
    for name, ids in (("tokens", tokens), ("other", other)):
        check_ids(ids, name=name)
    cover = windows(tokens.shape[-1], window, overlap)
    if tokens.shape != other.shape or len(cover) < 2:
        raise ReproError(f"texts have shapes {tuple(tokens.shape)} and {tuple(other.shape)}; give two of the same "
                         f"shape (batch, tokens) with more than one window of {window} tokens.")
    if not hasattr(model, "read_windows"):
        return Reach(0, [0.0] * (len(cover) - 1))
    with evaluating(model):
        own, changes = _last_nll(model, tokens, cover), []
        for span, following in zip(cover[-2::-1], cover[:0:-1], strict=True):
            changed = tokens.clone()
            changed[:, span.start:following.start] = other[:, span.start:following.start]
            changes.append((_last_nll(model, changed, cover) - own).abs().mean().item())
    return Reach(max((j for j, change in enumerate(changes, 1) if change > tolerance), default=0), changes)


def _last_nll(model, tokens, cover):
    """Nats of each target of the last window (B * n,), after reading everything before it."""
    *_, hidden = model.read_windows(tokens, cover)
    last = cover[-1]
    logits = model.get_output_embeddings()(hidden[:, last.offset:])
    targets = tokens[:, last.first_target:last.stop + 1]
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), "none")
