"""Runs of words in a Bloom filter, against exact sets of them."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

from repro.data import NgramFilter, normalise, overlap
from repro.errors import ReproError

EIGHT = "one two three four five six seven eight"


def texts(seed, n=40, words=60, letters="abc"):
    """Texts of few words, so that runs come again, with signs and capitals between them."""
    draw = random.Random(seed)
    made = [[draw.choice(letters) + draw.choice(["", "", ",", "."]) for _ in range(draw.randrange(words))]
            for _ in range(n)]
    return [" ".join(one).title() for one in made]


def exact(texts, n):
    """Every run of n words, one for each place: written apart from the module."""
    found = []
    for text in texts:
        told = "".join(c.lower() if c.isalnum() else " " for c in text).split()
        found += [tuple(told[k:k + n]) for k in range(len(told)) if k + n <= len(told)]
    return found


@pytest.mark.parametrize(("text", "told"), [
    ("The  Robin's _nest_, 1,900 m!", "the robin s nest 1 900 m"), ("", ""), (" .\n", ""),
    ("naïve—日本 x2", "naïve 日本 x2"), ("A\tb\nC", "a b c")])
def test_normalised(text, told):
    assert normalise(text) == told
    assert normalise(told) == told


def test_a_run_of_eight_words_is_found_however_it_is_written():
    one = NgramFilter(100)
    one.update([f"It was: {EIGHT.upper()}!", "nine"])
    assert EIGHT in one and "It was one, two three four five six" in one
    assert "two three four five six seven eight nine" not in one, "no run goes from one text to the next"
    assert one.n_held == 3


@pytest.mark.parametrize(("seed", "n"), [(0, 5), (1, 6), (2, 8), (3, 1)])
def test_counts_are_those_of_exact_sets(seed, n):
    training, tested = texts(seed), texts(seed + 100)
    one = NgramFilter(10_000, n=n)
    one.update(training)
    known = set(exact(training, n))
    places = exact(tested, n)
    found = overlap(tested, one)
    assert one.n_held == len(known)
    assert found.n_grams == len(places) and found.found == sum(gram in known for gram in places)
    assert found.share == found.found / len(places)
    assert 0 < found.share < 1 or n == 1
    assert all(" ".join(gram) in one for gram in known), "what was seen is always found"
    assert overlap(training, one).share == 1


def test_places_count_as_often_as_they_stand_there():
    one = NgramFilter(10, n=2)
    one.update(["a b"])
    assert (overlap(["a b a b", "b", "x a b"], one).n_grams, overlap(["a b a b", "b", "x a b"], one).found) == (5, 3)


@pytest.mark.parametrize("given", [[], [""], ["one two three four five six seven"], [EIGHT[:-6], EIGHT[:-6]]])
def test_no_share_of_no_run(given):
    one = NgramFilter(10)
    one.update([EIGHT])
    found = overlap(given, one)
    assert (found.n_grams, found.found, found.share) == (0, 0, None)


@pytest.mark.parametrize(("rate", "n", "most"), [(0.1, 20_000, 2_200), (0.01, 20_000, 260), (1e-8, 100_000, 0)])
def test_false_positives_of_a_full_filter(rate, n, most):
    """Against runs that are in none of its texts; most: four standard deviations above what is made for."""
    one, draw = NgramFilter(5_000, n=4, error_rate=rate), random.Random(0)
    one.update(" ".join(str(draw.randrange(10**9)) for _ in range(4)) for _ in range(5_000))
    assert 4_800 < one.n_held <= 5_000  # what a fuller filter finds already is not held again
    found = sum(f"{k} {k} {k} never" in one for k in range(n))
    assert found <= most
    if rate > 0.001:
        assert found > 0.5 * rate * n, "a filter larger than it need be"


def test_it_takes_a_few_bits_a_run():
    sizes = {rate: NgramFilter(100_000, error_rate=rate).n_bytes for rate in (0.01, 1e-8)}
    assert 1.43 < 8 * sizes[0.01] / 100_000 / 6.64 < 1.6  # 1.44 log2(1 / rate) bits
    assert 1.43 < 8 * sizes[1e-8] / 100_000 / 26.58 < 1.6
    one = NgramFilter(1_000)
    before = one.n_bytes
    one.update([EIGHT])
    assert one.n_bytes == before


def test_the_hash_is_the_same_in_every_process():
    code = ("from repro.data import NgramFilter; one = NgramFilter(40, n=1, error_rate=0.3);"
            "one.update(str(k) for k in range(30));"
            "print([k for k in range(30, 300) if str(k) in one])")
    found = {subprocess.check_output([sys.executable, "-c", code], text=True,
                                     env=os.environ | {"PYTHONHASHSEED": seed}) for seed in ("1", "2")}
    assert len(found) == 1 and len(found.pop()) > 100


def test_a_full_filter_says_so():
    one = NgramFilter(2, n=1)
    one.update(["a b", "b a a"])
    with pytest.raises(ReproError, match="the filter is full: .* more than its capacity=2 different runs of 1 words"):
        one.update(["a c"])
    assert one.n_held == 2 and "a" in one and "c" not in one


@pytest.mark.parametrize(("given", "told"), [
    ({"capacity": 0}, "capacity=0 of a filter must be a whole number of at least 1"), ({"capacity": -3}, "capacity=-3"),
    ({"capacity": 1e6}, "capacity=1000000.0"), ({"capacity": True}, "capacity=True"),
    ({"capacity": 10**12}, "capacity=1,000,000,000,000 at error_rate=1e-08 takes 4,792.5 GB, more than the memory"),
    ({"capacity": 10**19}, "smaller capacity or a larger error_rate"),
    ({"capacity": 10**400}, "more than the memory of this machine"),
    ({"n": 0}, "n=0 of a filter must be"), ({"n": 2.5}, "n=2.5"), ({"n": "8"}, "n=8 of a filter must be a whole"),
    ({"error_rate": 0}, "error_rate=0 of a filter must lie between 0 and 1"), ({"error_rate": 1}, "error_rate=1 of"),
    ({"error_rate": -0.1}, "error_rate=-0.1"), ({"error_rate": float("nan")}, "error_rate=nan"),
    ({"error_rate": "1e-8"}, "error_rate=1e-8 of a filter must lie")])
def test_numbers_out_of_range(given, told):
    with pytest.raises(ReproError, match=told):
        NgramFilter(**{"capacity": 10} | given)


def test_texts_that_are_none():
    one = NgramFilter(10, 1)
    with pytest.raises(ReproError, match="3 is among the texts; each of them must be a string"):
        one.update(["a", 3])
    with pytest.raises(ReproError, match="3 is among the texts"):
        overlap([3], one)


def test_numbers_of_numpy_are_numbers():
    one = NgramFilter(np.int64(10), np.int32(2), np.float32(0.5))
    one.update(["a b"])
    assert "a b" in one and (one.capacity, one.n, one.error_rate) == (10, 2, 0.5)


def test_a_filter_takes_the_memory_that_is_told_beforehand(monkeypatch):
    size = NgramFilter(10_000, error_rate=1e-3).n_bytes
    for memory, fits in ((0.98 * size, False), (1.02 * size, True)):
        monkeypatch.setattr("repro.data.ngrams._memory", lambda memory=memory: memory)
        if fits:
            NgramFilter(10_000, error_rate=1e-3)
        else:
            with pytest.raises(ReproError, match="more than the memory of this machine"):
                NgramFilter(10_000, error_rate=1e-3)


def test_the_wrong_text_is_told():
    one = NgramFilter(10)
    for text, n in (("", 0), ("a b", 2), (f"{EIGHT} nine", 9)):
        with pytest.raises(ReproError, match=f"has {n} words; the filter holds runs of 8"):
            text in one  # noqa: B015
    for ask in (lambda: one.update(EIGHT), lambda: overlap(EIGHT, one)):
        with pytest.raises(ReproError, match="texts is one string; give a list of texts"):
            ask()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "rbloom", None)
    with pytest.raises(ReproError, match=r"needs the package rbloom: pip install 'repro\[study\]'"):
        NgramFilter(10)
