"""Training batches. Batch k is a pure function of the seed, so that resuming needs only k."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from repro.checked import checked
from repro.errors import ReproError, check_whole


class Batches(Protocol):
    """The interface that `train` needs. A batch is a tensor, or a mapping or dataclass of tensors; rows are examples.

    batch_size: rows of every tensor of every batch, over all processes; if batches differ in size, their numbers of
    rows are multiples of it.
    unit, units_per_batch: the unit in which training is measured, and how many units each batch counts for, the same
    for all batches. The unit is "tokens" (targets) if every example has the same number of them, otherwise "examples".

    >>> class Countdown:
    ...     batch_size, unit, units_per_batch = 2, "tokens", 6
    ...     def batch(self, step: int):
    ...         return torch.full((2, 4), step)
    >>> Countdown().batch(3).shape  # all that `train` asks for
    torch.Size([2, 4])
    """

    batch_size: int
    unit: str
    units_per_batch: int

    def batch(self, step: int) -> Any:
        """Batch number `step`, counted from 0, without end; independent of earlier calls."""

    def settings(self) -> dict:
        """Everything that determines the batches, as plain values; long texts and data as digests."""


@checked
class Sequences:
    """Batches of `length + 1` consecutive tokens (`length` inputs, each with its target) in a shuffled order.

    tokens: (N,) integers. Every epoch draws a new order of the non-overlapping sequences and a new offset of the first
    cut, so that the cuts move. Sequences that do not fill a batch at the end of an epoch are dropped from it.
    targets: (N,) bool, which tokens to predict, such as `Tokens.targets`; None: all. With it, a batch is a mapping that
    `repro.training.WindowedLM` reads. Tokens that are not predicted also count toward the length of a training.

    before: tokens in front of each sequence that are read but are not targets, for models that read with overlap; the
    stream wraps around at its beginning. They change neither the cuts nor the order: for every `before`, batch k has
    the same targets in the same order.

    >>> import numpy as np
    >>> batch = Sequences(np.arange(100), length=4, batch_size=2).batch(0)
    >>> batch.shape, (batch[:, 1:] - batch[:, :-1]).unique()
    (torch.Size([2, 5]), tensor([1]))
    """

    unit = "tokens"

    def __init__(self, tokens, length: int, batch_size: int, seed: int = 0, targets=None, before: int = 0):
        if length < 1 or batch_size < 1:
            raise ReproError(f"length is {length} tokens and batch_size {batch_size}; both must be at least 1.")
        check_whole(seed, "seed", 0)
        self.tokens = np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise ReproError(f"tokens are {self.tokens.dtype} of shape {self.tokens.shape}; give whole numbers (N,).")
        self.targets = None if targets is None else np.asarray(targets, bool)
        if targets is not None and self.targets.shape != self.tokens.shape:
            raise ReproError(f"there are {self.targets.size:,} targets and {len(self.tokens):,} tokens; give one for "
                             "each.")
        if not 0 <= before <= len(self.tokens):
            raise ReproError(f"before is {before} tokens; it must be from 0 to the {len(self.tokens):,} of the text.")
        self.length, self.batch_size, self.seed, self.before = length, batch_size, seed, before
        self.per_epoch = ((len(self.tokens) - 1) // length - 1) // batch_size  # the offset uses up one sequence
        if self.per_epoch < 1:
            raise ReproError(f"{len(self.tokens):,} tokens are too few for one batch of {batch_size} sequences of "
                             f"{length} tokens; use shorter sequences, a smaller batch or more text.")
        self._order = (None, None)

    @property
    def tokens_per_batch(self) -> int:
        """Targets in one batch."""
        return self.batch_size * self.length

    units_per_batch = tokens_per_batch

    def batch(self, step: int) -> Tensor | dict[str, Tensor]:
        """Batch number `step` (counted from 0, without end): (batch_size, before + length + 1) int64.

        With `targets`, a mapping: `input_ids`; `labels`, the same with -100 for tokens that are not predicted; and
        `n_targets` (batch_size,), the number of targets in the whole batch, spread evenly over its rows, so that every
        process knows the total.
        """
        epoch, index = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            offset = generator.integers(self.length)
            n = (len(self.tokens) - 1 - offset) // self.length
            self._order = (epoch, offset + self.length * generator.permutation(n))
        starts = self._order[1][index * self.batch_size:(index + 1) * self.batch_size]
        places = starts[:, None] + np.arange(-self.before, self.length + 1)  # negative indices count from the end
        ids = torch.from_numpy(self.tokens[places].astype(np.int64))
        if self.targets is None:
            return ids
        counts = torch.from_numpy(self.targets[places])
        if self.before:
            counts[:, :self.before + 1] = False  # the token after them is also only read
        n = max(1, int(counts[:, self.before + 1:].sum()))
        return {"input_ids": ids, "labels": ids.masked_fill(~counts, -100),
                "n_targets": torch.full((self.batch_size,), n / self.batch_size)}

    def settings(self) -> dict:
        """The sizes, the seed, the text, and its targets if not all tokens are predicted."""
        settings = {"length": self.length, "batch_size": self.batch_size, "seed": self.seed,
                    "text": _digest(self.tokens)}
        settings |= {} if self.targets is None else {"targets": _digest(self.targets)}
        return settings | ({"before": self.before} if self.before else {})


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


@checked
class Stages:
    """Growing sequences: batches from the first of `stages` for its number of steps, then from the next; the last one
    never ends.

    stages: (sequences, steps) pairs, all with the same number of tokens per batch; the steps of the last one are
    ignored. The number of rows falls as sequences grow. Every stage has its own order.

    Raises ReproError for no stages, and for batches of different numbers of tokens.

    >>> import numpy as np
    >>> short, long = (Sequences(np.arange(100), n, 16 // n) for n in (4, 8))
    >>> grown = Stages([(short, 2), (long, 1)])
    >>> [tuple(grown.batch(step).shape) for step in range(3)]
    [(4, 5), (4, 5), (2, 9)]
    """

    unit = "tokens"

    def __init__(self, stages: Sequence[tuple[Sequences, int]]):
        if not all(isinstance(one, Sequence) and len(one) == 2 and hasattr(one[0], "tokens_per_batch")
                   for one in stages):
            raise ReproError("stages are not pairs of `Sequences` and steps; give [(sequences, 100), …].")
        sizes = {one.tokens_per_batch for one, _ in stages}
        if len(sizes) != 1:
            raise ReproError(f"the batches of {len(stages)} stages have {', '.join(map(str, sorted(sizes))) or 'no'} "
                             "tokens; all stages need the same number.")
        self.stages, self.units_per_batch = list(stages), sizes.pop()
        self.batch_size = math.gcd(*(one.batch_size for one, _ in stages))

    def batch(self, step: int) -> Tensor:
        """Batch number `step` (counted from 0, without end): (rows, length + 1) int64, from the stage of that step."""
        for sequences, steps in self.stages[:-1]:
            if step < steps:
                return sequences.batch(step)
            step -= steps
        return self.stages[-1][0].batch(step)

    def settings(self) -> dict:
        """The settings of every stage, and its steps."""
        return {"stages": [one.settings() | {"steps": steps} for one, steps in self.stages]}


@checked
class LengthBuckets:
    """Batches of examples of similar length, in a shuffled order, to reduce padding.

    examples: a sequence; lengths: the length of each, in any unit. collate: turns a list of `batch_size` examples into
    a batch padded to the longest; it must be deterministic. Every epoch draws a new order, sorts each group of `pool`
    batches by length, splits it into batches and shuffles those. Each example appears once per epoch, except for the
    fewer than `batch_size` left over, which do not fill a batch and differ between epochs.

    Raises ReproError for sizes below 1, different numbers of lengths and examples, and too few examples.

    >>> texts = [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    >>> batches = LengthBuckets(texts, list(map(len, texts)), collate=list, batch_size=2)
    >>> sorted(batches.batch(0) + batches.batch(1))
    [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    """

    unit = "examples"

    def __init__(self, examples: Sequence, lengths: Sequence[int], collate: Callable[[list], Any], batch_size: int,
                 seed: int = 0, pool: int = 50):
        if batch_size < 1 or pool < 1:
            raise ReproError(f"batch_size is {batch_size} and pool {pool}; both must be at least 1.")
        check_whole(seed, "seed", 0)
        if len(lengths) != len(examples):
            raise ReproError(f"there are {len(lengths):,} lengths and {len(examples):,} examples; give one for each.")
        if len(examples) < batch_size:
            raise ReproError(f"{len(examples):,} examples are too few for one batch of {batch_size}; use a smaller "
                             "batch or more examples.")
        self.examples, self.lengths, self.collate = examples, np.asarray(lengths), collate
        self.batch_size = self.units_per_batch = batch_size
        self.seed, self.pool, self.per_epoch = seed, pool, len(examples) // batch_size
        self._order = (None, None)

    def batch(self, step: int) -> Any:
        """Batch number `step` (counted from 0, without end): its examples after `collate`."""
        epoch, index = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            order = generator.permutation(len(self.lengths))[:self.per_epoch * self.batch_size]
            size = self.pool * self.batch_size
            pools = [order[k:k + size] for k in range(0, len(order), size)]
            ordered = np.concatenate([pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools])
            self._order = (epoch, generator.permutation(ordered.reshape(-1, self.batch_size)))
        return self.collate([self.examples[int(k)] for k in self._order[1][index]])

    def settings(self) -> dict:
        """The sizes, the seed, the lengths, each example collated alone, and the padding."""
        digest = hashlib.sha256(self.lengths.tobytes())
        ends = [int(self.lengths.argmin()), int(self.lengths.argmax())]
        for together in (*([k] for k in range(len(self.lengths))), ends):
            for name, x in tensors(self.collate([self.examples[k] for k in together])).items():
                digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
                digest.update(x.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return {"batch_size": self.batch_size, "seed": self.seed, "pool": self.pool, "examples": digest.hexdigest()}


def tensors(batch: Any) -> dict[str, Tensor]:
    """The tensors of a batch by name. Raises ReproError unless it is a tensor, or a mapping or dataclass of tensors."""
    if isinstance(batch, Tensor):
        return {"batch": batch}
    if isinstance(batch, Mapping):
        named = dict(batch)
    elif is_dataclass(batch):
        named = {field.name: getattr(batch, field.name) for field in fields(batch)}
    else:
        raise ReproError(f"a batch is a {type(batch).__name__}; it must be a tensor, or a mapping or dataclass of "
                         "tensors.")
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise ReproError(f"{name} of a batch is a {type(value).__name__}; a batch can only hold tensors.")
    return named


def share(batch: Any, batch_size: int, process: int, processes: int, device: torch.device | str = "cpu") -> Any:
    """The rows of a batch that one of `processes` trains on, on its device: a tensor, a dict or the same dataclass.

    Raises ReproError unless all tensors have the same number of rows, a multiple of `batch_size`.
    """
    named = tensors(batch)
    rows = {x.shape[0] if x.ndim else 0 for x in named.values()}
    if len(rows) > 1 or not all(n and n % batch_size == 0 for n in rows):
        sizes = ", ".join(f"{name} {x.shape[0] if x.ndim else 'none'}" for name, x in named.items())
        raise ReproError(f"the first dimension of every tensor of a batch must be its batch_size of {batch_size} "
                         f"examples, or a multiple of it, but it is: {sizes}.")
    size = rows.pop() // processes
    mine = {name: x[process * size:(process + 1) * size].to(device) for name, x in named.items()}
    if isinstance(batch, Tensor):
        return mine["batch"]
    return mine if isinstance(batch, Mapping) else replace(batch, **mine)
