"""Words that may not be the answer: the stop-word filter of LAMBADA (Radford et al. 2019, section 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Word = tuple[int, ...]  # its token ids


@dataclass
class Bar:
    """Words that are barred, and how.

    whole: a barred word may still be the beginning of a longer one (" to" of " towel"): the token that completes it
    counts with the probability that the word goes on. Otherwise words of one token are barred as first token of any
    word, which makes " towel" impossible where it is written as " to" and "wel".

    >>> from repro.data import train_bpe
    >>> coder = train_bpe(["to tow to tow"], 262)
    >>> sorted(Bar(coder, ["to"], whole=True).ends) == [tuple(coder.encode(" to")[:-1])]
    True
    """

    tokeniser: Any
    words: Sequence[str]
    whole: bool
    ends: dict[Word, list[int]] = field(init=False)  # tokens of a word so far -> those that would complete a barred one
    _goes_on: Tensor | None = field(init=False, default=None)

    def __post_init__(self):
        self.ends = {}
        for word in dict.fromkeys(word.strip() for word in self.words):
            ids = [int(token) for token in self.tokeniser.encode(f" {word}")]
            if self.whole or len(ids) == 1:
                self.ends.setdefault(tuple(ids[:-1]), []).append(ids[-1])

    def goes_on(self, n_ids: int) -> Tensor:
        """(n_ids,) bool: the tokens that lengthen a word, which begin with a letter, a digit, an apostrophe or a hyphen
        and not with a blank; a part of a character counts as a letter."""
        if self._goes_on is None or len(self._goes_on) != n_ids:
            known = min(n_ids, getattr(self.tokeniser, "vocab_size", n_ids))
            begins = [self.tokeniser.decode([k])[:1] for k in range(known)] + [""] * (n_ids - known)
            self._goes_on = torch.tensor([one.isalnum() or one in ("'", "’", "-", "\ufffd") for one in begins])
        return self._goes_on


@dataclass
class Open:
    """A token that is predicted or not depending on whether barred words go on: the barred candidates that score above
    all others, and the target among them if it is one."""

    row: int  # of the tokens that are asked for
    bar: int
    target: int
    score: float  # logit of the target
    free: float  # highest logit of what is not barred
    barred: dict[int, float]  # candidate -> logit

    def predicted(self, log_share: dict[int, float]) -> bool:
        """Whether the target has the highest score, given the log-probability that each candidate's word goes on."""
        scores = {token: logit + log_share[token] for token, logit in self.barred.items()}
        own = scores.pop(self.target, self.score)
        return own >= max(self.free, *scores.values(), float("-inf"))


def predicted(logits: Tensor, targets: Tensor, words: Sequence[Word], ends_word: Sequence[bool], bars: Sequence[Bar],
              offset: int = 0) -> tuple[Tensor, list[Open]]:
    """Whether each target has the highest of its logits (rows, V) among what is not barred, (rows, bars); and what
    depends on whether a word goes on. words: the tokens of the word before each target; ends_word: whether the target
    is the last of its word; offset: number of the first row."""
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
