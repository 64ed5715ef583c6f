"""The share of a text that was in a training text: runs of 8 words in a Bloom filter (Radford et al. 2019, section 4).

A Bloom filter answers "have I seen this item" with a few bits per item, however long the item is. It never answers "no"
for an item that was seen. For an unseen item it answers "yes" at a rate chosen in advance, here 1 in 100 million as in
the paper.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log, log2
from numbers import Integral, Real

from repro.data.apart import words
from repro.errors import ReproError, check_text


def normalise(text: str) -> str:
    """The words of `text`, as used to compare texts: lower case, runs of letters and digits, single spaces.

    >>> normalise("The  Robin's _nest_, 1,900 m!")
    'the robin s nest 1 900 m'
    """
    return " ".join(words(check_text(text, "the text")))


class NgramFilter:
    """The runs of `n` words of training texts, in a Bloom filter of fixed size.

    capacity: how many different runs it may hold. error_rate: the chance that a full filter reports a run that is not
    in it. The hash is fixed: the same texts give the same answers in every process and on every machine.
    Raises ReproError for numbers out of range, a filter larger than the memory of this machine, and more runs than its
    capacity.

    >>> train = NgramFilter(capacity=1_000, n=3)
    >>> train.update(["One, two, three, four!"])
    >>> "two three four" in train, "three four five" in train
    (True, False)
    """

    def __init__(self, capacity: int, n: int = 8, error_rate: float = 1e-8):
        try:
            from rbloom import Bloom
        except ImportError as error:
            raise ReproError("counting overlaps needs the package rbloom: pip install 'repro[study]'.") from error
        for name, value in (("capacity", capacity), ("n", n)):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ReproError(f"{name}={value} of a filter must be a whole number of at least 1.")
        if not isinstance(error_rate, Real) or not 0 < error_rate < 1:
            raise ReproError(f"error_rate={error_rate} of a filter must lie between 0 and 1, such as 1e-8.")
        capacity, n, error_rate, memory = int(capacity), int(n), float(error_rate), _memory()
        size = min(capacity, 10**30) * -log2(error_rate) / log(2) / 8  # beyond it, what a float holds may be exceeded
        if size > memory:  # rbloom would end the whole process
            raise ReproError(f"capacity={capacity:,} at error_rate={error_rate:g} takes {size / 1e9:,.1f} GB, more "
                             f"than the memory of this machine ({memory / 1e9:,.1f} GB); take a smaller capacity or a "
                             "larger error_rate.")
        self.capacity, self.n, self.error_rate, self.n_held = capacity, n, error_rate, 0
        self._bloom = Bloom(capacity, error_rate, int)  # what it is given are hashes already

    def update(self, texts: Iterable[str]) -> None:
        """Add every run of `n` words of each of `texts`; no run crosses texts. "<|endoftext|>" in a text counts as a
        word.

        Raises ReproError for more different runs than its capacity; it then holds the first of them.
        """
        for key in (_hash(gram) for text in _listed(texts) for gram in grams(text, self.n)):
            if key not in self._bloom:
                if self.n_held == self.capacity:
                    raise ReproError(f"the filter is full: the texts have more than its capacity={self.capacity:,} "
                                     f"different runs of {self.n} words. Make one of a larger capacity; beyond it, "
                                     f"errors would be more frequent than error_rate={self.error_rate:g}.")
                self._bloom.add(key)
                self.n_held += 1

    def __contains__(self, text: str) -> bool:
        """Whether the run of words `text`, normalised, is in it. ReproError unless it has exactly `n` words."""
        gram = normalise(text)
        if gram.count(" ") + bool(gram) != self.n:
            raise ReproError(f"'{text[:60]}' has {gram.count(' ') + bool(gram)} words; the filter holds runs of "
                             f"{self.n}. Use overlap(texts, filter) for longer texts.")
        return _hash(gram) in self._bloom

    @property
    def n_bytes(self) -> int:
        """The size of the filter in bytes, however full it is."""
        return self._bloom.size_in_bits // 8

    def found(self, text: str) -> Iterator[bool]:
        """For each run of `n` words of `text`, in order, whether it is in the filter."""
        return (_hash(gram) in self._bloom for gram in grams(text, self.n))


@dataclass(frozen=True)
class Overlap:
    """How many runs of words some texts have, by position, and how many of these are in a filter.

    >>> train = NgramFilter(capacity=1_000, n=3)
    >>> train.update(["one two three four"])
    >>> overlap(["zero one two three"], train)
    Overlap(n_grams=2, found=1)
    """

    n_grams: int
    found: int

    @property
    def share(self) -> float | None:
        """`found` of `n_grams`, 0 to 1; None if no text has a whole run (under 8 words)."""
        return self.found / self.n_grams if self.n_grams else None


def overlap(texts: Iterable[str], filter: NgramFilter) -> Overlap:
    """How much of `texts` is in `filter`: every run of `filter.n` words inside a text counts each time it
    occurs. Raises ReproError for one string instead of a list.

    >>> train = NgramFilter(capacity=1_000, n=3)
    >>> train.update(["one two three four"])
    >>> found = overlap(["zero one two three four"], train)
    >>> found.n_grams, found.found
    (3, 2)
    """
    if not isinstance(filter, NgramFilter):
        raise ReproError(f"filter is {filter!r:.60}; give an NgramFilter that holds the training texts.")
    n_grams = found = 0
    for text in _listed(texts):
        for one in filter.found(text):
            n_grams += 1
            found += one
    return Overlap(n_grams, found)


def grams(text: str, n: int) -> Iterator[str]:
    """The runs of `n` words of a text, normalised, in order; none for a text with fewer words."""
    found = words(text)
    return (" ".join(found[k:k + n]) for k in range(len(found) - n + 1))


def _memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _listed(texts: Iterable[str]) -> Iterable[str]:
    if not isinstance(texts, Iterable) or getattr(texts, "shape", None) == ():
        raise ReproError(f"texts is {texts!r:.60}; give a list of texts.")
    if isinstance(texts, str):
        raise ReproError("texts is one string; give a list of texts, such as [text].")
    return map(_text, texts)


def _text(given: str) -> str:
    if not isinstance(given, str):
        raise ReproError(f"{given!r} is among the texts; each of them must be a string.")
    return given


def _hash(gram: str) -> int:
    """128 bits, with a sign as rbloom wants them."""
    return int.from_bytes(hashlib.blake2b(gram.encode(errors="surrogateescape"), digest_size=16).digest(), signed=True)
