"""What "window" means in other libraries, as a pattern of ours."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from repro.attention.patterns import Global, Keys, Pattern, SlidingWindow


@dataclass(frozen=True)
class PreviousBlock(Pattern):
    """Causal inside the own block of `block` positions, and all of the block before."""

    block: int

    def keys(self, i):
        return [Keys(i - i % self.block - self.block, i)]


class Convention(NamedTuple):
    """`pattern(window)` is what a library does with its setting; with dilation where it has one, `pattern(w, d)`."""

    library: str
    setting: str
    meaning: str
    pattern: Callable[..., Pattern]


CONVENTIONS = (
    Convention("repro", "SlidingWindow(w, d)", "w keys, the query's own included, d apart",
               lambda w, d=1: SlidingWindow(w, d)),
    Convention("repro", "SlidingWindow(w, d, causal=False)", "w keys on both sides together, and the query's own",
               lambda w, d=1: SlidingWindow(w, d, causal=False)),
    Convention("Longformer (paper; transformers)", "attention_window", "w keys on both sides together, and the own",
               lambda w: SlidingWindow(w, causal=False)),
    Convention("allenai/longformer", "attention_window, attention_dilation", "w keys on each side, and the own",
               lambda w, d=1: SlidingWindow(2 * w, d, causal=False)),
    Convention("transformers, causal masks", "sliding_window", "w keys, the own included", lambda w: SlidingWindow(w)),
    Convention("transformers, bidirectional masks", "sliding_window", "w keys on each side, and the own",
               lambda w: SlidingWindow(2 * w, causal=False)),
    Convention("attention-gym", "generate_sliding_window(w)", "w keys back, and the own",
               lambda w: SlidingWindow(w + 1)),
    Convention("attention-gym", "generate_dilated_sliding_window(w, d)",
               "both sides; w is the span in positions, with w // d keys in it",
               lambda w, d=1: SlidingWindow(2 * (w // d), d, causal=False)),
    Convention("local-attention", "window_size, causal=True", "the own block of w up to the query, and the one before",
               PreviousBlock),
    Convention("local-attention", "window_size, causal=True, exact_windowsize=True", "w keys back, and the own",
               lambda w: SlidingWindow(w + 1)),
    Convention("local-attention", "window_size, causal=False, exact_windowsize=True",
               "w keys on each side, and the own", lambda w: SlidingWindow(2 * w, causal=False)),
    Convention("allenai/longformer, autoregressive", "attention_window, attention_dilation", "w keys back, and the own",
               lambda w, d=1: SlidingWindow(w + 1, d)),
    Convention("attention-gym", "generate_global_sliding_window(w, is_global)",
               "w keys on each side, the own, and the global ones",
               lambda w, positions=(): SlidingWindow(2 * w, causal=False) | Global(positions)),
    Convention("flash-attention", "window_size=(w, w)", "w keys on each side, and the own",
               lambda w: SlidingWindow(2 * w, causal=False)),
    Convention("flash-attention", "window_size=(w, 0), or causal=True", "w keys back, and the own",
               lambda w: SlidingWindow(w + 1)),
    Convention("NATTEN, 1-D", "kernel_size, dilation, is_causal=True", "w keys, the own included, d apart",
               lambda w, d=1: SlidingWindow(w, d)),  # without is_causal the window moves at the edges, to keep w keys
)
