"""A cache for lookups within one request, such as `repro list`, the scoreboard, or a cell of a chapter."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_found: dict[tuple, Any] | None = None


@contextmanager
def caching() -> Iterator[None]:
    """While it is active, each folder is listed once, each record checked once, and each id computed once."""
    global _found
    before, _found = _found, {} if _found is None else _found
    try:
        yield
    finally:
        _found = before


def cached(function: Function) -> Function:
    """Cache a function of hashable arguments while `caching` is active."""
    @functools.wraps(function)
    def remembered(*values, **named):
        if _found is None:
            return function(*values, **named)
        key = (function, *values, *sorted(named.items()))
        if key not in _found:
            _found[key] = function(*values, **named)
        kept = _found[key]
        return list(kept) if isinstance(kept, list) else kept  # a copy, so that callers can sort it
    return remembered
