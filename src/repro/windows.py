"""Which tokens each window reads and which it scores (Yoshida et al. 2020, section 4)."""

from itertools import groupby
from typing import NamedTuple

from repro.errors import ReproError


class Window(NamedTuple):
    """Inputs `start .. stop-1` predict targets `start+1 .. stop`; only targets `first_target .. stop` are scored.

    >>> first = windows(n_tokens=100, window=16, overlap=4)[1]
    >>> first
    Window(start=12, stop=28, first_target=17)
    >>> first.first_target - first.start  # tokens that the first target of the window sees
    5
    """

    start: int
    stop: int
    first_target: int

    @property
    def n_scored(self) -> int:
        """Number of targets this window scores."""
        return self.stop - self.first_target + 1

    @property
    def offset(self) -> int:
        """Index, inside the window, of the first input position whose prediction is scored."""
        return self.first_target - 1 - self.start


def check_window(window: int, overlap: int, n_positions: int | None = None) -> None:
    """Raise ReproError unless `0 <= overlap < window <= n_positions`, the model's context in tokens."""
    if window < 1:
        raise ReproError(f"window is {window} tokens; it must be at least 1.")
    if not 0 <= overlap < window:
        raise ReproError(f"overlap is {overlap} tokens; it must be at least 0 and smaller than the window ({window}).")
    if n_positions is not None and window > n_positions:
        raise ReproError(f"window is {window} tokens, but the model's context ends at {n_positions}; "
                         f"choose a window of at most {n_positions}.")


def windows(n_tokens: int, window: int, overlap: int) -> list[Window]:
    """Cover tokens `0 .. n_tokens-1` so that every target `1 .. n_tokens-1` is scored exactly once.

    Each window reads at most `window` tokens and starts `overlap` tokens before the end of the one before it, so a
    target sees at least `overlap + 1` tokens of context everywhere but in the first window. The last window may be
    shorter. Only the first token of the stream is never a target; fewer than two tokens give no window.

    Raises ReproError unless `0 <= overlap < window`.

    >>> windows(n_tokens=10, window=6, overlap=2)
    [Window(start=0, stop=6, first_target=1), Window(start=4, stop=9, first_target=7)]
    """
    check_window(window, overlap)
    cover = []
    stop = 0
    while stop < n_tokens - 1:
        start = stop - overlap if cover else 0
        first_target, stop = stop + 1, min(start + window, n_tokens - 1)
        cover.append(Window(start, stop, first_target))
    return cover


def same_shape(cover: list[Window]) -> list[list[Window]]:
    """The windows in groups that can be read at once: the first, those in the middle, a short last one.

    All of a group read the same number of tokens and score from the same `offset` on. In text order.
    """
    return [list(group) for _, group in groupby(cover, key=lambda window: (window.stop - window.start, window.offset))]
