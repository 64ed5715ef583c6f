"""Checks of the inputs and outputs of scores: models, token ids, counts and losses."""

import inspect
from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repro import hf_compat
from repro.errors import ReproError, is_series

PROBE = 16  # tokens read to test whether a model is causal
REPEATS = 5  # a model is rejected if it looks ahead in each of these tests, with other tokens
ROUNDING = 0.25, 100  # rounding errors: smaller changes are noise, larger ones are not
SHARE = 0.25  # in between, a change below this share of the effect of earlier tokens is noise


def device_of(model: Any) -> torch.device:
    """The device of a model's weights; the CPU for a model without weights."""
    return next((p.device for p in model.parameters()), torch.device("cpu")) if isinstance(model, nn.Module) else \
        torch.device("cpu")


def vocabulary_of(model: Any) -> int | None:
    """The number of token ids that a model can read; None if unknown."""
    try:
        return model.get_input_embeddings().weight.shape[0]
    except (AttributeError, NotImplementedError):
        return written_vocabulary(model)


def written_vocabulary(model: Any) -> int | None:
    """The `vocab_size` of a model's config; None without one."""
    config = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = getattr(config, "vocab_size", None)
    return found if isinstance(found, int) else None


def token_ids(values: Any, name: str, n_ids: int | None = None) -> Tensor:
    """`values` as int64, of any shape. Raises ReproError for a string, for anything but whole numbers, and for ids
    outside 0 to `n_ids` - 1."""
    if isinstance(values, str):
        raise ReproError(f"{name} is a text ('{values[:20]}'); encode it first with the model's tokenizer.")
    try:
        ids = values if isinstance(values, Tensor) else np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ReproError(f"{name} cannot be converted to token ids ({str(error).splitlines()[0]:.80}); give whole "
                         "numbers.") from None
    if isinstance(ids, np.ndarray) and (ids.dtype.kind in "iu" or not ids.size):
        ids = torch.from_numpy(ids.astype(np.int64))
    if not isinstance(ids, Tensor) or ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise ReproError(f"{name} has dtype {ids.dtype}; token ids must be whole numbers, such as int64.")
    ids = ids.long()
    if ids.numel():
        check_range(ids, name, n_ids)
    return ids


def check_range(ids: Tensor, name: str, n_ids: int | None) -> None:
    """Raise ReproError unless all ids are at least 0 and, if `n_ids` is known, below it."""
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or n_ids is not None and high >= n_ids:
        known = "token ids start at 0" if n_ids is None else f"the model knows 0 to {n_ids - 1:,}"
        raise ReproError(f"{name} holds token id {low if low < 0 else high}, but {known}; encode the text with the "
                         "model's tokenizer, and remove padding such as -100.")


def one_text(tokens: Any, n_ids: int | None = None) -> Tensor:
    """`tokens`, (N,) or (1, N), as (N,) int64. Raises ReproError for several texts and for what `token_ids` rejects."""
    ids = token_ids(tokens, "tokens", n_ids)
    if ids.ndim == 2 and len(ids) == 1:
        return ids[0]
    if ids.ndim != 1:
        raise ReproError(f"tokens has shape {tuple(ids.shape)}; give one text of shape (N,), and score several texts "
                         "one by one.")
    return ids


def list_of_ids(texts: Any, name: str, n_ids: int | None = None) -> list[Tensor]:
    """Each of `texts`, lists of token ids, as (N,) int64. Raises ReproError for an empty list, for an empty text, and
    for what `token_ids` rejects."""
    if not is_series(texts):
        raise ReproError(f"the {name} list is {texts!r:.60}; give a list with the token ids of each {name}.")
    found = [token_ids(ids, f"{name} {number}", n_ids) for number, ids in enumerate(texts)]
    if not found:
        raise ReproError(f"there is no {name}; give at least one list of token ids.")
    for number, ids in enumerate(found):
        if ids.ndim != 1 or not len(ids):
            raise ReproError(f"{name} {number} has shape {tuple(ids.shape)}; give a list of at least one token id.")
    return found


def pairs_of(pairs: Any, name: str, second: str, most: int = 2) -> list[tuple]:
    """Each of `pairs`, token ids and something else, up to `most` entries, with its ids as (N,) int64. Raises
    ReproError for an empty list, for anything but a pair, for an empty text, and for what `token_ids` rejects."""
    if not is_series(pairs):
        raise ReproError(f"the {name} list is {pairs!r:.60}; give pairs of token ids and {second}.")
    found = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or not 2 <= len(pair) <= most:
            raise ReproError(f"{name} {number} is {pair!r:.60}; give a pair of token ids and {second}.")
        ids = token_ids(pair[0], f"{name} {number}")
        if ids.ndim != 1 or not len(ids):
            raise ReproError(f"{name} {number} has ids of shape {tuple(ids.shape)}; give one list of at least one.")
        found.append((ids, *pair[1:]))
    if not found:
        raise ReproError(f"there is no {name}; give at least one pair of token ids and {second}.")
    return found


def check_language_model(model: Any) -> None:
    """Raise ReproError for a model that cannot be called, and for an encoder-decoder, which reads the whole text before
    it predicts."""
    if not callable(model):
        raise ReproError(f"model is {model!r:.60}; give a causal language model, or a function from token ids (B, T) "
                         "to logits (B, T, V).")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False) is True:
        raise ReproError(f"{type(model).__name__} is an encoder-decoder, which reads the whole text before it "
                         "predicts; give a causal language model.")


def logits_of(model: Any, ids: Tensor) -> Tensor:
    """The logits (B, T, V) of a model for ids (B, T). Raises ReproError if it returns something else."""
    found = model(ids, use_cache=False) if _takes(model, "use_cache") else model(ids)
    logits = getattr(found, "logits", found)
    returned = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__} without logits"
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
        raise ReproError(f"{_name(model)} returns {returned} for token ids {tuple(ids.shape)}; a language model "
                         f"returns logits ({ids.shape[0]}, {ids.shape[1]}, V). Give one with a language-modeling head.")
    if logits.shape[2] < (written_vocabulary(model) or 0):
        raise ReproError(f"{_name(model)} returns {logits.shape[2]:,} scores per token, but its vocabulary has "
                         f"{written_vocabulary(model):,} ids; give a model with a language-modeling head.")
    return logits


def check_tokens(tokens: Any) -> None:
    """Raise ReproError for anything but `repro.data.Tokens`."""
    if not all(hasattr(tokens, name) for name in ("ids", "starts", "n_words", "n_bytes", "joined")):
        raise ReproError(f"tokens is a {type(tokens).__name__}; give a split from repro.data.tokens(...), or "
                         "score one text with repro.evaluation.perplexity.")


def check_cache(model: Any) -> None:
    """Raise ReproError for a model without transformers' key/value cache, which would see only the last token."""
    if not hasattr(model, "config") or not _takes(model, hf_compat.cache_name()):
        raise ReproError(f"{_name(model)} does not use transformers' key/value cache; give a causal language model, "
                         "such as AutoModelForCausalLM loads.")


@torch.no_grad()
def check_causal(model: Any, ids: Tensor, states_and_head: Callable, rows: int = 1) -> None:
    """Raise ReproError for a model whose states depend on later tokens, such as a masked model, which sees what it
    predicts.

    It reads the first tokens of the text `ids` (N,) twice unchanged, once with other tokens in the first half, and with
    other tokens from the middle, from the second-to-last and from the last token on. The model looks ahead if states
    before such a change move by more than two equal readings differ, and by more than rounding. The threshold is a
    share of the effect of the first half on the second, because a leak moves states as much as a legitimate dependence
    does, even in 16 bits. A model that seems to look ahead is tested again with other tokens. A function reads `rows`
    texts at a time, the batch size of its caller; a stateful function keeps the state of these readings.

    Also raises ReproError for a function that fails on these texts.
    """
    ids = ids[:PROBE]
    values = ids.unique()
    if len(ids) < 2 or len(values) < 2:
        return
    middle, n = len(ids) // 2, len(ids)
    cuts = sorted({middle, max(1, n - 2), n - 1})
    rows = len(cuts) + 3 if hasattr(model, "config") else rows
    lowest, noise = torch.full((len(cuts), n), torch.inf, device=ids.device), 0.0
    for repeat in range(REPEATS):
        step = 1 + repeat % (len(values) - 1)
        other = values[(torch.searchsorted(values, ids) + step) % len(values)]
        batch = ids.repeat(-(-(len(cuts) + 3) // rows) * rows, 1)  # complete batches: the rest is read unchanged
        batch[0, :middle] = other[:middle]
        for row, cut in enumerate(cuts, 1):
            batch[row, cut:] = other[cut:]
        states, eps = _states(model, batch, states_and_head, rows)
        moved = (states - states[-1]).abs().mean(2)
        early, moved, equal = moved[0, middle:].max(), moved[1:len(cuts) + 1], moved[len(cuts) + 1:]
        noise = torch.maximum(equal.max(), torch.as_tensor(noise, device=equal.device))
        least, most = (errors * eps * states[-1].abs().mean() for errors in ROUNDING)
        seen = moved - torch.maximum(least, torch.minimum(most, SHARE * early))
        lowest = torch.minimum(lowest.to(seen.device), seen)
        if not any((lowest[row, :cut] > 2 * noise).any() for row, cut in enumerate(cuts)):
            return
    raise ReproError(f"{_name(model)} is not causal: its output changes when a later token does, so it sees the "
                     "tokens that it must predict. Give a causal language model.")


def _states(model: Any, batch: Tensor, states_and_head: Callable, rows: int) -> tuple[Tensor, float]:
    """The states (B, T, .) of a batch read `rows` texts at a time, as float32, and the size of their rounding errors,
    given by the coarsest dtype that they went through."""
    try:
        states = torch.cat([states_and_head(model, part)[0] for part in batch.split(rows)])
    except Exception as error:
        if isinstance(error, ReproError) or isinstance(model, nn.Module):
            raise
        line = (str(error).splitlines() or [""])[0]
        raise ReproError(f"{_name(model)} fails with {type(error).__name__} ({line:.80}) for token ids ({rows}, "
                         f"{batch.shape[1]}), read to see whether it is causal; a language model reads texts of any "
                         "length up to its window.") from error
    types = {states.dtype}
    if isinstance(model, nn.Module):
        types |= {weight.dtype for weight in model.parameters()}
    if torch.is_autocast_enabled(batch.device.type):
        types.add(torch.get_autocast_dtype(batch.device.type))
    eps = max(torch.finfo(one).eps for one in types if one.is_floating_point)
    return states.float().nan_to_num(torch.nan, 0, 0), eps  # -inf: a token that is never predicted


def check_losses(nll: Tensor) -> None:
    """Raise ReproError if a loss is NaN, because the model diverged or because 16 bits overflowed."""
    lost = nll.isnan().flatten().nonzero()
    if len(lost):
        raise ReproError(f"the loss of {len(lost):,} of {nll.numel():,} targets is NaN, the first at "
                         f"target {int(lost[0])}; check the model's weights, or score in float32.")


def check_count(value: Any, name: str) -> None:
    """Raise ReproError unless a count to divide by is None or a finite number above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not 0 < value
                              or not isfinite(value)):
        raise ReproError(f"{name} is {value!r:.40}; it must be a number above 0, or None if it is unknown.")


def _takes(model: Any, argument: str) -> bool:
    """Whether the forward of a module has an argument of this name."""
    return isinstance(model, nn.Module) and argument in inspect.signature(type(model).forward).parameters


def _name(model: Any) -> str:
    return getattr(model, "__name__", type(model).__name__)
