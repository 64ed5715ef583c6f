"""The one error users see: a clear line that says what is wrong, with which value, what is allowed and what to do."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real


class ReproError(ValueError):
    """Bad input or unusable state, reported in one line. The command line prints it and exits with 2."""

    def __init__(self, line: object = ""):
        super().__init__(readable(" ".join(str(line).splitlines())))  # a value in it may span several lines


LONGEST = 400  # characters without a blank that are shown in full: more than most paths have


def readable(line: str) -> str:
    """A line in which words of more than LONGEST characters are shortened in the middle.

    >>> readable("unknown run '" + 5_000 * "x" + "'.") == "unknown run '" + 199 * "x" + "…" + 198 * "x" + "'."
    True
    """
    half = LONGEST // 2
    return re.sub(rf"\S{{{LONGEST + 1},}}", lambda found: f"{found[0][:half]}…{found[0][-half:]}", line)


SHOWN = 20  # names in one message


def short(value: object, size: int = 100) -> str:
    """A value as text, on one line of at most `size` characters."""
    line = " ".join(repr(value).split())
    return line if len(line) <= size else line[:size - 1] + "…"


def is_series(value: object) -> bool:
    """Whether a value can be iterated over as a list: not a string, a mapping or an array without dimensions."""
    return (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
            and getattr(value, "ndim", 1) != 0)


def unknown(kind: str, value: object, allowed: Iterable[str]) -> ReproError:
    """The error for a name that is not in `allowed`. It suggests the nearest name, and lists all if there are few."""
    allowed = sorted(allowed)
    names = {name.casefold(): name for name in reversed(allowed)}
    near = [names[one] for one in difflib.get_close_matches(str(value).casefold(), names, n=SHOWN, cutoff=0.5)]
    hint = f" Did you mean '{near[0]}'?" if near else ""
    shown = allowed if len(allowed) <= SHOWN else sorted(near or allowed[:SHOWN])
    more = f", and {len(allowed) - len(shown)} more" if len(shown) < len(allowed) else ""
    return ReproError(f"unknown {kind} '{value}'.{hint} Known: {', '.join(shown) or 'none'}{more}.")


def check_ranges(settings: object, limits: Mapping[str, tuple[float, float]], what: str) -> None:
    """Raise ReproError for the first field of `settings` outside its limits (lowest, highest). what: their owner."""
    for name, (low, high) in limits.items():
        if not low <= getattr(settings, name) <= high:
            raise ReproError(f"{name}={getattr(settings, name)} of {what}: allowed are {low} to {high}.")


def check_whole(value: object, name: str, least: int = 1, most: int | None = None, of: str = "") -> int:
    """`value` as an int; ReproError unless it is a whole number from `least` to `most`. of: its unit, in words.

    >>> check_whole(0, "batch_size", of="windows")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: batch_size is 0 windows; it must be a whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least or most is not None and value > most:
        limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        unit = f" {of}" if of and isinstance(value, Real) and not isinstance(value, bool) else ""
        raise ReproError(f"{name} is {value!r:.60}{unit}; it must be a whole number {limits}.")
    return int(value)


def check_number(value: object, name: str, least: float = 0.0, below: float = math.inf) -> float:
    """`value`. Raises ReproError unless it is a finite number of at least `least` and below `below`.

    >>> check_number(1.0, "dropout", below=1)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: dropout is 1.0; it must be a number of at least 0 and below 1.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= value < below:
        limit = "finite" if below == math.inf else f"below {below:g}"
        raise ReproError(f"{name} is {value!r:.60}; it must be a number of at least {least:g} and {limit}.")
    return value


def check_method(value: object, name: str, method: str, example: str) -> None:
    """Raise ReproError unless `value` is an object with this method, such as `example`, and not a string.

    >>> check_method("gpt2", "tokeniser", "encode", "repro.data.tokeniser(...)")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: tokeniser is 'gpt2'; it must have a method `encode`, as repro.data.tokeniser(...) has.
    """
    if isinstance(value, str) or not callable(getattr(value, method, None)):
        raise ReproError(f"{name} is {short(value, 60)}; it must have a method `{method}`, as {example} has.")


def check_progress(progress: object) -> None:
    """Raise ReproError unless `progress` is None or a function, to be called with the amount done."""
    if progress is not None and not callable(progress):
        raise ReproError(f"progress is {short(progress, 60)}; it must be a function of a number, or None.")


def check_text(value: object, name: str) -> str:
    """`value`. Raises ReproError unless it is a string."""
    if not isinstance(value, str):
        raise ReproError(f"{name} is {value!r:.60}; it must be a text.")
    return value
