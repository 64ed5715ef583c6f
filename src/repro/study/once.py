"""Looking at everything once, for those who ask for much: `repro list`, the scoreboard, a cell of a chapter."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_found: dict[tuple, Any] | None = None


@contextmanager
def unchanging() -> Iterator[None]:
    """Within it nothing changes: every folder is listed once, every record checked once, every id worked out once."""
    global _found
    before, _found = _found, {} if _found is None else _found
    try:
        yield
    finally:
        _found = before


def once(function: Function) -> Function:
    """Of a function of values that can be hashed: what it returned before, within `unchanging`; else it is called."""
    @functools.wraps(function)
    def remembered(*values, **named):
        if _found is None:
            return function(*values, **named)
        key = (function, *values, *sorted(named.items()))
        if key not in _found:
            _found[key] = function(*values, **named)
        kept = _found[key]
        return list(kept) if isinstance(kept, list) else kept  # who sorts it sorts a list of his own
    return remembered
