"""Scoring summaries (ROUGE, repetition), and writing them: beam search with a length penalty."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from repro.errors import ReproError, check_text, check_whole

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUGE = "rouge1", "rouge2", "rougeL", "rougeLsum"
# Token ids of an input and of its summary; optionally False if the summary was truncated and has no end.
Pair = tuple[Sequence[int], Sequence[int]] | tuple[Sequence[int], Sequence[int], bool]


def padded(pairs: Sequence[Pair], separator: int) -> "dict[str, Tensor]":
    """A batch: `source` (B, L) and `lengths` (B,); `ids` (B, T), the separator and the summary, and `id_lengths` (B,);
    `labels` (B, T), the summary and the separator as its end, which a truncated summary lacks. Padding is 0, and -100
    in the labels.

    Raises ReproError for no pairs, and for ids that are not whole numbers.
    """
    import torch

    from repro.evaluation.checks import pairs_of, token_ids

    check_whole(separator, "separator", 0)
    pairs = [(source, token_ids(target, f"the summary of pair {number}"), *ended)
             for number, (source, target, *ended) in enumerate(pairs_of(pairs, "pair", "those of its summary", 3))]
    for number, (_, target, *_) in enumerate(pairs):
        if target.ndim != 1:
            raise ReproError(f"the summary of pair {number} has the shape {tuple(target.shape)}; give one row of ids.")
    pairs = [(source, target.tolist(), *ended) for source, target, *ended in pairs]
    lengths, longest = [len(source) for source, *_ in pairs], max(len(target) for _, target, *_ in pairs) + 1
    source = torch.zeros(len(pairs), max(lengths), dtype=torch.int64)
    ids, labels = torch.zeros(len(pairs), longest, dtype=torch.int64), torch.full((len(pairs), longest), -100)
    for k, (given, target, *ended) in enumerate(pairs):
        source[k, :len(given)] = given
        ids[k, :len(target) + 1] = torch.as_tensor([separator, *target])
        labels[k, :len(target) + 1] = torch.as_tensor([*target, separator if all(ended) else -100])
    return {"source": source, "lengths": torch.tensor(lengths), "ids": ids, "labels": labels,
            "id_lengths": torch.tensor([len(target) + 1 for _, target, *_ in pairs])}


def nats(model: "nn.Module", pairs: Sequence[Pair], separator: int, batch_size: int = 8) -> np.ndarray:
    """(pairs,) float64: the negative log-likelihood of each summary given its input, with its end unless it was
    truncated. Dropout is off.

    Raises ReproError for what `padded` rejects, and for a model that gives NaN.
    """
    import torch

    from repro.evaluation.checks import check_losses, device_of, pairs_of
    from repro.ids import evaluating
    from repro.loss import cross_entropy

    check_whole(batch_size, "batch_size", of="pairs")
    pairs = pairs_of(pairs, "pair", "those of its summary", 3)
    lengths = [len(source) for source, *_ in pairs]
    order, found, device = np.argsort(lengths, kind="stable"), [], device_of(model)
    with torch.no_grad(), evaluating(model):
        for start in range(0, len(order), batch_size):
            batch = padded([pairs[k] for k in order[start:start + batch_size]], separator)
            batch = {name: part.to(device) for name, part in batch.items()}
            logits = model(batch["source"], batch["lengths"], batch["ids"])
            each = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), "none")
            check_losses(each)
            found.append(each.double().view_as(batch["labels"]).sum(1))
    return torch.cat(found).cpu().numpy()[np.argsort(order)]


def written(model: "nn.Module", source: Sequence[int], separator: int, size: int = 4, alpha: float = 0.6,
            longest: int = 100) -> list[int]:
    """The summary (token ids) of one input that `beam_search` finds under a model such as `repro.models.OneText`.

    Dropout is off. Raises ReproError for an empty input, ids that are not whole numbers, and settings that
    `beam_search` rejects.
    """
    import torch

    from repro.evaluation.checks import device_of, list_of_ids
    from repro.ids import evaluating

    device = device_of(model)
    given = list_of_ids([source], "input")[0][None].to(device)
    lengths = torch.tensor([given.shape[1]], device=device)
    with torch.no_grad(), evaluating(model):
        if not hasattr(model, "encode"):
            return beam_search(_OneText(model.decoder, given), separator, separator, size, alpha, longest)
        memory = model.encode(given, lengths)

        def follow(prefixes):
            k = len(prefixes)
            logits = model.decode(_repeated(memory, k), lengths.expand(k), prefixes.to(device))
            return logits[:, -1].float().log_softmax(-1).cpu()

        return beam_search(follow, separator, separator, size, alpha, longest)


class _OneText:
    """The `follow` function of beam search for a decoder that reads each token once: the input, then every beam.

    decoder: with `extend`, such as `repro.models.Decoder`; given: the input (1, L).
    """

    def __init__(self, decoder: "nn.Module", given: "Tensor"):
        self.extend, self.past, self.device = decoder.extend, decoder.extend(given)[1], given.device
        self.read: list[list[int]] = [[]]  # the tokens in `past` after the input, one row per beam

    def __call__(self, prefixes: "Tensor") -> "Tensor":
        texts = prefixes.tolist()
        rows = [self.read.index(text[:-1]) for text in texts]
        if rows != list(range(len(self.read))):
            self.past = self.past.select(rows)
        logits, self.past = self.extend(prefixes[:, -1:].to(self.device), self.past)
        self.read = texts
        return logits.float().log_softmax(-1).cpu()


def _repeated(memory, k: int):
    """Repeat the encoding of one input for k beams: (1, L, d), and for an LSTM also its states (layers, 1, d)."""
    if not isinstance(memory, tuple):
        return memory.expand(k, -1, -1)
    states, last = memory
    return states.expand(k, -1, -1), tuple(x.expand(-1, k, -1).contiguous() for x in last)


def _words(wanted: str, summary: str) -> tuple[list[str], list[str]]:
    """The words that ROUGE compares: runs of Latin letters and digits, in lower case."""
    found = tuple(re.findall("[a-z0-9]+", check_text(text, name).lower())
                  for text, name in ((wanted, "the reference"), (summary, "the summary")))
    if not found[0] and wanted.strip():
        raise ReproError(f"ROUGE only sees Latin letters and digits, and the reference '{wanted.strip()[:40]}' has "
                         "none, so any summary would score 0; score other scripts with another metric.")
    return found


def rouge_l(wanted: str, summary: str) -> float:
    """The F1 of ROUGE-L (Lin 2004), 0 to 1: the longest common subsequence of words, in lower case, without stemming.

    It equals the package rouge-score, as a test checks; that package takes seconds to import. Both only see Latin
    letters and digits. Raises ReproError for anything but strings, and for a reference without letters or digits.
    """
    wanted, summary = _words(wanted, summary)
    if not wanted or not summary:
        return 0.0
    row = [0] * (len(summary) + 1)  # lengths for the words of `wanted` read so far and each prefix of `summary`
    for word in wanted:
        before = row
        row = [0]
        for k, other in enumerate(summary):
            row.append(before[k] + 1 if word == other else max(before[k + 1], row[k]))
    return 2 * row[-1] / (len(wanted) + len(summary))


def rouge_n(wanted: str, summary: str, n: int) -> float:
    """The F1 of ROUGE-N (Lin 2004), 0 to 1: runs of n words, in lower case, without stemming.

    Raises ReproError for what `rouge_l` rejects, and for n below 1.
    """
    check_whole(n, "n", of="words")
    wanted, summary = _words(wanted, summary)
    wanted, summary = (Counter(tuple(words[k:k + n]) for k in range(len(words) - n + 1)) for words in (wanted, summary))
    total = wanted.total() + summary.total()
    return 2 * (wanted & summary).total() / total if total else 0.0


def rouge(wanted: str, summary: str) -> dict[str, float]:
    """The F1 (0 to 1) of ROUGE-1, -2, -L and -Lsum, with stemming, by the package rouge-score, as papers print them.

    ROUGE-Lsum compares line by line. Raises ReproError for what `rouge_l` rejects, and if the package is missing.
    """
    _words(wanted, summary)
    return {name: found.fmeasure for name, found in _scorer().score(wanted, summary).items()}


@cache
def _scorer():
    try:
        from rouge_score.rouge_scorer import RougeScorer  # takes seconds to import
    except ModuleNotFoundError as error:
        if error.name != "rouge_score":
            raise
        raise ReproError("ROUGE with stemming needs the package rouge-score, which is not installed. Run: pip install "
                         "rouge-score.") from error
    return RougeScorer(list(ROUGE), use_stemmer=True)


def oracle(wanted: str, sentences: Sequence[str]) -> list[int]:
    """The sentences of a text (their numbers, in order) that make the best extract: one after another, the sentence
    that raises the sum of ROUGE-1 and ROUGE-2 most, until none does (Nallapati et al. 2017, section 4.2)."""
    chosen: list[int] = []
    best = 0.0
    while True:
        scores = {}
        for k in range(len(sentences)):
            if k not in chosen:
                extract = " ".join(sentences[one] for one in sorted([*chosen, k]))
                scores[k] = rouge_n(wanted, extract, 1) + rouge_n(wanted, extract, 2)
        top = max(scores, key=lambda k: (scores[k], -k), default=None)
        if top is None or scores[top] <= best:
            return sorted(chosen)
        best = scores[top]
        chosen.append(top)


def repetition(tokens: Sequence, n: int = 3) -> float:
    """The share of n-grams that occurred earlier in the same text; 0 for a text without n-grams.

    Raises ReproError for n below 1, and for a text that is not split into tokens.
    """
    check_whole(n, "n", of="tokens")
    if isinstance(tokens, str) or not hasattr(tokens, "__len__"):
        raise ReproError(f"tokens is {tokens!r:.60}; give a list of tokens, such as text.split().")
    grams = [tuple(tokens[k:k + n]) for k in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def beam_search(follow: Callable[["Tensor"], "Tensor"], start: int, end: int, size: int = 4, alpha: float = 0.6,
                longest: int = 100) -> list[int]:
    """The tokens of the best text found, without `start` and `end`.

    follow: maps (k, t) ids, each row beginning with `start`, to (k, V) log-probabilities of the next token. The score
    of a text of n tokens, including `end`, is its log-probability over ((5 + n) / 6)**alpha (Wu et al. 2016, section
    7); a text of `longest` tokens counts as ended. Raises ReproError for sizes below 1, an alpha that is not finite,
    and a `follow` that returns another shape or NaN.
    """
    import torch

    for name, value, least in (("size", size, 1), ("longest", longest, 1), ("start", start, 0), ("end", end, 0)):
        check_whole(value, name, least)
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not isfinite(alpha):
        raise ReproError(f"alpha is {alpha!r:.40}; it must be a finite number, such as 0.6.")
    prefixes, scores, ended = torch.tensor([[start]]), torch.zeros(1), []
    for n in range(1, longest + 1):
        nats = follow(prefixes)
        if nats.ndim != 2 or len(nats) != len(prefixes) or nats.isnan().any():
            raise ReproError(f"follow returns {tuple(nats.shape)} for {len(prefixes)} texts, {int(nats.isnan().sum())} "
                             "of these NaN; it must return the log-probabilities of all tokens for each.")
        total = scores.to(nats)[:, None] + nats
        top, at = total.flatten().topk(min(2 * size, total.numel()))  # of twice as many, enough can continue
        rows, tokens = at // nats.shape[1], at % nats.shape[1]
        penalty = ((5 + n) / 6)**alpha
        stop = (tokens == end) | (n == longest)
        for k in stop[:size].nonzero().flatten().tolist():
            text = prefixes[rows[k], 1:].tolist() + [int(tokens[k])] * (int(tokens[k]) != end)
            ended.append((float(top[k]) / penalty, text))
        go = (~stop).nonzero().flatten()[:size]
        if not len(go):
            break
        prefixes = torch.cat([prefixes[rows[go]], tokens[go, None].to(prefixes)], 1)
        scores = top[go]
        hope = float(scores[0]) / ((5 + (longest if alpha > 0 else n)) / 6)**alpha  # best that can still be reached
        if ended and max(ended)[0] >= hope:
            break
    return max(ended)[1]
