"""What bytes cost without a network: against loops, and where the best possible is known."""

import lzma
from itertools import pairwise
from math import log2

import numpy as np
import pytest

from repro.papers.sparse2019 import baselines, tables
from repro.papers.sparse2019.baselines import MID, SMOOTHING, coded, fitted
from repro.papers.sparse2019.data import START, waveform
from repro.study import artifact, run

RANDOM = np.random.default_rng(5)


def rows_of(images):
    return np.concatenate([np.full((len(images), 1), START), images.reshape(len(images), -1)], 1)


def test_counts_of_training_code_the_test_by_kind():
    given, wanted = ([0, 0, 1], [2, 2, 0]), ([0, 1, 1], [2, 0, 1])
    told = coded(*map(np.array, (*given, *wanted)), 3)
    some, all = 1 + SMOOTHING, 1 + 3 * SMOOTHING
    by_hand = [(2 + SMOOTHING) / (1 + all), some / all, SMOOTHING / all]
    assert told == pytest.approx(-sum(map(log2, by_hand)) / 3)


def test_weights_are_those_of_least_squares():
    x = RANDOM.normal(size=(250_001, 3))
    y = x @ [1, -2, 0.5] + RANDOM.normal(size=len(x))
    np.testing.assert_allclose(fitted(x, y), np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-9)


def test_a_byte_of_an_image_is_foretold_by_those_near_before_it():
    images = RANDOM.integers(0, 256, (2, 5, 5, 3))
    for channel in range(3):
        x, y = baselines._near(images, channel)
        for place, (k, row, column) in enumerate(np.ndindex(2, 5, 5)):
            at = [(row + down, column + across) for down, across in baselines.NEAR]
            near = [images[k, *one] if min(one) >= 0 and one[1] < 5 else [MID] * 3 for one in at]
            before = images[k, row, column, :channel]
            assert x[place].tolist() == [*np.concatenate(near), *before, 1]
            assert y[place] == images[k, row, column, channel]
            left, above, corner = (near[n][channel] for n in range(3))
            assert baselines._roughness(x, channel)[place] == abs(left - corner) + abs(above - corner)


def test_images_that_repeat_to_the_right_cost_their_first_column_only():
    grey = np.repeat(np.repeat(RANDOM.integers(0, 256, (400, 6, 1, 1)), 6, 2), 3, 3)
    noise = RANDOM.integers(0, 2, grey.shape)  # a bit each that nobody can foretell
    first = baselines._images(rows_of(grey), rows_of(grey[:50]), 6)
    assert first < 1  # eight bits for one of eighteen bytes, and what the other places give away
    assert baselines._images(rows_of(grey // 2 * 2 + noise), rows_of((grey // 2 * 2 + noise)[:50]), 6) > first + 0.9


def test_a_wave_of_one_frequency_is_foretold():
    def heard(phase, n):
        return np.abs(waveform(np.arange(256, dtype=np.uint8))[None]
                      - 0.5 * np.sin(0.05 * np.arange(n) + phase)[:, None]).argmin(1)

    train, test = heard(0, 20_000), heard(1, 3_000)
    noise = RANDOM.integers(0, 256, 20_000)
    assert baselines._sound(train, test) < 2 < 7.9 < baselines._sound(noise, RANDOM.integers(0, 256, 3_000))


def test_a_sample_is_foretold_by_those_before_it_and_no_other():
    codes = RANDOM.integers(0, 256, 4_000)
    wave = waveform(np.arange(256, dtype=np.uint8))
    order, n = baselines.ORDER, len(codes)
    weights = np.linalg.lstsq(np.stack([wave[codes[k:k + order]] for k in range(n - order)]).astype(float),
                              wave[codes[order:]], rcond=None)[0]
    middles = [(one + other) / 2 for one, other in pairwise(wave)]
    kinds = np.array([np.searchsorted(middles, wave[codes[k:k + order]] @ weights) for k in range(n - order)])
    part = order + 500
    wanted = coded(kinds, codes[order:], kinds[:500], codes[order:part], 256)
    assert baselines._sound(codes, codes[:part]) == pytest.approx(wanted, abs=2e-3)


def test_text_costs_what_the_pack_grows_by_and_is_looked_up_from_the_start():
    train, test = (np.frombuffer(text, np.uint8) for text in (b"to be or not to be " * 90, b"not to be or to be"))
    alone = len(lzma.compress(test.tobytes()))
    assert 0 < baselines._text(train, test) < 8 * (alone - 32) / len(test)
    first = RANDOM.integers(0, 256, 9_000_000).astype(np.uint8)  # more than xz looks back by itself
    assert baselines._text(first, first[:4_000]) < 1


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_each_bar_is_of_the_bytes_that_a_row_of_table_1_is_scored_on(scale):
    table = artifact("sparse2019-table1")
    for kind, pattern in tables.OURS.values():
        plan = [one for one in table.plan(scale) if tables.in_table_1(one, kind, pattern)]
        networks, bars = ([one for one in plan if tables.is_network(one) is wanted] for wanted in (True, False))
        assert len(networks) == len(bars) > 0
        for network, bar in zip(networks, bars, strict=True):
            assert (network.corpus, tables.scored(network)) == (bar.corpus, tables.scored(bar))
            assert kind != "image" or network.side == bar.side
            assert network.pattern == pattern
            assert network.training_bytes == network.steps * network.batch_size * network.length


def test_each_kind_of_bytes_is_run(home):
    told = [run(one, progress=False) for one in baselines.EXPERIMENT.plan("smoke")]
    assert [one.model for one in told] == [f"{kind} without a network" for kind in ("image", "text", "audio")]
    assert all(0 < one.metrics["test_bits_per_byte"] < 8 for one in told)
