"""Answers cut from a text: where tokens come from, a head that finds starts and ends, and the best span in words."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.errors import ReproError
from repro.papers.longformer2020.tasks.frame import Task, base_of, words_of
from repro.papers.longformer2020.tasks.reader import Example, Words

if TYPE_CHECKING:
    from torch import Tensor

NOWHERE = -1  # the source of a token that no answer contains, such as a title or a marker


@dataclass
class Laid:
    """A text laid out in tokens. Each token knows its source, by number, and its first character there and the one
    after its last."""

    words: Words
    ids: list[int] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, text: str, source: int = NOWHERE, start: int = 0) -> range:
        """Append a text, which begins at character `start` of its source; returns the positions of its tokens."""
        first = len(self.ids)
        self.ids += self.words.encode(text)
        self.places += [(source, start + a, start + b) for a, b in self.words.coder.offsets(text).tolist()]
        return range(first, len(self.ids))

    def mark(self, token: int) -> int:
        """Append one special token; returns its position."""
        self.ids.append(token)
        self.places.append((NOWHERE, 0, 0))
        return len(self.ids) - 1

    def spans(self, found: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """The first and last token that hold each of these: a source, its first character, and the one after the last.

        Raises ReproError if no token does.
        """
        source, first, last = np.array(self.places).reshape(-1, 3).T
        spans = []
        for number, start, stop in found:
            inside = np.flatnonzero((source == number) & (last > start) & (first < stop))
            if not len(inside):
                raise ReproError(f"characters {start} to {stop - 1} of text {number} are in no token; give a span "
                                 "inside the text.")
            spans.append((int(inside[0]), int(inside[-1])))
        return spans


@dataclass(frozen=True)
class Answers:
    """Where the right answers of a text are, and the source of each of its tokens; positions count in the context.

    spans: first and last token of each. places: as in `Laid`. sources: the texts by number. rest: what else a task
    looks for.
    """

    spans: Sequence[tuple[int, int]]
    places: Sequence[tuple[int, int, int]]
    sources: Sequence[str]
    rest: Any = None

    def words(self, first: int, last: int) -> str:
        """The text of tokens `first` to `last`, as their source spells it."""
        source, start, _ = self.places[first]
        return self.sources[source][start:self.places[last][2]].strip()


@dataclass(frozen=True)
class SpanTask(Task):
    """Questions whose answers are cut from a text."""

    unit: str = "question"

    def known(self, config: Any, rows: dict[str, list]) -> dict[str, float]:
        return best_scores(config, self, rows["test"])


# Settings of all questions whose answers are spans, by scale.
SMOKE = {"corpus": "synthetic-far-hops", "max_positions": 192, "window": 64, "n_train": 1_440, "held_out": 64,
         "epochs": 1, "batch_size": 16, "learning_rate": 5e-3, "optimizer": "muon", "cut": 16}
PRETRAINED = {"corpus": "hotpotqa-subset", "held_out": 100, "epochs": 2, "batch_size": 4, "precision": "bf16"}
# Table 14. Its 1,000 steps of warmup are a share of the steps here, 5 epochs of batches of 32.
PUBLISHED = {"held_out": 500, "epochs": 5, "batch_size": 32, "window": 512, "precision": "bf16", "recompute": True}


def set_apart(config: Any, rows: Iterable[Any]) -> dict[str, list]:
    """Training questions in a shuffled order that is the same for every model and seed: those held out, which choose
    the weights, and up to `n_train` others."""
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return {"train": rows[config.held_out:][:config.n_train], "validation": rows[:config.held_out]}


def best_scores(config: Any, task: Task, rows: Sequence[Any]) -> dict[str, float]:
    """For generated questions, the best possible score of a reader of the whole text, and of one that reads pieces as
    long as the base's positions, in %."""
    from repro.data import corpus

    if not (made := corpus(config.corpus).generator):
        return {}
    words, alone = words_of(config, task), []
    for row in rows:
        one = task.example(row, words)
        room = base_of(config).n_positions - 1 - len(one.prefix)
        pieces = [one.context[k:k + room] for k in range(0, len(one.context), room)]
        alone.append(made.best_score(row, [words.coder.decode([k for k in piece if k < words.coder.vocab_size])
                                           for piece in pieces]))
    return {"best": 100 * sum(map(made.best_score, rows)) / len(rows), "best_short": 100 * sum(alone) / len(rows)}


def span_targets(examples: Sequence[Example]) -> "dict[str, Tensor]":
    """`spans` (B, K, 2): the right spans that were not cut off, repeated to fill the row, or -1 without any; `text`
    (B, C) bool: tokens that an answer may contain."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    kept = [[pair for pair in one.targets.spans if pair[1] < len(one.context)] or [(-1, -1)] for one in examples]
    most = max(map(len, kept))
    text = [torch.tensor([source != NOWHERE for source, _, _ in one.targets.places[:len(one.context)]],
                         dtype=torch.bool) for one in examples]
    return {"spans": torch.tensor([pairs + pairs[:1] * (most - len(pairs)) for pairs in kept]),
            "text": pad_sequence(text, batch_first=True)}


def best_answers(outputs: "Mapping[str, Tensor]", examples: Iterable[Example]) -> list[str]:
    """The words of the best span of each example; an empty text where nothing of it was read."""
    from repro.evaluation.answers import best_spans

    found = []
    for start, end, text, one in zip(*(outputs[name] for name in ("start", "end", "text")), examples, strict=True):
        if not text.any():
            found.append("")
            continue
        (_, first, last), = best_spans(start[None, None], end[None, None], text[None, None])
        found.append(one.targets.words(first, last))
    return found
