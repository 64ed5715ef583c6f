"""Perplexity at any window overlap, with every target scored once (Yoshida et al. 2020, section 4)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from repro.cpu import exact_products
from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import (
    PROBE,
    check_causal,
    check_count,
    check_language_model,
    check_losses,
    check_range,
    device_of,
    logits_of,
    one_text,
    vocabulary_of,
)
from repro.hf_compat import changed_logits
from repro.ids import evaluating
from repro.loss import cross_entropy
from repro.windows import Window, check_window, context_of, same_shape, windows

# Logits come unchanged from the output embedding.
PLAIN_HEADS = ("gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma3_text")
BATCH = {"cpu": 4}
LOGIT_BYTES = 64 * 2**20  # logits in memory at any time; small enough to fit a CPU cache


@dataclass(frozen=True)
class Score:
    """The summed loss of a text and its normalizers. `per_token` and `per_word` are perplexities.

    Raises ReproError for a loss that is not a number, no scored targets, and word or byte counts that are not above 0.

    >>> score = Score(nll=300.0, n_scored=100, n_words=80, n_bytes=450)
    >>> round(score.per_token, 2), round(score.per_word, 2), round(score.bits_per_byte, 3)
    (20.09, 42.52, 0.962)
    """

    nll: float  # nats, summed over all scored targets
    n_scored: int  # targets scored, in tokens
    n_words: int | None = None
    n_bytes: int | None = None
    target_nll: np.ndarray = field(default=None, repr=False, compare=False)  # (targets,) float32, nats, in text order

    def __post_init__(self) -> None:
        if isinstance(self.nll, bool) or not isinstance(self.nll, Real) or math.isnan(self.nll):
            raise ReproError(f"nll is {self.nll!r:.40}; it must be a number of nats.")
        check_whole(self.n_scored, "n_scored", of="targets")
        check_count(self.n_words, "n_words")
        check_count(self.n_bytes, "n_bytes")

    @property
    def per_token(self) -> float:
        """Perplexity per token of the model's tokenizer; not comparable between tokenizers."""
        return as_perplexity(self.nll / self.n_scored)

    @property
    def per_word(self) -> float | None:
        """Perplexity per original word: the same summed loss over `n_words`; None if that was not given."""
        return None if self.n_words is None else as_perplexity(self.nll / self.n_words)

    @property
    def bits_per_byte(self) -> float | None:
        """Loss in bits per byte of the original text; None if `n_bytes` was not given."""
        return None if self.n_bytes is None else self.nll / math.log(2) / self.n_bytes


@torch.no_grad()
def perplexity(model, tokens, window: int, overlap: int, n_words: float | None = None, n_bytes: float | None = None,
               batch_size: int | None = None, progress=None) -> Score:
    """Score `tokens` (N,) in windows of `window` tokens that share `overlap` tokens with the previous one.

    model: a transformers causal language model, a `RecurrentLM` (its windows are read in order and carry
    h_prev), or any callable from token ids (B, T) to logits (B, T, V), or to an object with `.logits`.
    n_words, n_bytes: of the original text, for perplexity per word and bits per byte. batch_size: windows read at once;
    it only changes speed and memory (default: 4 on a CPU, where more do not fit the cache, and 16 elsewhere).
    progress: called with the number of targets scored since the last call.

    Logits are computed for scored positions only, in chunks, so nothing of size N x vocabulary is stored. On a CPU,
    large float32 products take the fastest exact path (`repro.cpu`).
    tokens: whole numbers, (N,) or (1, N). Raises ReproError for other types, several texts, fewer than two tokens and
    ids that the model does not have. Raises it also for a model that gives no logits, sees later tokens (such as a
    masked model) or gives NaN, and unless `0 <= overlap < window <=` the model's context.

    >>> def uniform(ids):
    ...     return torch.zeros(*ids.shape, 8)
    >>> score = perplexity(uniform, torch.arange(100) % 8, window=16, overlap=4, n_words=50)
    >>> score.n_scored, round(score.per_token, 6), round(score.per_word, 3)
    (99, 8.0, 61.393)
    """
    check_progress(progress)
    check_language_model(model)
    check_window(window, overlap, context_of(model))
    check_count(n_words, "n_words")  # checked before the model runs
    check_count(n_bytes, "n_bytes")
    device = device_of(model)
    batch_size = check_whole(BATCH.get(device.type, 16) if batch_size is None else batch_size, "batch_size",
                             of="windows")
    tokens = one_text(tokens, vocabulary_of(model)).to(device)
    if len(tokens) < 2:
        raise ReproError(f"a text of {len(tokens)} token(s) has nothing to score; give at least 2.")
    scored = []
    with evaluating(model), exact_products(model, batch_size * window, device):
        for batch, states, head in _read(model, tokens, windows(len(tokens), window, overlap), batch_size):
            targets = torch.cat([tokens[w.first_target:w.stop + 1] for w in batch])
            scored.append(window_nll(states.flatten(0, 1), targets, head).cpu())
            if progress is not None:
                progress(len(targets))
    target_nll = torch.cat(scored)
    check_losses(target_nll)
    return Score(target_nll.double().sum().item(), len(target_nll), n_words, n_bytes, target_nll.numpy())


def _read(model, tokens: Tensor, cover: list[Window], batch_size: int) -> Iterator[tuple[list[Window], Tensor, object]]:
    """Yield windows, their states at the scored positions (B, n_scored, .) and the layer that turns them into
    logits."""
    if hasattr(model, "read_windows"):  # recurrent: the order of the windows matters
        head = model.get_output_embeddings()
        for window, hidden in zip(cover, model.read_windows(tokens[None], cover), strict=True):
            yield [window], hidden[:, window.offset:], head
        return
    shapes = same_shape(cover)
    check_causal(model, tokens[:cover[0].stop], states_and_head, min(batch_size, len(shapes[0])))
    for same in shapes:
        offset = same[0].offset
        for batch in (same[i:i + batch_size] for i in range(0, len(same), batch_size)):
            states, head = states_and_head(model, torch.stack([tokens[w.start:w.stop] for w in batch]))
            yield batch, states[:, offset:], head


def check_decoder(model) -> None:
    """Raise ReproError unless a first reading of a few ids shows a causal language model with a config."""
    check_language_model(model)
    if not hasattr(model, "config"):
        raise ReproError(f"model is a {type(model).__name__} without a config; give a causal language model of "
                         "transformers, or a RecurrentLM.")
    if not hasattr(model, "read_windows"):
        n = min(PROBE, vocabulary_of(model) or 0, context_of(model) or PROBE)
        with evaluating(model):
            check_causal(model, torch.arange(n, device=device_of(model)), states_and_head)


def states_and_head(model, ids: Tensor) -> tuple[Tensor, object]:
    """States (B, T, .) of ids (B, T) and the output layer that turns them into logits; None if they are logits.

    A class whose logits are `output(hidden(ids))` sets `hidden_then_output`, as `repro.models.GPT` does, because other
    modules also have layers with these names.
    """
    config = getattr(model, "config", None)
    known = getattr(config, "model_type", None) in PLAIN_HEADS and not changed_logits(config)
    if known and hasattr(model, "get_output_embeddings"):  # a wrapper may have its config but not its layers
        head = model.get_output_embeddings()  # None: another head, which `logits_of` rejects
        read = None if head is None else model.base_model(input_ids=ids, use_cache=False)
        if hasattr(read, "last_hidden_state"):
            return read.last_hidden_state, head
    if getattr(type(model), "hidden_then_output", False):
        return model.hidden(ids), model.output
    return logits_of(model, ids), None


def window_nll(states: Tensor, targets: Tensor, head) -> Tensor:
    """Negative log-likelihood (n,) in nats of `targets` (n,), computing the logits of a few rows at a time.

    Raises ReproError for targets beyond the vocabulary of the logits.
    """
    vocabulary = states.shape[-1] if head is None else head.weight.shape[0]
    check_range(targets, "the text", vocabulary)
    rows = max(1, LOGIT_BYTES // (4 * vocabulary))
    parts = []
    for some, wanted in zip(states.split(rows), targets.split(rows), strict=True):
        logits = some if head is None else head(some)
        parts.append(cross_entropy(logits, wanted, "none"))
    return torch.cat(parts)


def as_perplexity(mean_nll: float) -> float:
    """exp(mean_nll), or inf if a float would overflow."""
    try:
        return math.exp(mean_nll)
    except OverflowError:
        return math.inf
