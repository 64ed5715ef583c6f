"""A control for state carried between windows: the same text, with the state of another document."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from repro.cpu import exact_products
from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import check_losses, device_of, one_text, vocabulary_of
from repro.evaluation.documents import lengths_of, per_document, read_together, streams_of, together
from repro.evaluation.scoring import BATCH, Score, window_nll
from repro.ids import evaluating
from repro.windows import Window, check_window, context_of, windows


@torch.no_grad()
def score_other_document(model, tokens, window: int, overlap: int, batch_size: int | None = None,
                         progress=None) -> tuple[Score, np.ndarray]:
    """Score a `repro.data.Tokens` as `score_documents` does, but every window sees the state of another document.

    model: a `RecurrentLM`, or another model with `_read_window`. Window k of a document sees the state after window
    k - 1 of the other document, which is read separately from its beginning and repeated if it is shorter. The other
    document is the next one (after the last, the first) that shares no text with the window: in running text, a window
    can contain the end of an article and the beginning of the next. The first window of a text has no state, as usual.
    The first window of an article inside running text normally sees the end of the previous article; here it sees the
    end of the other document.

    The text is read twice: to compute the states, then to score with them. batch_size: windows read at once.
    Raises ReproError if a window overlaps every document, for instance if there is only one.

    >>> from repro.data import tokeniser, tokens
    >>> from repro.recurrence import RecurrentLM
    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=64, n_layer=2, n_head=2, n_embd=8)).eval()
    >>> books = tokens("synthetic-books", "test", tokeniser("byte", corpus="synthetic-books"), n_documents=2)
    >>> score, nll = score_other_document(model, books, window=512, overlap=0)
    >>> len(nll), bool(nll.sum() == score.nll)
    (2, True)
    """
    check_progress(progress)
    if not hasattr(model, "_read_window"):
        raise ReproError(f"model is a {type(model).__name__}, which carries no state between windows; give a "
                         "RecurrentLM.")
    check_window(window, overlap, context_of(model))
    device, n_ids = device_of(model), vocabulary_of(model)
    batch_size = check_whole(BATCH.get(device.type, 16) if batch_size is None else batch_size, "batch_size",
                             of="windows")
    streams = [one_text(ids, n_ids).to(device) for ids in streams_of(tokens)]
    with evaluating(model), exact_products(model, batch_size * window, device):
        alone = streams if not tokens.joined else [
            one_text(tokens.document(k), n_ids).to(device) for k in range(len(tokens))]
        carried = states(model, [ids for ids in alone if len(ids) > 1], window, overlap, batch_size)
        target_nll = _read_given(model, streams, given(tokens, window, overlap), carried, window, overlap,
                                 batch_size, progress)
    check_losses(torch.from_numpy(target_nll))
    return per_document(tokens, target_nll)


def states(model, texts: list[Tensor], window: int, overlap: int, batch_size: int) -> list[list]:
    """The model's state after each window of each of `texts` (N,), read in parallel, each from its beginning."""
    found = [[] for _ in texts]
    for rows, _, _, z in read_together(model, texts, window, overlap, batch_size):
        for row, n in enumerate(rows):
            found[n].append(tree_map(lambda x, row=row: x[row:row + 1], z))
    return found


def given(tokens, window: int, overlap: int) -> list[list[tuple[int, int] | None]]:
    """For each window of each text, the state it sees: (document, number of its window), None for a first window.

    Empty documents are not counted.
    """
    lengths = lengths_of(tokens)
    starts = tokens.starts[lengths > 0]
    n_windows = [len(windows(1 + n, window, overlap)) for n in lengths[lengths > 0]]
    found = []
    for text, ids in enumerate(streams_of(tokens)):
        begun, sources = defaultdict(int), []
        for k, span in enumerate(windows(len(ids), window, overlap)):
            first, last = text, text
            if tokens.joined:
                first, last = (max(0, int(np.searchsorted(starts, at, "right")) - 1) for at in (span.start, span.stop))
            other = (last + 1) % len(starts)
            if last - first + 1 >= len(starts):
                raise ReproError(f"window {k} overlaps all {len(starts)} documents with text, so no other document can "
                                 "provide its state; give more documents.")
            sources.append((other, (begun[first] - 1) % n_windows[other]) if k else None)
            begun[first] += 1
        found.append(sources)
    return found


def _read_given(model, streams, sources, carried, window, overlap, batch_size, progress) -> np.ndarray:
    """Loss of every target of every stream, (targets,) in nats, in the order of the text."""
    head = model.get_output_embeddings()
    before = np.cumsum([0, *(len(ids) - 1 for ids in streams)])
    target_nll = np.empty(before[-1], np.float32)
    groups: dict[tuple, list[tuple[int, Window, tuple | None]]] = defaultdict(list)
    for n, ids in enumerate(streams):
        for span, source in zip(windows(len(ids), window, overlap), sources[n], strict=True):
            shapes = source and tuple(x.shape for x in tree_leaves(carried[source[0]][source[1]]))  # some states grow
            groups[span.stop - span.start, span.offset, shapes].append((n, span, source))
    for group in groups.values():
        for some in (group[i:i + batch_size] for i in range(0, len(group), batch_size)):
            ids = torch.stack([streams[n][span.start:span.stop] for n, span, _ in some])
            z = None if some[0][2] is None else together([carried[other][k] for _, _, (other, k) in some])
            hidden, _ = model._read_window(ids, z, window - overlap)
            targets = torch.stack([streams[n][span.first_target:span.stop + 1] for n, span, _ in some])
            nll = window_nll(hidden[:, some[0][1].offset:].flatten(0, 1), targets.flatten(), head)
            for (n, span, _), row in zip(some, nll.view_as(targets).cpu().numpy(), strict=True):
                target_nll[before[n] + span.first_target - 1:before[n] + span.stop] = row
            if progress is not None:
                progress(targets.numel())
    return target_nll
