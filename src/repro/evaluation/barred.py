"""Words that are excluded as answers: the stop-word filter of LAMBADA (Radford et al. 2019, section 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Word = tuple[int, ...]  # its token ids


@dataclass
class Bar:
    """A set of barred words.

    whole: a barred word may still begin a longer one (" to" in " towel"): the token that completes it counts with the
    probability that the word continues. Otherwise, one-token words are barred as the first token of any word, which
    makes " towel" impossible if its tokens are " to" and "wel".

    >>> from repro.data import train_bpe
    >>> coder = train_bpe(["to tow to tow"], 262)
    >>> sorted(Bar(coder, ["to"], whole=True).ends) == [tuple(coder.encode(" to")[:-1])]
    True
    """

    tokeniser: Any
    words: Sequence[str]
    whole: bool
    ends: dict[Word, list[int]] = field(init=False)  # tokens of a word so far -> tokens that complete a barred one
    _goes_on: Tensor | None = field(init=False, default=None)

    def __post_init__(self):
        self.ends = {}
        for word in dict.fromkeys(word.strip() for word in self.words):
            ids = [int(token) for token in self.tokeniser.encode(f" {word}")]
            if self.whole or len(ids) == 1:
                self.ends.setdefault(tuple(ids[:-1]), []).append(ids[-1])

    def goes_on(self, n_ids: int) -> Tensor:
        """(n_ids,) bool: the tokens that continue a word. They begin with a letter, digit, apostrophe or hyphen, not
        with a space; part of a character counts as a letter."""
        if self._goes_on is None or len(self._goes_on) != n_ids:
            known = min(n_ids, getattr(self.tokeniser, "vocab_size", n_ids))
            begins = [self.tokeniser.decode([k])[:1] for k in range(known)] + [""] * (n_ids - known)
            self._goes_on = torch.tensor([one.isalnum() or one in ("'", "’", "-", "\ufffd") for one in begins])
        return self._goes_on


@dataclass
class Open:
    """A token whose prediction depends on whether barred words continue, with the barred candidates that score above
    all others; the target may be one of them."""

    row: int  # index among the requested tokens
    bar: int
    target: int
    score: float  # logit of the target
    free: float  # highest logit that is not barred
    barred: dict[int, float]  # candidate -> logit

    def predicted(self, log_share: dict[int, float]) -> bool:
        """Whether the target has the highest score, given the log-probability that each candidate's word continues."""
        scores = {token: logit + log_share[token] for token, logit in self.barred.items()}
        own = scores.pop(self.target, self.score)
        return own >= max(self.free, *scores.values(), float("-inf"))


def predicted(logits: Tensor, targets: Tensor, words: Sequence[Word], ends_word: Sequence[bool], bars: Sequence[Bar],
              offset: int = 0) -> tuple[Tensor, list[Open]]:
    """Whether each target has the highest logit (rows, V) that is not barred, (rows, bars), and the cases that depend
    on whether a word continues. words: the tokens of the word before each target; ends_word: whether the target is the
    last token of its word; offset: number of the first row."""
    hits, undecided = targets.new_empty(len(targets), len(bars), dtype=torch.bool), []
    for number, bar in enumerate(bars):
        rows = [(row, bar.ends[word]) for row, word in enumerate(words) if word in bar.ends]
        left = logits.clone() if rows else logits
        for row, barred in rows:
            left[row, barred] = -torch.inf
        free, best = left.max(1)
        hits[:, number] = best == targets
        for row, barred in rows if bar.whole else ():
            target, highest = int(targets[row]), free[row].item()
            score = logits[row, target].item()
            if target in barred and (ends_word[row] or score < highest) or target not in barred and not hits[
                    row, number]:
                continue
            found = {token: logit for token, logit in zip(barred, logits[row, barred].tolist(), strict=True)
                     if logit > highest or token == target}
            if found:
                undecided.append(Open(offset + row, number, target, score, highest, found))
    return hits, undecided
