"""Masked text against counting: what is hidden, how, how often, and that it hangs on seed and step alone."""

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.training import Masked, Sequences, Stages, masked

VOCABULARY = 50  # ids 4 to 48 are ordinary, 49 is <mask>
MASK = 49


def rows(n=400, length=102, seed=0):
    """Rows of ordinary tokens, with an <s> before a document now and then."""
    draw = np.random.default_rng(seed)
    found = draw.integers(4, MASK, (n, length))
    found[draw.random((n, length)) < 0.02] = 0
    return found


def test_every_row_begins_and_ends_and_hides_15_percent():
    text = rows()
    before = text.copy()
    batch = masked(text, VOCABULARY, np.random.default_rng(1))
    ids, positions, targets = (batch[name].numpy() for name in ("ids", "positions", "targets"))
    assert (text == before).all()
    assert ids.shape == text.shape and positions.shape == targets.shape == (400, 15)
    assert {x.dtype for x in batch.values()} == {torch.int64}
    assert (ids[:, 0] == 0).all() and (ids[:, -1] == 2).all()
    for row, shown, where, wanted in zip(text, ids, positions, targets, strict=True):
        assert sorted(set(where)) == list(where), "each position once"
        assert where.min() > 0 and where.max() < 101
        for k in range(1, 101):
            truth = 2 if row[k] == 0 else row[k]  # documents are apart by </s>
            if k not in where:
                assert shown[k] == truth
            else:
                assert wanted[list(where).index(k)] == truth >= 4
                assert 4 <= shown[k] <= MASK


def test_shares_of_masks_random_tokens_and_tokens_kept():
    text = rows(4000)
    batch = masked(text, VOCABULARY, np.random.default_rng(2))
    shown, targets = batch["ids"].gather(1, batch["positions"]), batch["targets"]
    n = targets.numel()
    hidden, kept = (shown == MASK).sum().item() / n, (shown == targets).sum().item() / n
    assert n == 60_000
    assert hidden == pytest.approx(0.8, abs=4 * (0.16 / n)**0.5)
    assert kept == pytest.approx(0.1 + 0.1 / 45, abs=4 * (0.09 / n)**0.5), "one in 45 random tokens is the same one"
    random = shown[(shown != MASK) & (shown != targets)]
    counts = np.bincount(random, minlength=VOCABULARY)
    assert counts[:4].sum() == 0 and counts[MASK] == 0
    assert counts[4:MASK].min() > 60, "all ordinary tokens come: 130 of each expected"


def test_every_position_is_hidden_as_often():
    text = np.full((6000, 22), 7)
    positions = masked(text, VOCABULARY, np.random.default_rng(3))["positions"]
    counts = np.bincount(positions.flatten(), minlength=22)
    assert positions.shape[1] == 3
    assert counts[0] == counts[21] == 0
    assert np.abs(counts[1:21] - 900).max() < 5 * (6000 * 0.15 * 0.85)**0.5


def test_special_tokens_are_never_hidden_even_where_little_else_is_left():
    text = np.array([[0, 1, 3, MASK, 2, 9, 0, 2, 1, 3, 2, 2, 0, 5, 8, 7, 0, 0, 0, 0, 0, 0]] * 3)
    text[1, 1:] = 2
    batch = masked(text, VOCABULARY, np.random.default_rng(0))
    counted = batch["targets"] >= 0
    assert counted.sum(1).tolist() == [3, 0, 3]
    assert set(batch["targets"][counted].tolist()) <= {9, 5, 8, 7}
    assert (batch["targets"][~counted] == -100).all()
    assert batch["ids"][1].tolist() == [0] + [2] * 21
    special = (text[0] < 4) | (text[0] == MASK)
    for row in (0, 2):
        assert (batch["ids"][row].numpy()[special][1:] == np.where(text[0] == 0, 2, text[0])[special][1:]).all()


def test_masks_hang_on_seed_and_step_alone():
    text = rows(200).flatten()
    batches = [Masked(Sequences(text, 32, 4, seed=5), VOCABULARY, seed) for seed in (5, 5, 6)]
    first = {step: batches[0].batch(step) for step in (3, 0, 700)}
    for step in (700, 0, 3):
        again, other = batches[1].batch(step), batches[2].batch(step)
        assert all(torch.equal(again[name], first[step][name]) for name in again)
        assert not torch.equal(other["positions"], first[step]["positions"])
    assert first[0]["ids"].shape == (4, 32)
    again = [batches[0].batch(step) for step in (0, batches[0].batches.per_epoch)]
    assert not torch.equal(again[0]["positions"], again[1]["positions"]), "another epoch, other masks"


def test_rows_are_those_of_the_stages():
    text = rows(200).flatten()
    stages = Stages([(Sequences(text, 16, 8, seed=1), 2), (Sequences(text, 32, 4, seed=1), 2)])
    batches = Masked(stages, VOCABULARY)
    assert (batches.batch_size, batches.units_per_batch, batches.unit) == (4, 128, "tokens")
    for step, shape in ((0, (8, 16)), (1, (8, 16)), (2, (4, 32)), (9, (4, 32))):
        batch, plain = batches.batch(step), stages.batch(step)[:, :-1]
        assert tuple(batch["ids"].shape) == shape
        ids = batch["ids"].scatter(1, batch["positions"], batch["targets"])
        assert torch.equal(ids[:, 1:-1], plain[:, 1:-1].where(plain[:, 1:-1] != 0, torch.tensor(2)))


def test_what_is_no_target_is_never_hidden():
    """Such as what stands for a rare word in WikiText."""
    text = rows(200, seed=3).flatten()
    text[text == 5] = 6
    text[::4] = 5
    plainly = Sequences(text, 32, 4, targets=text != 5)
    for batches in (plainly, Stages([(plainly, 1)])):
        batch = Masked(batches, VOCABULARY).batch(0)
        wanted = set(batch["targets"].flatten().tolist())
        assert 5 not in wanted and len(wanted) > 8
        plain = batches.batch(0)["input_ids"][:, 1:-2]
        assert (batch["ids"][:, 1:-1][plain == 5] == 5).all()
        assert tuple(batch["ids"].shape) == (4, 32) and batch["targets"].shape == (4, 4)
    row = np.arange(4, 14)[None]
    found = masked(row, VOCABULARY, np.random.default_rng(0), row == 8)
    assert found["targets"].tolist() == [[8]] and found["positions"].tolist() == [[4]]
    assert masked(row, VOCABULARY, np.random.default_rng(0), row == 99)["targets"].tolist() == [[-100]]


def test_settings_tell_masked_batches_apart():
    text = rows(20).flatten()
    told = [Masked(Sequences(text, 32, 4), vocabulary, seed).settings() for vocabulary, seed in
            ((50, 0), (50, 0), (51, 0), (50, 1))]
    assert told[0] == told[1]
    assert told[0] != told[2] and told[0] != told[3]


def test_rows_that_are_too_short():
    assert masked(np.full((1, 3), 7), VOCABULARY, np.random.default_rng(0))["targets"].tolist() == [[7]]
    with pytest.raises(ReproError, match="vocab_size is 5; .* besides the 4 special ones"):
        masked(np.full((1, 3), 7), 5, np.random.default_rng(0))
    with pytest.raises(ReproError, match="a row has 2 tokens"):
        masked(np.full((1, 2), 7), VOCABULARY, np.random.default_rng(0))
