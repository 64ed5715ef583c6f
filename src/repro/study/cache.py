"""Cache for lookups within one request: `repro list`, the scoreboard, a cell of a chapter."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_found: dict[tuple, Any] | None = None


@contextmanager
def caching() -> Iterator[None]:
    """Within this block, list every folder, check every record and compute every id only once."""
    global _found
    before, _found = _found, {} if _found is None else _found
    try:
        yield
    finally:
        _found = before


def cached(function: Function) -> Function:
    """Decorate a function of hashable values: within `caching`, each call with the same values is made once."""
    @functools.wraps(function)
    def remembered(*values, **named):
        if _found is None:
            return function(*values, **named)
        key = (function, *values, *sorted(named.items()))
        if key not in _found:
            _found[key] = function(*values, **named)
        kept = _found[key]
        return list(kept) if isinstance(kept, list) else kept  # a copy, so that a caller may sort it
    return remembered
