"""Zero-shot tasks: a language model scores p(output | input, task as text) without training (Radford et al. 2019)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro.checked import checked
from repro.cpu import exact_products
from repro.errors import ReproError, check_method, check_progress, check_whole
from repro.evaluation.barred import Bar, Open, predicted
from repro.evaluation.checks import (
    check_causal,
    check_language_model,
    check_losses,
    check_range,
    device_of,
    list_of_ids,
    vocabulary_of,
)
from repro.evaluation.scoring import LOGIT_BYTES, as_perplexity, states_and_head
from repro.ids import evaluating
from repro.loss import cross_entropy
from repro.windows import context_of

Ids = Sequence[int]


@checked
def continuation_nll(model: Callable, prefixes: Sequence[Ids], continuations: Sequence[Ids], batch_size: int = 16,
                     progress=None) -> tuple[np.ndarray, np.ndarray]:
    """Negative log-likelihood of each continuation after its prefix, in nats, and its number of tokens.

    model: as for `perplexity`, except a `RecurrentLM`. prefixes, continuations: equally many lists of token ids.
    batch_size: texts read at once, grouped by length; it only changes speed and memory. progress: called with the
    number of texts done since the last call. Returns sums (n,) float64 and counts (n,) int64, in the given order.

    Raises ReproError for no texts, sides of different length, an empty prefix (nothing predicts the first token then)
    or continuation, texts beyond the model's context, and ids of continuations that the model does not have.

    >>> def uniform(ids):
    ...     return torch.zeros(*ids.shape, 8)
    >>> nats, n_tokens = continuation_nll(uniform, [[1, 2], [3]], [[4], [5, 6]])
    >>> nats.round(3), n_tokens
    (array([2.079, 4.159]), array([1, 2]))
    """
    check_progress(progress)
    prefixes, continuations = _checked(model, prefixes, continuations, batch_size)
    sums = np.zeros(len(prefixes))
    for k, nll, _ in _scored(model, prefixes, continuations, batch_size, (), progress):
        sums[k] = nll.double().sum().item()
    return sums, np.array([len(ids) for ids in continuations], np.int64)


@dataclass(frozen=True)
class Lambada:
    """The scores of the last words of passages."""

    nll: np.ndarray  # (n,) float64, nats of each word
    correct: np.ndarray  # (n,) bool

    @property
    def n(self) -> int:
        """The number of passages."""
        return len(self.nll)

    @property
    def accuracy(self) -> float:
        """The share of passages whose last word is predicted, 0 to 1."""
        return float(self.correct.mean())

    @property
    def perplexity(self) -> float:
        """exp of the mean nats per word; inf if a float cannot hold it."""
        return as_perplexity(self.nll.mean())


@checked
def lambada(model: Callable, tokeniser, passages: Sequence[str], stop_words: Sequence[str] = (), batch_size: int = 16,
            progress=None, whole_words: bool = True) -> Lambada:
    """Score the last word of each passage, the text after its last whitespace (Paperno et al. 2016).

    A word counts as predicted if each of its tokens is the most likely one given the tokens before it. The nats ignore
    barred words. The text before the word is read unchanged, without <|endoftext|> in front; an <|endoftext|> inside a
    passage is read like any other text.

    stop_words: barred as whole words (section 3.3 of Radford et al. 2019). The token that completes one counts with the
    probability that the word continues, so that " towel" can be predicted if " to" is a stop word. whole_words=False
    bars one-token stop words as the first token of any word instead, as this study once did.

    A space before the word is scored with it, as part of its first token; other whitespace is read before it.
    Raises ReproError for no passages, a passage that does not end in a word or has no text before it, one string
    instead of a list, and what `continuation_nll` rejects.

    >>> from types import SimpleNamespace
    >>> names = ["the", "dog", "ran", "home"]
    >>> coder = SimpleNamespace(encode=lambda text: [names.index(word) for word in text.split()])
    >>> def next_name(ids):
    ...     return 10 * torch.nn.functional.one_hot((ids + 1) % 4, 4).float()
    >>> lambada(next_name, coder, ["the dog ran home", "the dog home"]).accuracy
    0.5
    """
    return lambada_with_bars(model, tokeniser, passages, [stop_words], batch_size, progress, whole_words)[0]


def lambada_with_bars(model: Callable, tokeniser, passages: Sequence[str], bars: Sequence[Sequence[str]],
                      batch_size: int = 16, progress=None, whole_words: bool = True) -> list[Lambada]:
    """The results of `lambada` for several lists of barred words, from one reading of the passages.

    >>> from types import SimpleNamespace
    >>> names = ["the", "dog", "ran"]
    >>> coder = SimpleNamespace(encode=lambda text: [names.index(word) for word in text.split()],
    ...                         decode=lambda ids: f" {names[ids[0]]}")
    >>> def always_ran(ids):
    ...     return torch.tensor([0., 1, 2]).expand(*ids.shape, 3)
    >>> passages = ["the ran", "the dog", "dog ran"]
    >>> [one.correct.tolist() for one in lambada_with_bars(always_ran, coder, passages, [[], ["ran"]])]
    [[True, False, True], [False, True, False]]
    """
    check_progress(progress)
    for name, given in (("passages", passages), *(("stop_words", words) for words in bars)):
        if isinstance(given, str):
            raise ReproError(f"{name} is one string; give a list, such as ['{given[:40]}'].")
        for number, text in enumerate(given):
            if not isinstance(text, str):
                raise ReproError(f"{name} {number} is {text!r:.60}; it must be a text.")
    check_method(tokeniser, "tokeniser", "encode", "repro.data.tokeniser(...)")
    parts = [_last_word(number, passage) for number, passage in enumerate(passages)]
    prefixes, words = ([tokeniser.encode(part[k]) for part in parts] for k in range(2))
    prefixes, words = _checked(model, prefixes, words, batch_size)
    nats, correct = np.zeros(len(words)), np.zeros((len(bars), len(words)), bool)
    barred = [Bar(tokeniser, some, whole_words) for some in bars]
    for k, nll, hits in _scored(model, prefixes, words, batch_size, barred, progress):
        nats[k], correct[:, k] = nll.double().sum().item(), hits.all(0).numpy()
    return [Lambada(nats, flags) for flags in correct]


def _last_word(number: int, passage: str) -> tuple[str, str]:
    """The text before the last word of a passage, and that word with the space before it, if there is one."""
    found = re.fullmatch(r"(.*\S)(\s+)(\S+)", passage, re.DOTALL)
    if not found:
        raise ReproError(f"passage {number} ends in {passage[-40:]!r}; it must end in a word, with text before it "
                         "and no whitespace after it.")
    before, between, word = found.groups()
    return (before + between[:-1], f" {word}") if between.endswith(" ") else (before + between, word)


def _checked(model: Callable, prefixes: Sequence[Ids], continuations: Sequence[Ids],
             batch_size: int) -> tuple[list[Tensor], list[Tensor]]:
    """Both as lists of (N,) int64. Raises ReproError for invalid input."""
    check_language_model(model)
    if hasattr(model, "read_windows"):
        raise ReproError(f"{type(model).__name__} carries a state between windows, which this score does not use; "
                         "give a causal language model that reads each text at once.")
    check_whole(batch_size, "batch_size", of="texts")
    n_ids, context = vocabulary_of(model), context_of(model)
    prefixes, continuations = (list_of_ids(prefixes, "prefix", n_ids),
                               list_of_ids(continuations, "continuation", n_ids))
    if len(prefixes) != len(continuations):
        raise ReproError(f"there are {len(prefixes)} prefixes and {len(continuations)} continuations; give one of each "
                         "per text.")
    for number, (prefix, ids) in enumerate(zip(prefixes, continuations, strict=True)):
        if context is not None and len(prefix) + len(ids) - 1 > context:
            raise ReproError(f"text {number} has {len(prefix) + len(ids) - 1:,} tokens to read, but the model's "
                             f"context ends at {context:,}; cut its prefix.")
    return prefixes, continuations


@torch.no_grad()
def _scored(model: Callable, prefixes: list[Tensor], continuations: list[Tensor], batch_size: int,
            bars: Sequence[Bar], progress) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each text, in any order: its number, the nats (n,) of each token of its continuation, and whether that token
    is the most likely one that is not barred (n, bars)."""
    texts = [torch.cat(pair) for pair in zip(prefixes, continuations, strict=True)]
    order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
    device = device_of(model)
    with evaluating(model), exact_products(model, batch_size * len(texts[order[-1]]), device):
        check_causal(model, texts[order[-1]][:-1].to(device), states_and_head, min(batch_size, len(texts)))
        for start in range(0, len(order), batch_size):
            batch = order[start:start + batch_size]
            states, head = _read(model, [texts[k][:-1] for k in batch], [len(prefixes[k]) - 1 for k in batch], device)
            rows = [continuations[k].tolist() for k in batch]
            words = [tuple(word[:n]) for word in rows for n in range(len(word))]
            ends = [n + 1 == len(word) for word in rows for n in range(len(word))]
            targets = torch.cat([continuations[k] for k in batch]).to(device)
            nll, hits, undecided = _word_scores(states, head, targets, words, ends, bars)
            check_losses(nll)
            if undecided:
                of_row = [k for k, word in zip(batch, rows, strict=True) for _ in word]
                before = [torch.cat([prefixes[of_row[one.row]], torch.tensor(words[one.row], dtype=torch.int64)])
                          for one in undecided]
                for one, shares in zip(undecided, _going_on(model, undecided, before, bars, batch_size, device),
                                       strict=True):
                    hits[one.row, one.bar] = one.predicted(shares)
            sizes = [len(word) for word in rows]
            yield from zip(batch, nll.cpu().split(sizes), hits.cpu().split(sizes), strict=True)
            if progress is not None:
                progress(len(batch))


def _read(model: Callable, texts: Sequence[Tensor], starts: Sequence[int], device) -> tuple[Tensor, Any]:
    """The states (n, .) of each text, padded to the longest, from its own start, and the layer that turns them into
    logits."""
    ids = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    asked = torch.zeros(ids.shape, dtype=torch.bool)
    for row, (text, start) in enumerate(zip(texts, starts, strict=True)):
        ids[row, :len(text)] = text
        asked[row, start:len(text)] = True
    states, head = states_and_head(model, ids.to(device))
    return states[asked.to(device)], head


def _word_scores(states: Tensor, head, targets: Tensor, words: Sequence[tuple[int, ...]], ends: Sequence[bool],
          bars: Sequence[Bar]) -> tuple[Tensor, Tensor, list[Open]]:
    """Nats (n,) of `targets` (n,), whether each is the most likely (n, bars), and the undecided cases, computing the
    logits of a few rows at a time. words, ends: as in `predicted`."""
    n_ids = states.shape[1] if head is None else head.weight.shape[0]
    check_range(targets, "a continuation", n_ids)
    rows = max(1, LOGIT_BYTES // (4 * n_ids))
    nats, hits, undecided = [], [], []
    for start in range(0, len(targets), rows):
        part = slice(start, start + rows)
        logits = states[part] if head is None else head(states[part])
        nats.append(cross_entropy(logits, targets[part], "none"))
        found, more = predicted(logits, targets[part], words[part], ends[part], bars, start)
        hits.append(found)
        undecided += more
    return torch.cat(nats), torch.cat(hits), undecided


def _going_on(model: Callable, undecided: Sequence[Open], before: Sequence[Tensor], bars: Sequence[Bar],
              batch_size: int, device) -> list[dict[int, float]]:
    """For each undecided token, the log-probability by candidate that the word continues after it."""
    asked = [(number, token, torch.cat([text, torch.tensor([token])])[-(context_of(model) or len(text) + 1):])
             for number, (one, text) in enumerate(zip(undecided, before, strict=True)) for token in one.barred]
    found: list[dict[int, float]] = [{} for _ in undecided]
    for start in range(0, len(asked), batch_size):
        part = asked[start:start + batch_size]
        states, head = _read(model, [text for *_, text in part], [len(text) - 1 for *_, text in part], device)
        shares = (states if head is None else head(states)).float().log_softmax(1).cpu()
        for (number, token, _), row in zip(part, shares, strict=True):
            mask = bars[undecided[number].bar].goes_on(len(row))
            found[number][token] = row[mask].logsumexp(0).item() if mask.any() else float("-inf")
    return found
