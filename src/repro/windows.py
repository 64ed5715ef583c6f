"""Which tokens each window reads and which it scores (Yoshida et al. 2020, section 4), and how many a model can read.
"""

from itertools import groupby
from typing import Any, NamedTuple

from repro.errors import ReproError, check_whole


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


def context_of(model: Any) -> int | None:
    """How many tokens `model` can read at once; None if its config sets no limit, or if it has no config.

    Its own `n_positions` counts first, then that of its config, then `max_position_embeddings`, without the rows that
    RoBERTa and similar models keep for padding. For a model of text and images, the config of its text part counts.

    >>> from types import SimpleNamespace
    >>> context_of(SimpleNamespace(config=SimpleNamespace(max_position_embeddings=4096)))
    4096
    """
    config = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    sources = (model, "n_positions"), (config, "n_positions"), (config, "max_position_embeddings")
    found = next((n for n in (getattr(source, name, None) for source, name in sources) if isinstance(n, int)), -1)
    if found < 1:  # -1 in XLNet, absent in other models: no limit
        return None
    if not hasattr(model, "n_positions") and hasattr(model, "named_modules"):
        found -= max((module.padding_idx + 1 for name, module in model.named_modules() if name.endswith(
            "position_embeddings") and getattr(module, "padding_idx", None) is not None), default=0)
    return found


def check_window(window: int, overlap: int, context: int | None = None) -> None:
    """Raise ReproError unless both are whole and `0 <= overlap < window <= context` (the model's), in tokens."""
    check_whole(window, "window", of="tokens")
    check_whole(overlap, "overlap", 0, of="tokens")
    if overlap >= window:
        raise ReproError(f"overlap is {overlap} tokens; it must be at least 0 and smaller than the window ({window}).")
    if context is not None and window > context:
        raise ReproError(f"window is {window} tokens, but the model's context ends at {context}; choose a window of at "
                         f"most {context}.")


def windows(n_tokens: int, window: int, overlap: int) -> list[Window]:
    """Cover tokens `0 .. n_tokens-1` so that every target `1 .. n_tokens-1` is scored exactly once.

    Each window reads at most `window` tokens and starts `overlap` tokens before the end of the one before it, so a
    target sees at least `overlap + 1` tokens of context everywhere but in the first window. The last window may be
    shorter. Only the first token of the stream is never a target; fewer than two tokens give no window.

    Raises ReproError unless all are whole numbers and `0 <= overlap < window`.

    >>> windows(n_tokens=10, window=6, overlap=2)
    [Window(start=0, stop=6, first_target=1), Window(start=4, stop=9, first_target=7)]
    """
    check_window(window, overlap)
    check_whole(n_tokens, "n_tokens", 0)
    cover = []
    stop = 0
    while stop < n_tokens - 1:
        start = stop - overlap if cover else 0
        first_target, stop = stop + 1, min(start + window, n_tokens - 1)
        cover.append(Window(start, stop, first_target))
    return cover


def same_shape(cover: list[Window]) -> list[list[Window]]:
    """The windows in groups that can be read at once: the first, those in the middle, a short last one.

    All windows of a group read the same number of tokens and score from the same `offset` on. In text order.
    """
    return [list(group) for _, group in groupby(cover, key=lambda window: (window.stop - window.start, window.offset))]
