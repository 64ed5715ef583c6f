"""Scoring a tokenised split and telling the loss apart by document."""

import numpy as np

from repro.errors import ReproError
from repro.evaluation.scoring import Score, perplexity


def score_documents(model, tokens, window: int, overlap: int, batch_size: int | None = None,
                    progress=None) -> tuple[Score, np.ndarray]:
    """Score a `repro.data.Tokens`; return the whole Score and the summed nll (documents,) in nats.

    Text that runs on (WikiText) is read as one stream, h_prev crossing its articles; books are read one by one, each
    after its own <|endoftext|>. A document without a token keeps its place, with a loss of 0. Tokens that are read but
    not predicted (`tokens.targets`) have no loss and are not counted as scored.
    Raises ReproError when no document has a token.
    """
    ends = [*tokens.starts[1:] - (not tokens.joined), len(tokens.ids)]  # a book's successor has a bos before it
    lengths = np.array(ends) - tokens.starts
    told = lengths > 0
    if not told.any():
        raise ReproError(f"none of the {len(tokens)} documents has a token to score.")
    streams = [tokens.ids] if tokens.joined else [tokens.document(k) for k in np.flatnonzero(told)]
    scores = [perplexity(model, ids, window, overlap, batch_size=batch_size, progress=progress) for ids in streams]
    target_nll = np.concatenate([score.target_nll for score in scores])
    n_scored = len(target_nll)
    if tokens.targets is not None:
        counts = np.concatenate([tokens.targets[start:end] for start, end in zip(tokens.starts, ends, strict=True)])
        target_nll, n_scored = np.where(counts, target_nll, np.float32(0)), int(counts.sum())
    nll = np.zeros(len(tokens))
    nll[told] = np.add.reduceat(target_nll.astype(np.float64), (np.cumsum(lengths) - lengths)[told])
    whole = Score(float(nll.sum()), n_scored, int(tokens.n_words.sum()), int(tokens.n_bytes.sum()), target_nll)
    return whole, nll
