"""Batches of a stream whose tokens are their own positions, so that every batch shows where it was cut."""

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.training import Sequences

SIZES = [(103, 5, 2), (41, 4, 3), (13, 4, 2), (400, 7, 8), (30, 1, 5)]  # tokens, length, batch size


def make(n, length, size, seed=0):
    return Sequences(np.arange(n), length, size, seed)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_batches_are_runs_of_tokens_with_the_targets_one_ahead(size):
    sequences = make(*size)
    for step in range(3 * sequences.per_epoch):
        batch = sequences.batch(step)
        assert batch.shape == (size[2], size[1] + 1)
        assert batch.dtype == torch.int64
        assert torch.equal(batch[:, 1:], batch[:, :-1] + 1)
        assert batch.min() >= 0
        assert batch.max() < size[0]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_epoch_covers_distinct_sequences_and_no_target_twice(size):
    n, length, batch_size = size
    sequences = make(*size)
    for epoch in range(4):
        starts = torch.cat([sequences.batch(epoch * sequences.per_epoch + k)[:, 0]
                            for k in range(sequences.per_epoch)]).tolist()
        assert len(starts) == sequences.per_epoch * batch_size
        targets = {start + k for start in starts for k in range(1, length + 1)}
        assert len(targets) == len(starts) * length
        assert len({start % length for start in starts}) == 1  # one grid, with the epoch's own offset
        assert n - 1 - len(targets) < length * (batch_size + 2)  # what is left does not fill another batch


def test_batches_per_epoch():
    assert make(103, 5, 2).per_epoch == 9  # 20 whole sequences, one spent on the offset, 19 make 9 pairs
    assert make(101, 5, 2).per_epoch == 9
    assert make(100, 5, 2).per_epoch == 9  # 99 targets: 19 whole sequences, 18 left
    assert make(96, 5, 2).per_epoch == 9
    assert make(95, 5, 2).per_epoch == 8
    assert make(103, 5, 2).tokens_per_batch == 10


def test_a_batch_depends_on_seed_and_number_only():
    steps = [40, 3, 17, 0, 8, 9, 3]
    sequences = make(103, 5, 2, seed=7)
    jumping = [sequences.batch(step) for step in steps]
    in_order = make(103, 5, 2, seed=7)
    walked = [in_order.batch(step) for step in range(41)]
    np.random.seed(3)  # noqa: NPY002  (other random states must not matter)
    torch.manual_seed(3)
    for step, batch in zip(steps, jumping, strict=True):
        assert torch.equal(batch, walked[step])
        assert torch.equal(batch, make(103, 5, 2, seed=7).batch(step))
    assert not torch.equal(make(103, 5, 2, seed=8).batch(3), walked[3])


def test_every_epoch_has_another_order_and_the_cuts_move():
    sequences = make(403, 5, 2)
    epochs = [torch.cat([sequences.batch(e * sequences.per_epoch + k)[:, 0] for k in range(sequences.per_epoch)])
              for e in range(12)]
    orders = {tuple((starts // 5).tolist()) for starts in epochs}
    assert len(orders) == 12
    assert {int(starts[0] % 5) for starts in epochs} == {0, 1, 2, 3, 4}
    assert all(starts.tolist() != sorted(starts.tolist()) for starts in epochs)


@pytest.mark.parametrize(("length", "size", "least"), [(4, 2, 13), (5, 1, 11), (1, 1, 3), (300, 8, 2701)])
def test_the_least_text_that_fills_a_batch_wherever_it_is_cut(length, size, least):
    sequences = make(least, length, size)
    assert sequences.per_epoch == 1
    for step in range(5 * length):
        assert sequences.batch(step).shape == (size, length + 1)
    with pytest.raises(ReproError, match="too few"):
        make(least - 1, length, size)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_any_integers_will_do(dtype):
    tokens = np.random.default_rng(0).integers(60_000, size=50).astype(dtype)
    batch = Sequences(tokens, 4, 2).batch(1)
    start = next(k for k in range(46) if tokens[k:k + 5].tolist() == batch[0].tolist())
    assert start >= 0
    assert batch.dtype == torch.int64


@pytest.mark.parametrize(("length", "size"), [(0, 2), (-1, 2), (4, 0), (4, -2)])
def test_sizes_of_nothing_are_refused(length, size):
    with pytest.raises(ReproError, match="at least 1"):
        make(100, length, size)
