"""Training batches cut from a token stream; batch k is a pure function of the seed, so resuming needs only k."""

import numpy as np
import torch
from torch import Tensor

from repro.errors import ReproError


class Sequences:
    """Batches of `length + 1` consecutive tokens (`length` inputs, each with its target) in a shuffled order.

    tokens: (N,) integers. Every epoch draws another order of the non-overlapping sequences and another offset at
    which the stream is first cut, so that cuts do not always fall on the same places. Sequences that no longer fill a
    batch at an epoch's end are left to later epochs.
    """

    def __init__(self, tokens, length: int, batch_size: int, seed: int = 0):
        if length < 1 or batch_size < 1:
            raise ReproError(f"length is {length} tokens and batch_size {batch_size}; both must be at least 1.")
        self.tokens = np.asarray(tokens)
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.per_epoch = ((len(self.tokens) - 1) // length - 1) // batch_size  # one sequence is spent on the offset
        if self.per_epoch < 1:
            raise ReproError(f"{len(self.tokens):,} tokens are too few for one batch of {batch_size} sequences of "
                             f"{length} tokens; use shorter sequences, a smaller batch or more text.")
        self._order = (None, None)

    @property
    def tokens_per_batch(self) -> int:
        """Targets in one batch."""
        return self.batch_size * self.length

    def batch(self, step: int) -> Tensor:
        """Batch number `step` (counted from 0, without end): (batch_size, length + 1) int64."""
        epoch, index = divmod(step, self.per_epoch)
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            offset = generator.integers(self.length)
            n = (len(self.tokens) - 1 - offset) // self.length
            self._order = (epoch, offset + self.length * generator.permutation(n))
        starts = self._order[1][index * self.batch_size:(index + 1) * self.batch_size]
        return torch.from_numpy(np.stack([self.tokens[s:s + self.length + 1] for s in starts]).astype(np.int64))
