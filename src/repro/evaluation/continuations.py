"""Greedy continuations across a window boundary (Yoshida et al. 2020, section 5.3)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import check_cache, check_losses, check_tokens, device_of, token_ids, vocabulary_of
from repro.evaluation.scoring import check_decoder
from repro.hf_compat import cache_argument
from repro.ids import evaluating
from repro.windows import check_window, context_of


class Passages(NamedTuple):
    """Passages from books. ids: (n, length + beyond) tokens, in text order; books: (n,) the book index of each.

    too_short: books too short for a single passage.
    """

    ids: np.ndarray
    books: np.ndarray
    too_short: tuple[int, ...]


def sample_passages(tokens, length: int, beyond: int, n: int, seed: int = 0) -> Passages:
    """Draw `n` passages from a `repro.data.Tokens`: `length` tokens, and the `beyond` tokens that follow them.

    The first parts are disjoint: each book is split into pieces of `length` tokens, and `n` of all pieces are drawn
    without replacement. Raises ReproError if there are fewer pieces, or if `n` is below 1.
    """
    check_tokens(tokens)
    for name, value, least in (("length", length, 1), ("beyond", beyond, 0), ("n", n, 1), ("seed", seed, 0)):
        check_whole(value, name, least)
    streams = [tokens.document(k)[1:] for k in range(len(tokens))]  # without <|endoftext|>
    rooms = [max(0, len(ids) - beyond) // length for ids in streams]
    if sum(rooms) < n:
        raise ReproError(f"{n:,} passages were requested, but the {len(streams)} books have only {sum(rooms):,} of "
                         f"{length} tokens and {beyond} more; ask for fewer or shorter ones.")
    places = [(book, i * length) for book, room in enumerate(rooms) for i in range(room)]
    chosen = np.sort(np.random.default_rng(seed).choice(len(places), n, replace=False))
    ids = np.stack([streams[book][start:start + length + beyond] for book, start in map(places.__getitem__, chosen)])
    return Passages(ids.astype(np.int64), np.array([places[k][0] for k in chosen]),
                    tuple(book for book, room in enumerate(rooms) if not room))


@torch.no_grad()
def continue_contexts(model: nn.Module, contexts, n_new: int, memory: bool = True, batch_size: int = 64,
                      progress=None) -> np.ndarray:
    """Greedy continuations (n, n_new) of `contexts` (n, T + 1) after the window boundary.

    The first T tokens are a full window. The next window contains only the last token before it is continued: a plain
    model starts from this one token, as in the paper; a `RecurrentLM` also has h_prev of the T tokens before, unless
    `memory` is False. progress: called with the number of contexts done since the last call.
    Raises ReproError for contexts of fewer than two tokens, ids that the model does not have, a model without a
    key/value cache, or continuations longer than the second window.
    """
    check_progress(progress)
    check_decoder(model)
    contexts = token_ids(contexts, "contexts", vocabulary_of(model))
    if contexts.ndim != 2 or contexts.shape[1] < 2 or not len(contexts):
        raise ReproError(f"contexts have shape {tuple(contexts.shape)}; give (contexts, window + 1) tokens.")
    window = contexts.shape[1] - 1
    check_window(window, 0, context_of(model))
    check_whole(n_new, "n_new", 1, window, of="tokens")
    check_whole(batch_size, "batch_size", of="contexts")
    recurrent, written = hasattr(model, "read_windows"), []
    if not recurrent:
        check_cache(model)
    with evaluating(model):
        for batch in contexts.to(device_of(model)).split(batch_size):
            start = batch if recurrent and memory else batch[:, -1:]
            new = model.generate(start, n_new, window=window)[:, -n_new:] if recurrent else _greedy(model, start, n_new)
            written.append(new.cpu())
            if progress is not None:
                progress(len(batch))
    return torch.cat(written).numpy()


def _greedy(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    """The most likely next token, `n_new` times. transformers' `generate` would stop at <|endoftext|>."""
    from transformers import DynamicCache

    cache, new = DynamicCache(), []
    for _ in range(n_new):
        logits = model(input_ids=ids, **cache_argument(cache), use_cache=True).logits[:, -1]
        check_losses(logits)
        ids = logits.float().argmax(-1, keepdim=True)
        new.append(ids)
    return torch.cat(new, 1)
