"""How far back a model's loss depends on the text it read."""

import numpy as np
import torch
from torch import Tensor, nn

from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import check_losses, device_of, token_ids, vocabulary_of
from repro.evaluation.scoring import check_decoder, states_and_head
from repro.ids import evaluating
from repro.loss import cross_entropy
from repro.windows import check_window, context_of, windows


@torch.no_grad()
def dependence(model: nn.Module, texts, others, window: int, overlap: int = 0, batch_size: int = 16,
               progress=None) -> tuple[np.ndarray, np.ndarray]:
    """How the loss of the last `window` targets changes when an earlier window of the text is replaced.

    texts: (n, (D + 1) * window + 1) tokens: D windows, then one more and the target of its last token. others: the
    same number of tokens from other texts. For row d - 1 of the result, the d-th window before the scored one is
    replaced by that of `others`; everything else is unchanged. overlap: used when reading the changed text.

    Returns the mean absolute change and the mean change, each (D, n), in nats per scored token. A token that shares no
    window with the scored targets and is not carried by h_prev changes nothing: exactly 0.
    Raises ReproError for an invalid overlap or shapes that do not match.
    """
    check_progress(progress)
    texts, others, n_windows = _checked(model, texts, others, window, overlap, 2)
    last = (n_windows - 1) * window

    def changes(own: Tensor, foreign: Tensor, _) -> tuple[Tensor, Tensor]:
        before, found = losses_after(model, own, window, overlap, last), []
        for start in range(last - window, -1, -window):
            changed = own.clone()
            changed[:, start:start + window] = foreign[:, start:start + window]
            found.append(losses_after(model, changed, window, overlap, last) - before)
        found = torch.stack(found).double()
        return found.abs().mean(-1), found.mean(-1)

    return _in_batches(model, changes, texts, others, batch_size, progress)


@torch.no_grad()
def token_dependence(model: nn.Module, texts, others, window: int, overlap: int = 0, n_changes: int = 4,
                     seed: int = 0, batch_size: int = 16, progress=None) -> tuple[np.ndarray, np.ndarray]:
    """How the losses of later targets change when one token is replaced, by its distance in tokens.

    texts, others: as in `dependence`, with k >= 3 windows. In every text, `n_changes` tokens of its second window are
    replaced by those of `others`, one at a time: one in each of `n_changes` equal parts of the window, at a random
    position that is spread evenly over all texts.

    Returns the mean absolute change and the mean change, each (bins, n), in nats per token; `distances` are the bins.
    Raises ReproError for an invalid overlap, shapes that do not match, or fewer than one change.
    """
    check_progress(progress)
    texts, others, n_windows = _checked(model, texts, others, window, overlap, 3)
    check_whole(n_changes, "n_changes", 1, window, of="tokens a text")
    check_whole(seed, "seed", 0)
    n, order = len(texts), torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    places = window + (torch.arange(n_changes)[:, None] * n + order) * window // (n_changes * n)
    places = places.to(texts.device)
    nearest = torch.tensor([near for near, _ in distances(n_windows, window)], device=texts.device)

    def changes(own: Tensor, foreign: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        before, row = losses_after(model, own, window, overlap, window), torch.arange(len(own), device=own.device)
        sums = own.new_zeros(3, len(nearest), len(own), dtype=torch.double)
        for place in places[:, rows]:
            changed = own.clone()
            changed[row, place] = foreign[row, place]
            change = (losses_after(model, changed, window, overlap, window) - before).double()
            distance = torch.arange(window + 1, own.shape[1], device=own.device) - place[:, None]
            counted = (distance >= 1) & (distance <= (n_windows - 2) * window)
            at = torch.bucketize(distance.clamp(min=1), nearest, right=True) - 1
            for total, part in zip(sums, (change.abs(), change, torch.ones_like(change)), strict=True):
                total.T.scatter_add_(1, at, part * counted)
        return sums[0] / sums[2], sums[1] / sums[2]

    return _in_batches(model, changes, texts, others, batch_size, progress)


def distances(n_windows: int, window: int) -> list[tuple[int, int]]:
    """The nearest and the farthest target, in tokens, of each bin of `token_dependence`.

    Up to the window length the bins are 1, 2-3, 4-7 and so on; after that, one bin per window.
    """
    within = [(2**b, min(2**(b + 1) - 1, window)) for b in range(window.bit_length())]
    return within + [(k * window + 1, (k + 1) * window) for k in range(1, n_windows - 2)]


def _checked(model, texts, others, window, overlap, least) -> tuple[Tensor, Tensor, int]:
    """Both as tensors on the model's device, and their number of windows."""
    check_decoder(model)
    check_window(window, overlap, context_of(model))
    n_ids = vocabulary_of(model)
    texts, others = (token_ids(ids, name, n_ids).to(device_of(model))
                     for ids, name in ((texts, "texts"), (others, "others")))
    n_windows, rest = divmod(texts.shape[-1] - 1, window) if texts.ndim == 2 else (0, 0)
    if not len(texts) or texts.shape != others.shape or rest or n_windows < least:
        raise ReproError(f"texts have shape {tuple(texts.shape)} and others {tuple(others.shape)}; both must be "
                         f"(texts, k * {window} + 1) tokens, k at least {least}.")
    return texts, others, n_windows


def _in_batches(model, changes, texts, others, batch_size, progress) -> tuple[np.ndarray, np.ndarray]:
    """`changes` of each batch, without dropout, concatenated along the texts."""
    check_whole(batch_size, "batch_size", of="texts")
    found = []
    with evaluating(model):
        for start in range(0, len(texts), batch_size):
            rows = slice(start, start + batch_size)
            found.append(changes(texts[rows], others[rows], rows))
            for part in found[-1]:
                check_losses(part)
            if progress is not None:
                progress(len(texts[rows]))
    return tuple(torch.cat(parts, 1).cpu().numpy() for parts in zip(*found, strict=True))


def losses_after(model: nn.Module, ids: Tensor, window: int, overlap: int, first: int) -> Tensor:
    """Loss (B, N - 1 - first) in nats of the tokens first + 1 .. of `ids` (B, N), read in windows from the start."""
    first += 1
    cover = windows(ids.shape[1], window, overlap)
    recurrent = hasattr(model, "read_windows")
    if not recurrent:
        cover = [span for span in cover if span.stop >= first]
    head = model.get_output_embeddings() if recurrent else None
    read = ((states, head) for states in model.read_windows(ids, cover)) if recurrent else (
        states_and_head(model, ids[:, span.start:span.stop]) for span in cover)
    losses = []
    for span, (states, head) in zip(cover, read, strict=True):
        target = max(span.first_target, first)
        if target <= span.stop:
            states = states[:, target - 1 - span.start:]
            logits = states if head is None else head(states)
            targets = ids[:, target:span.stop + 1]
            losses.append(cross_entropy(logits.flatten(0, 1), targets.flatten(), "none").view_as(targets))
    return torch.cat(losses, 1)
