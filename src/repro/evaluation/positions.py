"""Loss by position in a window: the gain from each additional token of context."""

from itertools import pairwise

import numpy as np

from repro.errors import ReproError, check_whole
from repro.evaluation.inputs import numbers


def stretches(window: int) -> list[tuple[int, int]]:
    """Half-open ranges of positions 0 .. window - 1 that double in length: the 1st, the 2nd, the 3rd and 4th, the 5th
    to 8th token, ... Raises ReproError for a window below 1."""
    check_whole(window, "window", of="tokens")
    return list(pairwise([0, *(2**k for k in range(window.bit_length()) if 2**k < window), window]))


def by_position(target_nll, window: int) -> np.ndarray:
    """(window,) mean loss in nats of each position.

    target_nll: (N,) of disjoint windows; an incomplete last window is left out. Raises ReproError for fewer targets
    than one window, and for losses that are not finite.
    """
    check_whole(window, "window", of="tokens")
    if len(numbers(target_nll, "target_nll")) < window:
        raise ReproError(f"{len(target_nll)} targets do not fill a window of {window} tokens; give at least that many.")
    return np.asarray(target_nll)[:len(target_nll) // window * window].reshape(-1, window).mean(0, dtype=np.float64)
