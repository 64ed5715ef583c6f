"""Batches of a stream whose tokens are their own positions, so that every batch shows where it was cut; batches of
examples of many lengths; and the share of a batch that a process trains on."""

from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from repro.errors import ReproError
from repro.training import LengthBuckets, Sequences, Stages
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


def test_tokens_that_are_no_targets_have_no_label():
    """Every third token is never predicted: 100 positions that are their own ids."""
    targets = np.arange(103) % 3 != 0
    plain, found = make(103, 5, 2), Sequences(np.arange(103), 5, 2, targets=targets)
    assert found.per_epoch == plain.per_epoch and found.units_per_batch == 10
    seen = set()
    for step in range(2 * plain.per_epoch):
        batch = found.batch(step)
        assert torch.equal(batch["input_ids"], plain.batch(step))
        expected = [[-100 if i % 3 == 0 else i for i in row] for row in batch["input_ids"].tolist()]
        assert batch["labels"].tolist() == expected
        n = sum(label != -100 for row in expected for label in row[1:])
        assert batch["n_targets"].tolist() == pytest.approx([n / 2, n / 2])
        seen.add(n)
    assert len(seen) > 1
    halves = [share(found.batch(3), 2, process, 2) for process in range(2)]
    assert sum(half["n_targets"].sum() for half in halves) == found.batch(3)["n_targets"].sum()
    nothing = Sequences(np.arange(103), 5, 2, targets=np.zeros(103, bool)).batch(0)
    assert nothing["n_targets"].sum() == 1  # nothing is divided by nothing


def test_what_is_predicted_is_a_setting_where_not_all_is():
    some = np.arange(103) % 3 != 0
    settings = [make(103, 5, 2).settings(), Sequences(np.arange(103), 5, 2, targets=some).settings(),
                Sequences(np.arange(103), 5, 2, targets=~some).settings()]
    assert set(settings[0]) == {"length", "batch_size", "seed", "text"}
    assert set(settings[1]) - set(settings[0]) == {"targets"}
    assert settings[1]["targets"] != settings[2]["targets"]
    with pytest.raises(ReproError, match="there are 102 targets and 103 tokens"):
        Sequences(np.arange(103), 5, 2, targets=some[1:])


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


def test_settings_tell_every_text_and_order_apart():
    text = np.arange(60) % 7
    other = text.copy()
    other[30] += 1
    made = [Sequences(text, 5, 2), Sequences(other, 5, 2), Sequences(text[:-1], 5, 2), Sequences(text, 4, 2),
            Sequences(text, 5, 3), Sequences(text, 5, 2, seed=1)]
    assert len({str(sequences.settings()) for sequences in made}) == 6
    assert made[0].settings() == Sequences(text.copy(), 5, 2).settings()
    assert (made[0].unit, made[0].units_per_batch) == ("tokens", 10)


@pytest.mark.parametrize("before", [1, 4, 11, 30])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_what_is_read_before_changes_no_target_and_no_order(size, before):
    """Tokens are their own places: in front of the text's first one stands its last."""
    n, length, batch_size = size
    if before > n:
        pytest.skip("more than there is")
    plain, reading = make(*size), Sequences(np.arange(n), length, batch_size, before=before)
    assert (reading.units_per_batch, reading.per_epoch) == (plain.units_per_batch, plain.per_epoch)
    for step in range(3 * plain.per_epoch):
        expected, batch = plain.batch(step), reading.batch(step)
        assert torch.equal(batch[:, before:], expected)
        assert batch[:, :before].tolist() == [[(row - before + k) % n for k in range(before)]
                                              for row in expected[:, 0].tolist()]
    assert reading.settings() == plain.settings() | {"before": before}


@pytest.mark.parametrize("before", [-1, 104])
def test_more_than_the_text_cannot_be_read_before(before):
    with pytest.raises(ReproError, match=f"before is {before} tokens; it must be from 0 to the 103"):
        Sequences(np.arange(103), 5, 2, before=before)


# Examples of many lengths.


def documents(n, seed=0):
    """Each is its own number, repeated; most are short."""
    lengths = np.random.default_rng(seed).geometric(0.02, size=n)
    return [np.full(length, k) for k, length in enumerate(lengths)]


def collate(rows):
    padded = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=-1)
    return {"ids": padded, "label": torch.tensor([row[0] % 2 for row in rows])}


def bucketed(examples, batch_size=4, seed=0, **options):
    return LengthBuckets(examples, [len(x) for x in examples], collate, batch_size, seed, **options)


def epoch_of(buckets, epoch):
    return [buckets.batch(epoch * buckets.per_epoch + k) for k in range(buckets.per_epoch)]


@pytest.mark.parametrize(("n", "batch_size", "pool"), [(103, 4, 3), (103, 4, 50), (100, 4, 5), (7, 7, 1), (9, 1, 2)])
def test_every_example_comes_once_an_epoch_but_for_a_rest(n, batch_size, pool):
    buckets, left_out = bucketed(documents(n), batch_size, pool=pool), set()
    assert buckets.per_epoch == n // batch_size
    for epoch in range(4):
        batches = epoch_of(buckets, epoch)
        assert all(batch["ids"].shape[0] == batch_size for batch in batches)
        numbers = [int(k) for batch in batches for k in batch["ids"][:, 0]]
        assert len(set(numbers)) == len(numbers) == n - n % batch_size
        left_out |= set(range(n)) - set(numbers)
    assert (len(left_out) > n % batch_size) == (n % batch_size > 0)  # others in other epochs


def test_little_is_spent_on_padding():
    examples = documents(2_000)
    buckets = bucketed(examples, 16)
    content = np.mean([len(x) for x in examples])
    plain = np.mean([max(len(x) for x in examples[k:k + 16]) for k in range(0, 2_000, 16)]) / content
    sorted_by_length = np.mean([batch["ids"].shape[1] for batch in epoch_of(buckets, 0)]) / content
    assert plain > 3.0  # numbers computed for each one that is needed
    assert sorted_by_length < 1.2


def test_a_bucketed_batch_depends_on_seed_and_number_only():
    examples = documents(50)
    walked = [bucketed(examples, seed=7).batch(step) for step in range(41)]
    jumping = bucketed(examples, seed=7)
    for step in (40, 3, 17, 0, 11, 12, 3):
        assert all(torch.equal(jumping.batch(step)[name], x) for name, x in walked[step].items())
    assert bucketed(examples, seed=8).batch(3)["ids"].tolist() != walked[3]["ids"].tolist()


def test_batches_come_in_no_order_of_length():
    buckets = bucketed(documents(400), pool=1_000)
    widths = [[batch["ids"].shape[1] for batch in epoch_of(buckets, epoch)] for epoch in range(3)]
    assert all(width != sorted(width) and width != sorted(width, reverse=True) for width in widths)
    assert widths[0] != widths[1] != widths[2]
    members = [{frozenset(batch["ids"][:, 0].tolist()) for batch in epoch_of(buckets, epoch)} for epoch in (0, 1)]
    assert members[0] != members[1]


def test_settings_tell_all_examples_and_orders_apart():
    examples = documents(12)
    other = [*examples[:-1], examples[-1] + 1]
    made = [bucketed(examples), bucketed(other), bucketed(examples[:-1]), bucketed(examples, 3),
            bucketed(examples, seed=1), bucketed(examples, pool=2)]
    made += [LengthBuckets(examples, [len(x) for x in examples], lambda rows: collate(rows)["ids"], 4),
             LengthBuckets(examples, [1] * 12, collate, 4)]
    assert len({str(buckets.settings()) for buckets in made}) == 8
    assert made[0].settings() == bucketed(documents(12)).settings()
    assert (made[0].unit, made[0].units_per_batch) == ("examples", 4)


@pytest.mark.parametrize(("options", "words"), [
    ({"batch_size": 0}, "batch_size is 0"), ({"pool": 0}, "pool 0"), ({"batch_size": 6}, "5 examples are too few"),
    ({"lengths": [1, 2]}, "2 lengths and 5 examples")])
def test_impossible_buckets_are_refused(options, words):
    arguments = {"examples": documents(5), "lengths": [1] * 5, "collate": collate, "batch_size": 2}
    with pytest.raises(ReproError, match=words):
        LengthBuckets(**arguments | options)


# The share of a process.


@dataclass
class Pair:
    ids: torch.Tensor
    label: torch.Tensor


IDS, LABEL = torch.arange(18).view(6, 3), torch.arange(6)


@pytest.mark.parametrize(("batch", "form"), [
    (IDS, torch.Tensor), ({"ids": IDS, "label": LABEL}, dict), (UserDict(ids=IDS, label=LABEL), dict),
    (Pair(IDS, LABEL), Pair)], ids=["tensor", "dict", "mapping", "dataclass"])
def test_a_share_is_a_run_of_rows_of_every_tensor(batch, form):
    for process, rows in ((0, slice(0, 2)), (1, slice(2, 4)), (2, slice(4, 6))):
        found = share(batch, 6, process, 3)
        assert isinstance(found, form)
        if form is torch.Tensor:
            assert torch.equal(found, IDS[rows])
        else:
            found = found if form is dict else vars(found)
            assert list(found) == ["ids", "label"]
            assert torch.equal(found["ids"], IDS[rows])
            assert torch.equal(found["label"], LABEL[rows])


@pytest.mark.parametrize(("batch", "words"), [
    ({"ids": IDS, "label": LABEL[:5]}, "batch_size of 6 examples, or a multiple of it, but it is: ids 6, label 5"),
    (Pair(IDS[:4], LABEL[:4]), "ids 4, label 4"), (IDS[1:], "batch 5"),
    ({"ids": IDS, "weight": torch.tensor(1.0)}, "weight none"), ({"ids": IDS, "names": ["a"] * 6}, "names .* a list"),
    ([IDS, LABEL], "a batch is a list"), (None, "a batch is a NoneType")], ids=str)
def test_a_batch_that_cannot_be_shared_is_refused_in_one_line(batch, words):
    with pytest.raises(ReproError, match=words) as raised:
        share(batch, 6, 0, 2)
    assert "\n" not in str(raised.value)


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
