"""Attention patterns, which can be queried, combined, counted and drawn.

A pattern gives, for every query position i, the key positions that it sees: a few arithmetic progressions S_i, as in
Child et al. (2019, section 4.2). Everything else follows: the predicate `p(i, j)`, the dense mask, the
number of allowed pairs, and the blocks that the implementations compute.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import product
from numbers import Integral
from operator import and_, or_
from typing import NamedTuple

import torch
from torch import Tensor

from repro.errors import ReproError

END = 2**31 - 1  # past the last position of any sequence
PATTERNS: "dict[str, type[Pattern]]" = {}  # patterns with a name, for `repro.attention.register`


class Keys(NamedTuple):
    """The key positions first, first + step, ... up to last; none if last < first. Positions below 0 do not exist.

    >>> SlidingWindow(3).keys(torch.tensor(7))
    [Keys(first=tensor(5), last=tensor(7), step=1)]
    """

    first: Tensor | int
    last: Tensor | int
    step: int = 1

    def have(self, j: Tensor) -> Tensor:
        """Whether the key positions `j` are among them."""
        inside = (j >= self.first) & (j <= self.last)
        return inside if self.step == 1 else inside & ((j - self.first) % self.step == 0)

    def within(self, n: int, i: Tensor) -> "Keys":
        """The keys among 0 .. n-1, as tensors with one entry for each query in `i`."""
        first, last = self.first + 0 * i, self.last + 0 * i
        return Keys(torch.where(first < 0, first % self.step, first), last.clamp(max=n - 1), self.step)


class Pattern:
    """The base of all patterns. A new pattern is a frozen dataclass with a method `keys`; `|` and `&` combine patterns.

    With a name, as in `class Sink(Pattern, name="sink")`, `register()` offers it to transformers as "repro_sink".

    For example, the keys of the query's own block up to the query, and the first key of all (an attention sink):

        @dataclass(frozen=True)
        class Sink(Pattern):
            block: int

            def keys(self, i):
                start = i - i % self.block
                return [Keys(0, torch.clamp(start - 1, max=0)), Keys(start, i)]

    >>> either = SlidingWindow(4) | BlockLocal(8)
    >>> either(torch.tensor(9), torch.tensor([5, 6, 8]))
    tensor([False,  True,  True])
    >>> either.count(1_000)
    5244
    """

    def __init_subclass__(cls, name: str = "", **rest):
        """Register the class under its name. Raises ReproError if another class has that name."""
        super().__init_subclass__(**rest)
        one, two = (f"{each.__module__}.{each.__qualname__}" for each in (PATTERNS.get(name, cls), cls))
        if one != two:
            raise ReproError(f"pattern '{name}' is declared twice, as {one} and as {two}; rename one of them.")
        if name:
            PATTERNS[name] = cls

    @property
    def parts(self) -> "tuple[Pattern, ...]":
        """The patterns whose union this pattern is: the pattern itself, unless it is a union."""
        return (self,)

    @property
    def steady(self) -> bool:
        """Whether the pattern depends on the distance i - j only; False unless a pattern overrides it."""
        return self.parts != (self,) and all(part.steady for part in self.parts)

    @property
    def looks_ahead(self) -> bool:
        """Whether a query may see a later key; True unless a pattern overrides it."""
        return self.parts == (self,) or any(part.looks_ahead for part in self.parts)

    def keys(self, i: Tensor) -> list[Keys]:
        """The keys that each of the queries `i` sees, as disjoint progressions."""
        raise NotImplementedError(f"{type(self).__name__} has no method `keys`; see Pattern.")

    def check(self, n: int) -> None:
        """Raise ReproError if the pattern cannot be used on sequences of n positions."""
        if not _whole(n) or n < 1:
            raise ReproError(f"n is {n!r}; it must be a whole number of positions, at least 1.")
        for part in self.parts:
            _check_apart(part)

    def __call__(self, i: Tensor | int, j: Tensor | int) -> Tensor:
        """Whether query position i sees key position j: a bool tensor, broadcasting i against j."""
        i, j = torch.as_tensor(i), torch.as_tensor(j)
        return reduce(or_, [part._allows(i, j) for part in self.parts])

    def _allows(self, i: Tensor, j: Tensor) -> Tensor:
        """`__call__` for a pattern that is not a union."""
        return reduce(or_, [keys.have(j) for keys in self.keys(i)], (i < 0) & (j < 0))

    def __or__(self, other: "Pattern") -> "Pattern":
        return Union((self, other)) if isinstance(other, Pattern) else NotImplemented

    def __and__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return union([intersection(one, two) for one in self.parts for two in other.parts])

    def predicate(self, n: int, device: torch.device | str | None = None) -> Callable[[Tensor, Tensor], Tensor]:
        """`__call__` for positions below n on one device; lists in a pattern become tensors there."""
        asked = [part._predicate(n, device) for part in self.parts]
        return asked[0] if len(asked) == 1 else lambda i, j: reduce(or_, [one(i, j) for one in asked])

    def _predicate(self, n, device):
        """`predicate` for a pattern that is not a union."""
        return self._allows

    def mask(self, n: int, device: torch.device | str | None = None) -> Tensor:
        """(n, n) bool: whether query i (row) sees key j (column)."""
        self.check(n)
        position = torch.arange(n, device=device)
        return self(position[:, None], position)

    def per_query(self, n: int) -> Tensor:
        """The number of keys that each query sees (n,), from the progressions alone, by inclusion and exclusion."""
        self.check(n)
        first, *rest = self.parts
        i = torch.arange(n)
        seen = torch.zeros_like(i)
        for low, high, step in (keys.within(n, i) for keys in first.keys(i)):
            seen += ((high - low) // step + 1).clamp(min=0)
        if rest:
            others = union(rest)
            seen = seen + others.per_query(n) - (first & others).per_query(n)
        return seen

    def count(self, n: int) -> int:
        """Allowed pairs among n queries and n keys. Time and memory are proportional to n."""
        return int(self.per_query(n).sum())


@dataclass(frozen=True)
class Full(Pattern, name="full"):
    """Every query sees every key.

    >>> Full().count(1_000)
    1000000
    """

    steady = True

    def keys(self, i):
        return [Keys(0, END)]


@dataclass(frozen=True)
class Causal(Pattern, name="causal"):
    """Query i sees the keys 0 .. i.

    >>> Causal().mask(3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    >>> Causal().count(1_000)
    500500
    """

    steady, looks_ahead = True, False

    def keys(self, i):
        return [Keys(0, i)]


@dataclass(frozen=True)
class SlidingWindow(Pattern, name="sliding"):
    """A window around the query, with gaps of `dilation` (Beltagy et al. 2020, section 3.1 and Figure 2b, c).

    causal: query i sees keys i - k * dilation, k = 0 .. window-1, so `window` counts keys, the query's own included.
    Otherwise it sees half a window on each side plus itself: window + 1 keys, i - j a multiple of the dilation and
    |i - j| <= dilation * window / 2. Raises ReproError for a window below 1 (below 0 if not causal), for an odd window
    if not causal, and for a dilation below 1.

    >>> SlidingWindow(2).mask(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    >>> SlidingWindow(2, dilation=2).mask(7)[6].int()
    tensor([0, 0, 0, 0, 1, 0, 1], dtype=torch.int32)
    >>> SlidingWindow(4, causal=False).mask(7)[3].int()
    tensor([0, 1, 1, 1, 1, 1, 0], dtype=torch.int32)
    """

    window: int
    dilation: int = 1
    causal: bool = True

    def __post_init__(self):
        if not isinstance(self.causal, bool):
            raise ReproError(f"causal is {self.causal!r}; it must be True or False.")
        _at_least("window", self.window, 1 if self.causal else 0, "keys")
        _at_least("dilation", self.dilation, 1, "positions")
        if not self.causal and self.window % 2:
            raise ReproError(f"window is {self.window}; a bidirectional window has half on each side, so it must be "
                             f"even, for example {self.window + 1}.")

    steady = True

    @property
    def looks_ahead(self) -> bool:
        return not self.causal and self.window > 0

    def keys(self, i):
        back = self.window - 1 if self.causal else self.window // 2
        ahead = 0 if self.causal else self.window // 2
        return [Keys(i - back * self.dilation, i + ahead * self.dilation, self.dilation)]


@dataclass(frozen=True)
class BlockLocal(Pattern, name="block_local"):
    """Causal inside disjoint blocks of `block` positions (Liu et al. 2018, section 4.2.4).

    >>> BlockLocal(2).mask(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """

    block: int

    looks_ahead = False

    def __post_init__(self):
        _at_least("block", self.block, 1, "positions")

    def keys(self, i):
        return [Keys(i - i % self.block, i)]


@dataclass(frozen=True)
class Multiples(Pattern):
    """Earlier keys a multiple of `stride` back, and the query's own: the second head of `Strided`."""

    stride: int

    steady, looks_ahead = True, False

    def __post_init__(self):
        _at_least("stride", self.stride, 1, "positions")

    def keys(self, i):
        return [Keys(i % self.stride, i, self.stride)]


@dataclass(frozen=True)
class Summary(Pattern):
    """Causal, but only the last `summary` positions of every block of `stride`: the second head of `Fixed`.

    sub_block: another stretch of `summary` positions instead, counted from the block's end. Raises ReproError for a
    summary or a sub-block that does not fit into the block.
    """

    stride: int
    summary: int
    sub_block: int = 0

    looks_ahead = False

    def __post_init__(self):
        _at_least("stride", self.stride, 1, "positions")
        _at_least("summary", self.summary, 1, "positions")
        if self.summary > self.stride:
            raise ReproError(f"summary is {self.summary}; it must be between 1 and the stride ({self.stride}).")
        _at_least("sub_block", self.sub_block, 0, "stretches")
        if (self.sub_block + 1) * self.summary > self.stride:
            raise ReproError(f"sub_block is {self.sub_block}; a block of {self.stride} positions has those from 0 to "
                             f"{self.stride // self.summary - 1} of {self.summary} each.")

    @property
    def columns(self) -> range:
        """The positions of the summary in a block."""
        stop = self.stride - self.sub_block * self.summary
        return range(stop - self.summary, stop)

    def keys(self, i):
        return [Keys(column, i, self.stride) for column in self.columns]


@dataclass(frozen=True)
class Strided(Pattern, name="strided"):
    """Union of its `heads`: the last `stride` positions, and every `stride`-th one (Child et al. 2019, section 4.3).

    The first head sees `stride` keys, including the query's own; the paper's set, i - stride to i, has one more.
    Sequences may be shorter than the stride, as prompts often are: up to stride + 1 positions, the pattern is the same
    as `Causal()`.

    >>> Strided(3).mask(7)[6].int()
    tensor([1, 0, 0, 1, 1, 1, 1], dtype=torch.int32)
    >>> [head.mask(7)[6].int().tolist() for head in Strided(3).heads]
    [[0, 0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0, 1]]
    """

    stride: int

    def __post_init__(self):
        _at_least("stride", self.stride, 1, "positions")

    @property
    def heads(self) -> tuple[Pattern, Pattern]:
        """The two patterns that the paper assigns to different heads."""
        return SlidingWindow(self.stride), Multiples(self.stride)

    parts = heads


@dataclass(frozen=True)
class Fixed(Pattern, name="fixed"):
    """Union of its `heads`: the query's own block, and the last `summary` of every block (Child et al., section 4.3).

    A block has `stride` positions. sub_block: another stretch of `summary` positions instead, counted from the block's
    end, so that the heads of a layer can use different ones. Sequences may be shorter than the stride, as prompts often
    are: up to `stride` positions, one block, the pattern is the same as `Causal()`.

    >>> Fixed(stride=3, summary=1).mask(7)[6].int()
    tensor([0, 0, 1, 0, 0, 1, 1], dtype=torch.int32)
    >>> [head.mask(7)[6].int().tolist() for head in Fixed(stride=3, summary=1).heads]
    [[0, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1, 0]]
    """

    stride: int
    summary: int
    sub_block: int = 0

    def __post_init__(self):
        Summary(self.stride, self.summary, self.sub_block)

    @property
    def heads(self) -> tuple[Pattern, Pattern]:
        """The two patterns that the paper assigns to different heads."""
        return BlockLocal(self.stride), Summary(self.stride, self.summary, self.sub_block)

    parts = heads


@dataclass(frozen=True, init=False)
class _At(Pattern):
    """A pattern with a list of positions, possibly empty. Raises ReproError for a position that is not a whole number
    of at least 0, and on sequences too short to contain them all."""

    positions: tuple[int, ...]

    def __init__(self, positions: Iterable[int]):
        named = positions.tolist() if isinstance(positions, Tensor) else positions
        named = list(named) if isinstance(named, Iterable) else named
        if not isinstance(named, list) or not all(_whole(one) and one >= 0 for one in named):
            raise ReproError(f"positions are {named!r}; give whole numbers counted from 0, or an empty list: [].")
        object.__setattr__(self, "positions", tuple(sorted({int(position) for position in named})))

    def check(self, n):
        super().check(n)
        if self.positions and self.positions[-1] >= n:
            raise ReproError(f"positions name {self.positions[-1]}, but the sequence has {n}: 0 to {n - 1}.")

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The positions as (first, last) of each stretch without a gap."""
        starts = [p for p in self.positions if p - 1 not in self.positions]
        return list(zip(starts, (p for p in self.positions if p + 1 not in self.positions), strict=True))

    def listed(self, n: int, device: torch.device | str | None = None) -> Tensor:
        """(n,) bool: which positions are listed."""
        table = torch.zeros(n, dtype=torch.bool, device=device)
        table[[position for position in self.positions if position < n]] = True
        return table


@dataclass(frozen=True, init=False)
class Columns(_At):
    """All positions attend to these.

    >>> (Columns([0]) | SlidingWindow(1)).mask(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 0, 1]], dtype=torch.int32)
    """

    def keys(self, i):
        return [Keys(first, last) for first, last in self.runs]

    def _predicate(self, n, device):
        table = self.listed(n, device)
        return lambda i, j: table[j] & (i >= 0)


@dataclass(frozen=True, init=False)
class Rows(_At):
    """These positions attend to all positions.

    >>> (Rows([2]) | SlidingWindow(1)).mask(4).int()
    tensor([[1, 0, 0, 0],
            [0, 1, 0, 0],
            [1, 1, 1, 1],
            [0, 0, 0, 1]], dtype=torch.int32)
    """

    def keys(self, i):
        named = i < 0
        for first, last in self.runs:
            named = named | ((i >= first) & (i <= last))
        return [Keys(0, torch.where(named, END, -1))]

    def _predicate(self, n, device):
        table = self.listed(n, device)
        return lambda i, j: table[i] & (j >= 0)


@dataclass(frozen=True, init=False)
class Global(_At, name="global"):
    """These positions attend to all, and all attend to them (Beltagy et al. 2020, section 3.1 and Figure 2d).

    >>> (SlidingWindow(1) | Global([1])).mask(4).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 1, 1],
            [0, 1, 1, 0],
            [0, 1, 0, 1]], dtype=torch.int32)
    """

    @property
    def parts(self):
        return Columns(self.positions), Rows(self.positions)


@dataclass(frozen=True)
class Prefix(Pattern):
    """All attend to the first `n` positions: `Prefix(n) | Causal()` reads a question both ways and its answer causally.

    It is meant for decoders, so it does not count as looking ahead. Cached tokens cannot see later ones, so a model
    that generates must get the whole prefix at once: after a shorter prompt, the next token raises ReproError, unless
    use_cache=False.

    >>> (Prefix(2) | Causal()).mask(4).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
    """

    n: int
    looks_ahead = False

    def __post_init__(self):
        _at_least("n", self.n, 0, "positions")

    def keys(self, i):
        return [Keys(0, self.n - 1)]


@dataclass(frozen=True, init=False)
class Document(Pattern):
    """Positions of one document see one another, in either direction; `Document(ids) & Causal()` only looks back.

    ids: the number of the document of every position, as a sequence or an (N,) tensor. Raises ReproError for ids that
    are not whole numbers, and on sequences longer than the ids.

    >>> (Document([0, 0, 1, 1]) & Causal()).mask(4).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """

    ids: tuple[int, ...]
    runs: Tensor = field(repr=False, compare=False)  # (k, 2, N): see `_stretches`

    def __init__(self, ids: Iterable[int]):
        named = ids.tolist() if isinstance(ids, Tensor) else ids
        named = list(named) if isinstance(named, Iterable) else named
        if not isinstance(named, list) or not named or not all(map(_whole, named)):
            raise ReproError(f"ids are {named!r}; give every position the whole number of its document.")
        object.__setattr__(self, "ids", tuple(int(one) for one in named))
        object.__setattr__(self, "runs", _stretches(self.ids))

    def check(self, n):
        super().check(n)
        if n > len(self.ids):
            raise ReproError(f"ids name the documents of {len(self.ids)} positions, but the sequence has {n}.")

    def keys(self, i):
        known = (i >= 0) & (i < len(self.ids))
        at = torch.where(known, i, 0)
        runs = self.runs.to(at.device)
        return [Keys(first[at], torch.where(known, last[at], -1)) for first, last in runs]

    def _predicate(self, n, device):
        ids = torch.tensor(self.ids, device=device)
        return lambda i, j: ids[i] == ids[j]


@dataclass(frozen=True)
class Union(Pattern):
    """The union of patterns, written `p | q`."""

    patterns: tuple[Pattern, ...]
    parts: tuple[Pattern, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self):
        every = {part: _factors(part) for pattern in self.patterns for part in pattern.parts}
        needed = (part for part, own in every.items() if not any(other < own for other in every.values()))
        object.__setattr__(self, "parts", tuple(needed))

    def check(self, n):
        for one in self.patterns:
            one.check(n)

    def __repr__(self):
        return " | ".join(map(repr, self.patterns))


@dataclass(frozen=True)
class Intersection(Pattern):
    """The intersection of patterns, none of them a union or an intersection, written `p & q`."""

    patterns: frozenset[Pattern]

    def check(self, n):
        for one in self.patterns:
            one.check(n)

    def keys(self, i):
        return [reduce(_shared, keys) for keys in product(*(one.keys(i) for one in self.patterns))]

    @property
    def steady(self) -> bool:
        return all(one.steady for one in self.patterns)

    @property
    def looks_ahead(self) -> bool:
        return all(one.looks_ahead for one in self.patterns)

    def _allows(self, i, j):
        return reduce(and_, [one._allows(i, j) for one in self.patterns])

    def _predicate(self, n, device):
        asked = [one._predicate(n, device) for one in self.patterns]
        return lambda i, j: reduce(and_, [one(i, j) for one in asked])

    def __repr__(self):
        return " & ".join(sorted(map(repr, self.patterns)))


@lru_cache(maxsize=256)
def _check_apart(pattern: Pattern) -> None:
    """Raise ReproError if a key is in two progressions of one of the first queries: it would be attended to twice."""
    position = torch.arange(256)
    times = sum((keys.have(position).long() for keys in pattern.keys(position[:, None])), torch.zeros(256, 256).long())
    if (twice := (times > 1).nonzero()).numel():
        raise ReproError(f"{pattern!r} gives query {twice[0, 0]} the key {twice[0, 1]} in two of its progressions; "
                         "those that `keys` returns must be disjoint.")


def union(patterns: Sequence[Pattern]) -> Pattern:
    """The union of these patterns."""
    return Union(tuple(patterns)) if len(patterns) > 1 else patterns[0]


def intersection(one: Pattern, two: Pattern) -> Pattern:
    """The intersection of two patterns, neither of them a union."""
    both = (_factors(one) | _factors(two)) - {Full()}
    return Intersection(both) if len(both) > 1 else next(iter(both), one)


def looking_back(pattern: Pattern) -> Pattern:
    """The pattern of a causal model: parts that look ahead are cut off after the query."""
    return union([part & Causal() if part.looks_ahead else part for part in pattern.parts])


def _stretches(ids: tuple[int, ...]) -> Tensor:
    """(k, 2, N): the first and last position of each of the at most k stretches that a position's document has."""
    starts = [i for i, one in enumerate(ids) if i == 0 or ids[i - 1] != one]
    of = {}
    for first, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        of.setdefault(ids[first], []).append((first, stop - 1))
    most = max(map(len, of.values()))
    padded = {one: runs + [(0, -1)] * (most - len(runs)) for one, runs in of.items()}
    return torch.tensor([padded[one] for one in ids]).permute(1, 2, 0).contiguous()


def _factors(pattern: Pattern) -> frozenset[Pattern]:
    return pattern.patterns if isinstance(pattern, Intersection) else frozenset([pattern])


def _shared(a: Keys, b: Keys) -> Keys:
    """The keys of both progressions: a progression again, by the Chinese remainder theorem."""
    common, lowest, apart = math.gcd(a.step, b.step), _larger(a.first, b.first), b.first - a.first
    other = b.step // common
    meeting = a.first + a.step * (apart // common * pow(a.step // common, -1, other) % other)
    first = lowest + (meeting - lowest) % (a.step * other)
    last = -_larger(-a.last, -b.last)
    return Keys(first, last if common == 1 else last - END * (apart % common != 0), a.step * other)


def _larger(a: Tensor | int, b: Tensor | int) -> Tensor | int:
    return b + (a - b) * (a > b)  # for numbers and for tensors


def _at_least(name: str, value: int, least: int, unit: str) -> None:
    if not _whole(value) or value < least:
        raise ReproError(f"{name} is {value!r} {unit}; it must be at least {least}, a whole number.")


def _whole(value) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
