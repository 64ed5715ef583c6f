"""The meaning of "window" in other libraries, expressed as our patterns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from repro.attention.patterns import END, Global, Keys, Pattern, SlidingWindow
from repro.errors import ReproError


@dataclass(frozen=True)
class PreviousBlock(Pattern):
    """The query's own block of `block` positions up to the query, plus all of the previous block."""

    block: int

    def keys(self, i):
        return [Keys(i - i % self.block - self.block, i)]


@dataclass(frozen=True)
class Between(Pattern):
    """The keys from `back` positions before the query to `ahead` after it; -1: all keys on that side."""

    back: int
    ahead: int

    steady = True

    @property
    def looks_ahead(self) -> bool:
        return self.ahead != 0

    def keys(self, i):
        return [Keys(i - self.back if self.back >= 0 else 0, i + self.ahead if self.ahead >= 0 else END)]


@dataclass(frozen=True)
class Neighbourhood(Pattern):
    """The `kernel` keys around the query, `dilation` apart, in a text of n positions. Near its ends, the neighborhood
    shifts inward and keeps its size (Hassani et al. 2023, section 3.1). An even kernel has one more key before the
    query than after it.

    Raises ReproError for sequences of another length, and for a text too short for that many keys."""

    kernel: int
    dilation: int
    n: int

    def __post_init__(self):
        if min(self.kernel, self.dilation) < 1 or self.kernel * self.dilation > self.n:
            raise ReproError(f"kernel is {self.kernel} keys, {self.dilation} apart, but n is {self.n}; both must "
                             "be at least 1, and their product at most n.")

    def check(self, n):
        super().check(n)
        if n != self.n:
            raise ReproError(f"n is {n}, but this neighborhood was made for {self.n} positions; make one for {n}.")

    def keys(self, i):
        residue, place = i % self.dilation, i // self.dilation
        length = (self.n - residue + self.dilation - 1) // self.dilation  # positions with that residue
        start = torch.minimum((place - self.kernel // 2).clamp(min=0), length - self.kernel)
        first = start * self.dilation + residue
        return [Keys(first, first + (self.kernel - 1) * self.dilation, self.dilation)]


class Convention(NamedTuple):
    """`pattern(window)` is our pattern for a library's setting, or `pattern(w, d)` if it has dilation. Further
    settings, such as global positions, are passed as further arguments."""

    library: str
    setting: str
    meaning: str
    pattern: Callable[..., Pattern]


CONVENTIONS = (
    Convention("repro", "SlidingWindow(w, d)", "w keys, the query's own included, d apart",
               lambda w, d=1: SlidingWindow(w, d)),
    Convention("repro", "SlidingWindow(w, d, causal=False)", "w keys on both sides together, and the query's own",
               lambda w, d=1: SlidingWindow(w, d, causal=False)),
    Convention("Longformer (paper; transformers)", "attention_window",
               "w keys on both sides together, and the query's own", lambda w: SlidingWindow(w, causal=False)),
    Convention("allenai/longformer", "attention_window, attention_dilation", "w keys on each side, and the query's own",
               lambda w, d=1: SlidingWindow(2 * w, d, causal=False)),
    Convention("allenai/longformer", "attention_window, attention_dilation, autoregressive=True",
               "w keys before, and the query's own", lambda w, d=1: SlidingWindow(w + 1, d)),
    Convention("transformers, causal masks", "sliding_window", "w keys, including its own", lambda w: SlidingWindow(w)),
    Convention("transformers, bidirectional masks", "sliding_window", "w keys on each side, and the query's own",
               lambda w: SlidingWindow(2 * w, causal=False)),
    Convention("attention-gym", "generate_sliding_window(w)", "w keys back, and the query's own",
               lambda w: SlidingWindow(w + 1)),
    Convention("attention-gym", "generate_dilated_sliding_window(w, d)",
               "both sides; w is the span in positions, with w // d keys in it",
               lambda w, d=1: SlidingWindow(2 * (w // d), d, causal=False)),
    Convention("attention-gym", "generate_global_sliding_window(w, is_global)",
               "w keys on each side, its own, and global positions (by default the first)",
               lambda w, positions=(0,): SlidingWindow(2 * w, causal=False) | Global(positions)),
    Convention("flash-attention", "window_size=(w, right)",
               "w keys back, right ahead (none by default), and the query's own; -1 is all",
               lambda w, right=0: Between(w, right)),
    Convention("NATTEN", "kernel_size, dilation",
               "w keys in all, including its own; the same number at the ends of the text",
               lambda w, d=1, n=64: Neighbourhood(w, d, n)),
    Convention("NATTEN", "kernel_size, dilation, is_causal=True", "w keys, including its own",
               lambda w, d=1: SlidingWindow(w, d)),
    Convention("local-attention", "window_size, causal=True",
               "its own block of w, up to the query, and the block before it", PreviousBlock),
    Convention("local-attention", "window_size, causal=True, exact_windowsize=True", "w keys back, and the query's own",
               lambda w: SlidingWindow(w + 1)),
    Convention("local-attention", "window_size, causal=False, exact_windowsize=True",
               "w keys on each side, and the query's own", lambda w: SlidingWindow(2 * w, causal=False)),
)
