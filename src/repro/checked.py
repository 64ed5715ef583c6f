"""Check arguments against their annotations: a value of a wrong type raises one clear line."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Number, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from repro.errors import ReproError, short, unknown

PLAIN = (NoneType, Number, str, bytes, list, tuple, dict, set, frozenset)  # never accepted as an object
NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", NoneType: "None",
         Path: "a path", Sequence: "a list", Iterable: "a list", tuple: "a list", list: "a list", dict: "a mapping",
         Mapping: "a mapping", Callable: "a function"}


def checked(function: Callable) -> Callable:
    """A function or class that checks its arguments against its annotations.

    Whole numbers are neither floats nor bools and fit into 64 bits; numbers are not NaN and fit into a float. Where the
    annotation is a class, any object that behaves like it is accepted, but no plain value. Unannotated arguments are
    not checked.

    >>> @checked
    ... def half(n: int) -> int:
    ...     return n // 2
    >>> half(2.5)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: n is 2.5; it must be a whole number.
    """
    if inspect.isclass(function):
        function.__init__ = checked(function.__init__)
        return function
    shape = inspect.signature(function)

    @wraps(function)
    def inside(*args, **kwargs):
        if compiling():
            return function(*args, **kwargs)
        given, wanted = shape.bind(*args, **kwargs).arguments, hints(function)
        for name, value in given.items():
            if name in wanted and not fits(value, wanted[name]):
                raise wrong(name, value, wanted[name])
        return function(*args, **kwargs)

    return inside


def compiling() -> bool:
    """Whether torch is tracing this call, in which case nothing is checked."""
    return "torch" in sys.modules and sys.modules["torch"].compiler.is_compiling()


@cache
def hints(function: Callable) -> dict[str, Any]:
    """The annotation of each parameter whose annotation can be resolved here."""
    found = {}
    for name, part in inspect.signature(function).parameters.items():
        kind = part.annotation
        if isinstance(kind, str):
            try:
                kind = eval(kind, inspect.unwrap(function).__globals__)
            except NameError:  # imported only for type checkers
                continue
        if kind is not part.empty and part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD):
            found[name] = kind
    return found


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type."""
    origin = get_origin(kind)
    if origin is Annotated:
        return fits(value, get_args(kind)[0])
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in get_args(kind))
    if origin is Literal:
        return isinstance(value, (NoneType, bool, int, float, str)) and value in get_args(kind)
    kind, single = origin or kind, getattr(value, "shape", None) == ()
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
            return False
        if isinstance(value, Integral):
            return abs(value) < 2**63 if kind is int else abs(value) <= sys.float_info.max
        return value == value  # rejects NaN
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's too
    if kind is Path:
        return isinstance(value, PathLike)
    if kind is str or kind in (NoneType, None):
        return value is None if kind in (NoneType, None) else isinstance(value, str)
    if kind in (Sequence, tuple, list):
        listed = hasattr(value, "__len__") and hasattr(value, "__iter__")
        return listed and not single and not isinstance(value, (Mapping, set))
    if kind is Iterable:
        return (hasattr(value, "__iter__") or hasattr(value, "__getitem__")) and not single
    if kind in (Mapping, dict):
        return isinstance(value, Mapping)
    if kind is Callable:
        return callable(value)
    if not inspect.isclass(kind) or kind is object:
        return True
    if getattr(kind, "_is_protocol", False) or not isinstance(value, kind):
        arrays = hasattr(value, "dtype") and hasattr(value, "shape")
        return not (isinstance(value, PLAIN) or arrays or kind.__name__ in ("Tensor", "ndarray"))
    return True


def wrong(name: str, value: Any, kind: Any) -> ReproError:
    """The error for a value that does not fit."""
    if get_origin(kind) is Literal and isinstance(value, str):
        return unknown(name, value, [one for one in get_args(kind) if isinstance(one, str)])
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else [kind]
    names = [NAMES.get(get_origin(one) or one, getattr(one, "__name__", str(one))) for one in kinds]
    return ReproError(f"{name} is {short(value)}; it must be {' or '.join(dict.fromkeys(names))}.")
