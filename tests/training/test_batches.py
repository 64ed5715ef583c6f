"""Batches of a stream whose tokens are their own positions, so that every batch shows where it was cut."""

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.training import Sequences, Stages
from repro.training.batches import share

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


def test_stages_follow_each_other_and_the_last_does_not_end():
    first, second, third = make(200, 2, 8, seed=1), make(200, 4, 4, seed=1), make(200, 8, 2, seed=1)
    stages = Stages([(first, 3), (second, 2), (third, 1)])
    expected = [first.batch(k) for k in range(3)] + [second.batch(k) for k in range(2)] + [third.batch(k)
                                                                                        for k in range(30)]
    for step in [*range(35), 4, 2, 0, 3, 5]:
        assert torch.equal(stages.batch(step), expected[step])
    assert (stages.batch_size, stages.units_per_batch, stages.unit) == (2, 16, "tokens")


def test_a_stage_without_steps_is_passed_by():
    one, other = make(200, 2, 8), make(200, 4, 4)
    assert torch.equal(Stages([(one, 0), (other, 5)]).batch(0), other.batch(0))
    assert torch.equal(Stages([(one, 1)]).batch(7), one.batch(7))


def test_stages_are_told_apart():
    one, other = make(200, 2, 8), make(200, 4, 4)
    every = [Stages([(one, 3), (other, 1)]), Stages([(one, 4), (other, 1)]), Stages([(other, 3), (one, 1)]),
             Stages([(one, 3)]), Stages([(one, 3), (make(200, 4, 4, seed=1), 1)])]
    assert len({str(stages.settings()) for stages in every}) == len(every)


@pytest.mark.parametrize(("stages", "told"), [([], "0 stages have no tokens"), (
    [(make(200, 2, 8), 1), (make(200, 4, 5), 1)], "2 stages have 16, 20 tokens; all stages need the same number")])
def test_stages_of_other_sizes_are_refused(stages, told):
    with pytest.raises(ReproError, match=told):
        Stages(stages)


@pytest.mark.parametrize("process", [0, 1])
def test_a_process_gets_its_share_of_the_rows_of_every_stage(process):
    stages = Stages([(make(200, 2, 8), 1), (make(200, 8, 2), 1)])
    for step, rows in ((0, 4), (1, 1)):
        batch = stages.batch(step)
        mine = share(batch, stages.batch_size, process, 2)
        assert torch.equal(mine, batch[process * rows:(process + 1) * rows])


@pytest.mark.parametrize("batch", [torch.zeros(3, 5), torch.zeros(0, 5), torch.tensor(1.0),
                                   {"a": torch.zeros(2, 3), "b": torch.zeros(4, 3)}], ids=lambda _: "")
def test_rows_that_are_no_multiple_or_differ_are_refused(batch):
    with pytest.raises(ReproError, match="first dimension of every tensor of a batch must be"):
        share(batch, 2, 0, 1)
