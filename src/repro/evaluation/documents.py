"""Score a tokenized split, with the loss of each document."""

import numpy as np

from repro.errors import ReproError, check_progress
from repro.evaluation.checks import check_tokens
from repro.evaluation.scoring import Score, perplexity


def score_documents(model, tokens, window: int, overlap: int, batch_size: int | None = None,
                    progress=None) -> tuple[Score, np.ndarray]:
    """Score a `repro.data.Tokens`; return the whole Score and the summed nll (documents,) in nats.

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
    scores = [perplexity(model, ids, window, overlap, batch_size=batch_size, progress=progress)
              for ids in streams_of(tokens)]
    return per_document(tokens, np.concatenate([score.target_nll for score in scores]))


def streams_of(tokens) -> list[np.ndarray]:
    """The texts that are read from their beginning: all running text as one, or each book that has a token."""
    check_tokens(tokens)
    nonempty = np.flatnonzero(lengths_of(tokens))
    if not len(nonempty):
        raise ReproError(f"none of the {len(tokens)} documents has a token to score.")
    return [tokens.ids] if tokens.joined else [tokens.document(k) for k in nonempty]


def per_document(tokens, target_nll: np.ndarray) -> tuple[Score, np.ndarray]:
    """The whole Score and the nll (documents,), from the losses (targets,) of all tokens in document order."""
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
