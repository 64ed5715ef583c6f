"""Patterns against the sentences that define them, written out pair by pair."""

from dataclasses import dataclass
from itertools import product
from operator import and_, or_

import numpy as np
import pytest
import torch

from repro.attention import (
    BlockLocal,
    Causal,
    Columns,
    Document,
    Fixed,
    Full,
    Global,
    Keys,
    Pattern,
    Prefix,
    Rows,
    SlidingWindow,
    Strided,
    patterns,
)
from repro.attention.patterns import looking_back
from repro.errors import ReproError

IDS = (4, 4, 0, 0, 0, 4, 2, 0, 0, 7, 7, 2, 2, 2, 2, 2, 2)
DEFINED = [  # a pattern, and who sees whom by its definition
    (Full(), lambda i, j: True),
    (Causal(), lambda i, j: j <= i),
    (SlidingWindow(1), lambda i, j: i == j),
    (SlidingWindow(3), lambda i, j: j in (i, i - 1, i - 2)),
    (SlidingWindow(3, dilation=4), lambda i, j: j in (i, i - 4, i - 8)),
    (SlidingWindow(50), lambda i, j: j <= i),
    (SlidingWindow(0, causal=False), lambda i, j: i == j),
    (SlidingWindow(4, causal=False), lambda i, j: abs(i - j) <= 2),
    (SlidingWindow(4, dilation=3, causal=False), lambda i, j: i - j in (-6, -3, 0, 3, 6)),
    (BlockLocal(4), lambda i, j: i // 4 == j // 4 and j <= i),
    (Strided(4), lambda i, j: j <= i and (i - j < 4 or (i - j) % 4 == 0)),
    (Strided(4).heads[0], lambda i, j: 0 <= i - j < 4),
    (Strided(4).heads[1], lambda i, j: j <= i and (i - j) % 4 == 0),
    (Fixed(5, 2), lambda i, j: j <= i and (i // 5 == j // 5 or j % 5 >= 3)),
    (Fixed(5, 2).heads[0], lambda i, j: j <= i and i // 5 == j // 5),
    (Fixed(5, 2).heads[1], lambda i, j: j <= i and j % 5 in (3, 4)),
    (Global([7, 0, 1]), lambda i, j: i in (0, 1, 7) or j in (0, 1, 7)),
    (Global([]), lambda i, j: False),
    (Columns([7, 0, 1]), lambda i, j: j in (0, 1, 7)),
    (Rows([7, 0, 1]), lambda i, j: i in (0, 1, 7)),
    (Prefix(3), lambda i, j: j < 3),
    (Prefix(0), lambda i, j: False),
    (Document(IDS), lambda i, j: IDS[i] == IDS[j]),
    (Document(IDS) & Causal(), lambda i, j: IDS[i] == IDS[j] and j <= i),
    (Prefix(3) | Causal(), lambda i, j: j < 3 or j <= i),
]


def written_out(rule, n):
    return torch.tensor([[bool(rule(i, j)) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize(("pattern", "rule"), DEFINED, ids=lambda x: repr(x) if not callable(x) else "")
@pytest.mark.parametrize("n", [8, 13])
def test_definition(pattern, rule, n):
    expected = written_out(rule, n)
    assert torch.equal(pattern.mask(n), expected)
    assert torch.equal(pattern.per_query(n), expected.sum(1))
    assert pattern.count(n) == expected.sum()


@pytest.mark.parametrize("n", [8, 17])
def test_combinations(n):
    for (p, rule), (q, other) in product(DEFINED, DEFINED):
        either = written_out(lambda i, j: rule(i, j) or other(i, j), n)  # noqa: B023
        both = written_out(lambda i, j: rule(i, j) and other(i, j), n)  # noqa: B023
        assert torch.equal((p | q).mask(n), either) and (p | q).count(n) == either.sum(), (p, q)
        assert torch.equal((p & q).mask(n), both) and (p & q).count(n) == both.sum(), (p, q)


@pytest.mark.parametrize("n", [8, 17])
def test_what_a_pattern_says_of_itself(n):
    """Looked up in tensors it is the same; it is steady, and does not look ahead, only where its definition says so."""
    i = torch.arange(n)
    for (p, _), (q, _) in product(DEFINED, DEFINED):
        for pattern in (p | q, p & q):
            assert torch.equal(pattern.predicate(n)(i[:, None], i), pattern.mask(n)), pattern
            if pattern.steady:
                assert torch.equal(pattern.mask(n)[1:, 1:], pattern.mask(n)[:-1, :-1]), pattern
            if not pattern.looks_ahead and not repr(pattern).count("Prefix"):
                assert not pattern.mask(n).triu(1).any(), pattern
        assert not looking_back(p).mask(n).triu(1)[:, 3:].any() and torch.equal(
            looking_back(p).mask(n).tril(), p.mask(n).tril())
    assert (SlidingWindow(3, 2) | Strided(4)).steady and (Strided(3) & SlidingWindow(4, causal=False)).steady
    assert not any(p.steady for p in (Fixed(4, 1), BlockLocal(3), Global([0]), Document([0]), Strided(3) | Prefix(2)))
    assert not any(p.looks_ahead for p in (Strided(4), Fixed(4, 2), Full() & Causal(), Prefix(2) | Causal()))


def test_deep_combination():
    p = (Strided(4) | Global([2])) & (SlidingWindow(6, 2) | Fixed(3, 1) | BlockLocal(7)) | SlidingWindow(2, 5)
    assert p.count(60) == p.mask(60).sum() == written_out(
        lambda i, j: (any(rule(i, j) for rule in (lambda i, j: j <= i and (i - j < 4 or (i - j) % 4 == 0),
                                                  lambda i, j: i == 2 or j == 2))
                      and (i - j in (0, 2, 4, 6, 8, 10) or j <= i and (i // 3 == j // 3 or j % 3 == 2)
                           or j <= i and i // 7 == j // 7)) or i - j in (0, 5), 60).sum()


def test_count_needs_no_mask():
    n = 10**6  # an n * n mask would be a terabyte
    assert SlidingWindow(256).count(n) == 256 * n - 255 * 256 // 2
    assert (SlidingWindow(512, causal=False) | Global([0])).count(n) == 513 * n - 256 * 257 + 2 * (n - 1) - 2 * 256
    assert Causal().count(n) == n * (n + 1) // 2


def test_numbers_and_positions_from_arrays():
    assert SlidingWindow(np.int64(4)) == SlidingWindow(4)
    assert Global(torch.tensor([3, 0])) == Global(np.array([0, 3, 3])) == Global(range(0, 4, 3)) == Global({0, 3})


@pytest.mark.parametrize("combine", [or_, and_])
def test_only_patterns_combine(combine):
    with pytest.raises(TypeError, match="unsupported operand"):
        combine(SlidingWindow(3), 3)


def test_asking_one_pair_or_many():
    assert SlidingWindow(3)(5, 3) and not SlidingWindow(3)(5, 2)
    assert SlidingWindow(3)(torch.arange(4)[:, None], torch.arange(6)).shape == (4, 6)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: SlidingWindow(0), "window is 0 keys; it must be at least 1"),
    (lambda: SlidingWindow(-2, causal=False), "window is -2"),
    (lambda: SlidingWindow(5, causal=False), "window is 5; a bidirectional window has half on each side"),
    (lambda: SlidingWindow(4, dilation=0), "dilation is 0 positions; it must be at least 1"),
    (lambda: Strided(0), "stride is 0"),
    (lambda: SlidingWindow(-2), "window is -2 keys; it must be at least 1"),
    (lambda: SlidingWindow(1.5), "window is 1.5 keys; it must be at least 1, a whole number"),
    (lambda: SlidingWindow(True), "window is True keys; it must be at least 1, a whole number"),
    (lambda: SlidingWindow("4", causal=False), "window is '4' keys; .* a whole number"),
    (lambda: SlidingWindow(4, dilation=-1), "dilation is -1 positions; it must be at least 1"),
    (lambda: SlidingWindow(4, dilation=2.0), "dilation is 2.0 positions; .* a whole number"),
    (lambda: Strided(2.5), "stride is 2.5 .* a whole number"),
    (lambda: Fixed(4, None), "summary is None .* a whole number"),
    (lambda: Fixed(4, 0), "summary is 0 positions; it must be at least 1"),
    (lambda: BlockLocal(3.0), "block is 3.0 .* a whole number"),
    (lambda: Global([1.5]), r"positions are \[1.5\]; give whole numbers counted from 0, or an empty list"),
    (lambda: Global(torch.tensor([True, False])), r"positions are \[True, False\]; .* whole numbers"),
    (lambda: Global(3), "positions are 3; give whole numbers"),
    (lambda: Fixed(4, 5), "summary is 5; it must be between 1 and the stride"),
    (lambda: BlockLocal(0), "block is 0"),
    (lambda: Prefix(-1), "n is -1 positions; it must be at least 0"),
    (lambda: Document([]), r"ids are \[\]; give every position the whole number of its document"),
    (lambda: Document(3), "ids are 3"),
    (lambda: Document([0, 0.5]), r"ids are \[0, 0.5\]"),
    (lambda: Document([0, 0, 1]).mask(4), "ids name the documents of 3 positions, but the sequence has 4"),
    (lambda: Global([-1, 3]), "positions are"),
    (lambda: Global([3, 12]).mask(12), "positions name 12, but the sequence has 12: 0 to 11"),
    (lambda: (Global([12]) & Causal() | SlidingWindow(2)).count(12), "positions name 12"),
    (lambda: Causal().mask(0), "n is 0"),
])
def test_bad_input(make, said):
    with pytest.raises(ReproError, match=said):
        make()


@dataclass(frozen=True)
class Sink(Pattern):
    """The example of the class's docstring: the own block, and the first key of all."""

    block: int

    def keys(self, i):
        start = i - i % self.block
        return [Keys(0, torch.clamp(start - 1, max=0)), Keys(start, i)]


@dataclass(frozen=True)
class Twice(Pattern):
    gap: int = 1

    def keys(self, i):
        return [Keys(i - 8, i), Keys(i - 8 - self.gap, i - 9 + (self.gap == 1))]


def test_a_pattern_of_ones_own_needs_only_its_keys():
    wanted = BlockLocal(4).mask(21)
    wanted[:, 0] = True
    assert torch.equal(Sink(4).mask(21), wanted) and Sink(4).count(21) == wanted.sum()


def test_progressions_that_share_a_key_are_refused():
    Twice(gap=2).check(3)
    for use in (lambda p: p.check(9), lambda p: p.mask(9), lambda p: p.count(9), lambda p: (p | Causal()).mask(9)):
        with pytest.raises(ReproError, match=r"Twice\(gap=1\) gives query 8 the key 0 in two"):
            use(Twice())


@pytest.mark.parametrize("n", [0, -1, 2.0, "9", True])
def test_lengths_are_whole_numbers(n):
    with pytest.raises(ReproError, match="n is .*whole number"):
        Causal().mask(n)


@pytest.mark.parametrize("stride", [1, 2, 5])
def test_the_near_head_of_strided_is_the_papers_without_the_key_that_the_far_head_has(stride):
    """The paper's set is i - stride to i (Child et al. 2019, section 4.3); the union of both heads is the same."""
    i, j = torch.arange(20)[:, None], torch.arange(20)
    near, far = Strided(stride).heads
    papers = (j >= i - stride) & (j <= i)
    assert near.per_query(20).max() == stride and papers.sum(1).max() == stride + 1
    assert (papers & ~near.mask(20)).nonzero().tolist() == [[k, k - stride] for k in range(stride, 20)]
    assert (papers | far.mask(20)).equal(Strided(stride).mask(20))


def test_two_patterns_of_one_name_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(patterns, "PATTERNS", dict(patterns.PATTERNS))
    with pytest.raises(ReproError, match=r"pattern 'strided' is declared twice, as repro.attention.patterns.Strided "
                                         r"and as .*\.Mine; rename one of them\."):
        class Mine(Pattern, name="strided"):
            pass


def test_a_pattern_may_be_defined_again_where_it_was(monkeypatch):
    """As when the cell of a notebook is executed twice."""
    monkeypatch.setattr(patterns, "PATTERNS", dict(patterns.PATTERNS))
    for _ in range(2):
        class Sink(Pattern, name="sink"):
            pass

        class Deeper(Sink):  # a subclass has no name of its own
            pass
    assert patterns.PATTERNS["sink"] is Sink and Deeper not in patterns.PATTERNS.values()
