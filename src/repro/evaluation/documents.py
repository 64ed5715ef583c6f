"""Score a tokenized split, with the loss of each document."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import check_losses, check_tokens, device_of, one_text, vocabulary_of
from repro.evaluation.scoring import Score, perplexity, window_nll
from repro.ids import evaluating
from repro.windows import Window, check_window, context_of, windows

TOGETHER = 32  # documents that a model with a state reads at once on a GPU


def score_documents(model, tokens, window: int, overlap: int, batch_size: int | None = None,
                    progress=None) -> tuple[Score, np.ndarray]:
    """Score a `repro.data.Tokens`; return the total Score and the summed nll of each document, (documents,) in nats.

    Running text (WikiText) is read as one stream, with h_prev crossing its articles; books are read one by one, each
    after its own <|endoftext|>. An empty document keeps its place, with a loss of 0. Tokens that are read but not
    predicted (`tokens.targets`) have no loss and do not count as scored.
    Raises ReproError if no document has a token.

    >>> from repro.data import tokeniser, tokens
    >>> books = tokens("synthetic-books", "test", tokeniser("byte", corpus="synthetic-books"), n_documents=2)
    >>> score, nll = score_documents(lambda ids: torch.zeros(*ids.shape, 64), books, window=256, overlap=0)
    >>> round(score.per_token, 3), len(nll)
    (64.0, 2)
    """
    check_progress(progress)
    streams = streams_of(tokens)
    if hasattr(model, "read_windows") and len(streams) > 1 and device_of(model).type != "cpu":
        losses = _losses_together(model, streams, window, overlap,
                                  TOGETHER if batch_size is None else batch_size, progress)
    else:
        losses = [perplexity(model, ids, window, overlap, batch_size=batch_size, progress=progress).target_nll
                  for ids in streams]
    return per_document(tokens, np.concatenate(losses))


@torch.no_grad()
def _losses_together(model, streams, window, overlap, batch_size, progress) -> list[np.ndarray]:
    """The loss (targets,) of each text under a model that carries a state: window k of several texts at a time."""
    check_window(window, overlap, context_of(model))
    check_whole(batch_size, "batch_size", of="documents")
    device, head = device_of(model), model.get_output_embeddings()
    texts = [one_text(ids, vocabulary_of(model)).to(device) for ids in streams]
    losses: list[list[Tensor]] = [[] for _ in texts]
    with evaluating(model):
        for rows, spans, hidden, _ in read_together(model, texts, window, overlap, batch_size):
            targets = torch.stack([texts[n][span.first_target:span.stop + 1]
                                   for n, span in zip(rows, spans, strict=True)])
            nll = window_nll(hidden[:, spans[0].offset:].flatten(0, 1), targets.flatten(), head).view_as(targets)
            for n, row in zip(rows, nll, strict=True):
                losses[n].append(row)
            if progress is not None:
                progress(targets.numel())
    found = [torch.cat(parts).cpu() for parts in losses]
    check_losses(torch.cat(found))
    return [each.numpy() for each in found]


def read_together(model, texts: list[Tensor], window: int, overlap: int,
                  batch_size: int) -> Iterator[tuple[list[int], list[Window], Tensor, object]]:
    """Read texts (N,) with a model that carries a state, each from its beginning, window k of several at a time. Yields
    the numbers of the texts, their windows, the hidden states (B, T, d) and the states after them."""
    covers = [windows(len(ids), window, overlap) for ids in texts]
    last: list = [None for _ in texts]
    for k in range(max(map(len, covers))):
        groups = defaultdict(list)
        for n, cover in enumerate(covers):
            if k < len(cover):
                groups[cover[k].stop - cover[k].start].append(n)
        for rows in (group[i:i + batch_size] for group in groups.values() for i in range(0, len(group), batch_size)):
            spans = [covers[n][k] for n in rows]
            ids = torch.stack([texts[n][span.start:span.stop] for n, span in zip(rows, spans, strict=True)])
            hidden, z = model._read_window(ids, together([last[n] for n in rows]) if k else None, window - overlap)
            for row, n in enumerate(rows):
                last[n] = tree_map(lambda x, row=row: x[row:row + 1], z)
            yield rows, spans, hidden, z


def together(states: list):
    """The states of single texts, joined into the state of a batch."""
    return tree_map(lambda *parts: torch.cat(parts), states[0], *states[1:])


def streams_of(tokens) -> list[np.ndarray]:
    """The texts that are read from their beginning: all running text as one, or each book that has a token."""
    check_tokens(tokens)
    nonempty = np.flatnonzero(lengths_of(tokens))
    if not len(nonempty):
        raise ReproError(f"none of the {len(tokens)} documents has a token to score.")
    return [tokens.ids] if tokens.joined else [tokens.document(k) for k in nonempty]


def per_document(tokens, target_nll: np.ndarray) -> tuple[Score, np.ndarray]:
    """The total Score and the nll (documents,), from the losses (targets,) of all tokens in document order."""
    lengths, n_scored = lengths_of(tokens), len(target_nll)
    nonempty = lengths > 0
    if tokens.targets is not None:
        counts = np.concatenate([tokens.targets[start:start + n] for start, n in zip(tokens.starts, lengths,
                                                                                      strict=True)])
        target_nll, n_scored = np.where(counts, target_nll, np.float32(0)), int(counts.sum())
    nll = np.zeros(len(tokens))
    nll[nonempty] = np.add.reduceat(target_nll.astype(np.float64), (np.cumsum(lengths) - lengths)[nonempty])
    if not n_scored:
        raise ReproError(f"none of the {len(target_nll):,} tokens is a prediction target (`targets`).")
    n_words, n_bytes = (int(counts.sum()) or None for counts in (tokens.n_words, tokens.n_bytes))  # 0: not counted
    whole = Score(float(nll.sum()), n_scored, n_words, n_bytes, target_nll)
    return whole, nll


def lengths_of(tokens) -> np.ndarray:
    """The number of tokens of each document; every book but the first has a BOS token before it."""
    return np.append(tokens.starts[1:] - (not tokens.joined), len(tokens.ids)) - tokens.starts
