"""Checks of texts and lists of numbers, for scores that do not need torch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from repro.errors import ReproError, check_text, is_series


def texts_of(values: Any, name: str) -> Iterator[str]:
    """Each of `values`, one at a time. Raises ReproError for a string instead of a list, and for an entry that
    is not a string."""
    if not is_series(values):
        raise ReproError(f"{name} is {values!r:.60}; give a list of texts.")
    return (check_text(one, f"{name} {number}") for number, one in enumerate(values))


def numbers(values: Any, name: str, shape: tuple[int | None, ...] | None = (None,), finite: bool = True) -> np.ndarray:
    """`values` as float64. shape: the required shape, with None for any length; None: any shape. finite: False
    allows infinity, but never NaN.

    Raises ReproError for anything but an array of numbers, for another shape, and for numbers that are not finite.
    """
    try:
        found = np.asarray(values)
        found = found if found.dtype.kind in "iufb" or not found.size else None
    except (ValueError, TypeError, RuntimeError):
        found = None
    fits = found is not None and (shape is None or len(shape) == found.ndim and all(
        n in (None, m) for n, m in zip(shape, found.shape, strict=True)))
    if not fits:
        given = f"{values!r:.60}".replace("\n", " ") if found is None else f"of shape {found.shape}"
        wanted = "" if shape is None else f" of shape ({', '.join('any' if n is None else str(n) for n in shape)})"
        raise ReproError(f"{name} is {given}; give numbers{wanted}.")
    found = found.astype(np.float64)
    lost = np.flatnonzero(np.isnan(found) if not finite else ~np.isfinite(found))
    if len(lost):
        raise ReproError(f"{name} holds {found.flat[lost[0]]} at index {lost[0]}; {len(lost)} of {found.size} values "
                         f"are {'not finite' if finite else 'NaN'}. Remove them.")
    return found


def check_share(value: Any, name: str) -> None:
    """Raise ReproError unless 0 < value < 1, such as the level of an interval."""
    if not isinstance(value, (float, np.floating)) or not 0 < value < 1:
        raise ReproError(f"{name} is {value!r:.40}; it must be above 0 and below 1, such as 0.95.")
