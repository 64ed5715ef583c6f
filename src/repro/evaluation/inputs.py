"""Checks of texts and of lists of numbers, for what is counted without torch."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from repro.errors import ReproError, check_text


def texts_of(values: Any, name: str) -> Iterator[str]:
    """Each of `values`, one at a time. Raises ReproError for one string in the place of a list, and for an entry that
    is no text."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ReproError(f"{name} is {values!r:.60}; give a list of texts.")
    return (check_text(one, f"{name} {number}") for number, one in enumerate(values))


def numbers(values: Any, name: str, shape: tuple[int | None, ...] | None = (None,), finite: bool = True) -> np.ndarray:
    """`values` as float64. shape: what it must be, with None for any length; None: any. finite: False lets infinity
    pass, never nan.

    Raises ReproError for what is no array of numbers, another shape, and numbers that are not finite.
    """
    try:
        found = np.asarray(values)
        found = found if found.dtype.kind in "iufb" or not found.size else None
    except (ValueError, TypeError, RuntimeError):
        found = None
    fits = found is not None and (shape is None or len(shape) == found.ndim and all(
        n in (None, m) for n, m in zip(shape, found.shape, strict=True)))
    if not fits:
        told = f"{values!r:.60}".replace("\n", " ") if found is None else f"of shape {found.shape}"
        wanted = "" if shape is None else f" of shape ({', '.join('any' if n is None else str(n) for n in shape)})"
        raise ReproError(f"{name} is {told}; give numbers{wanted}.")
    found = found.astype(np.float64)
    lost = np.flatnonzero(np.isnan(found) if not finite else ~np.isfinite(found))
    if len(lost):
        raise ReproError(f"{name} holds {found.flat[lost[0]]} at place {lost[0]}, one of {len(lost)} of {found.size} "
                         f"that are {'not finite' if finite else 'no numbers'}; leave them out.")
    return found


def check_share(value: Any, name: str) -> None:
    """Raise ReproError unless 0 < value < 1, such as the level of an interval."""
    if not isinstance(value, (float, np.floating)) or not 0 < value < 1:
        raise ReproError(f"{name} is {value!r:.40}; it must be above 0 and below 1, such as 0.95.")
