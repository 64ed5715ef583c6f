"""Scoring a tokenised split and telling the loss apart by document."""

import numpy as np

from repro.evaluation.scoring import Score, perplexity


def score_documents(model, tokens, window: int, overlap: int, batch_size: int | None = None,
                    progress=None) -> tuple[Score, np.ndarray]:
    """Score a `repro.data.Tokens`; return the whole Score and the summed nll (documents,) in nats.

    Text that runs on (WikiText) is read as one stream, h_prev crossing its articles; books are read one by one, each
    after its own <|endoftext|>.
    """
    if tokens.joined:
        streams, cuts = [tokens.ids], tokens.starts - 1  # target k of the stream is token k + 1
    else:
        streams = [tokens.document(k) for k in range(len(tokens))]
        cuts = np.cumsum([0] + [len(ids) - 1 for ids in streams[:-1]])
    scores = [perplexity(model, ids, window, overlap, batch_size=batch_size, progress=progress) for ids in streams]
    target_nll = np.concatenate([score.target_nll for score in scores])
    nll = np.add.reduceat(target_nll.astype(np.float64), cuts)
    whole = Score(float(nll.sum()), len(target_nll), int(tokens.n_words.sum()), int(tokens.n_bytes.sum()), target_nll)
    return whole, nll
