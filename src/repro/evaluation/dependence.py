"""How far back a model's loss depends on what it read."""

import numpy as np
import torch
from torch import Tensor, nn

from repro.errors import ReproError
from repro.loss import cross_entropy
from repro.windows import check_window, windows


@torch.no_grad()
def dependence(model: nn.Module, texts, others, window: int, overlap: int = 0, batch_size: int = 16,
               progress=None) -> tuple[np.ndarray, np.ndarray]:
    """How the loss of the last `window` targets changes when an earlier window of the text is replaced.

    texts: (n, (D + 1) * window + 1) tokens: D windows, then one more and the target of its last token. others: as
    many tokens of other texts. In row d - 1 of what is returned the tokens of the d-th window before the scored one
    are those of `others`; everything else is the text's own. overlap: at which the model reads the changed text.

    Returns the mean absolute change and the mean change, each (D, n), in nats per scored token. A token that no
    window shares with the scored targets, and no h_prev carries, changes nothing: exactly 0.
    Raises ReproError for an overlap or shapes that do not fit.
    """
    texts, others = (torch.as_tensor(np.asarray(ids)).long() for ids in (texts, others))
    check_window(window, overlap, getattr(model.config, "n_positions", None))
    n_windows, rest = divmod(texts.shape[-1] - 1, window)
    if texts.ndim != 2 or texts.shape != others.shape or rest or n_windows < 2:
        raise ReproError(f"texts have shape {tuple(texts.shape)} and others {tuple(others.shape)}; both must be "
                         f"(texts, k * {window} + 1) tokens, k at least 2.")
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    absolute, signed = [], []
    try:
        for own, foreign in zip(texts.to(device).split(batch_size), others.to(device).split(batch_size), strict=True):
            before = last_losses(model, own, window, overlap)
            changes = []
            for back in range(1, n_windows):
                start = (n_windows - 1 - back) * window
                changed = own.clone()
                changed[:, start:start + window] = foreign[:, start:start + window]
                changes.append(last_losses(model, changed, window, overlap) - before)
            changes = torch.stack(changes).double()
            absolute.append(changes.abs().mean(-1).cpu())
            signed.append(changes.mean(-1).cpu())
            if progress is not None:
                progress(len(own))
    finally:
        model.train(was_training)
    return torch.cat(absolute, 1).numpy(), torch.cat(signed, 1).numpy()


def last_losses(model: nn.Module, ids: Tensor, window: int, overlap: int) -> Tensor:
    """Loss (B, window) in nats of the last `window` tokens of `ids` (B, N), read in windows from the first token."""
    first = ids.shape[1] - window
    cover = windows(ids.shape[1], window, overlap)
    recurrent = hasattr(model, "read_windows")
    if not recurrent:
        cover = [span for span in cover if span.stop >= first]
    states = model.read_windows(ids, cover) if recurrent else (
        model.base_model(input_ids=ids[:, span.start:span.stop], use_cache=False).last_hidden_state for span in cover)
    losses = []
    for span, hidden in zip(cover, states, strict=True):
        target = max(span.first_target, first)
        if target <= span.stop:
            logits = model.get_output_embeddings()(hidden[:, target - 1 - span.start:])
            targets = ids[:, target:span.stop + 1]
            losses.append(cross_entropy(logits.flatten(0, 1), targets.flatten(), "none").view_as(targets))
    return torch.cat(losses, 1)
