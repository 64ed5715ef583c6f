"""Settings that check themselves: frozen dataclasses that raise one clear line for a value of a wrong type or range."""

import re
from collections.abc import Iterator, Mapping
from functools import wraps
from inspect import signature
from numbers import Number
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from repro.errors import ReproError, short, unknown


def plain(value: Any) -> Any:
    """A numpy number as a Python number; other values unchanged."""
    return value.item() if isinstance(value, Number) and hasattr(value, "item") else value


MOST = 2**63 - 1  # the largest int64
Natural = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(plain)]
Positive = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(plain)]
Dropout = Annotated[float, Field(ge=0, lt=1), BeforeValidator(plain)]
NotNegative = Annotated[float, Field(ge=0), BeforeValidator(plain)]
Above = Annotated[float, Field(gt=0), BeforeValidator(plain)]
T = TypeVar("T")
Tuple = Annotated[tuple[T, ...], Field(strict=False)]  # of any length; a list is accepted, too

STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
KINDS = {"int": "a whole number", "float": "a number", "finite": "a finite number", "string": "a text",
         "bool": "True or False", "tuple": "a list, written […, …]", "list": "a list, written […, …]"}
BOUNDS = {"ge": "at least {:.15g}", "gt": "above {:.15g}", "le": "at most {:.15g}", "lt": "below {:.15g}",
          "min_length": "at least {} long"}


@dataclass_transform(frozen_default=True)
def config(kind: type) -> type:
    """Turn a class of annotated fields into a frozen dataclass that rejects values of a wrong type or out of range.

    Whole numbers are neither floats nor bools, and numbers are finite. `__post_init__` checks what depends on several
    fields. Raises ReproError for a value that does not fit, an unknown field, and a missing value.

    >>> @config
    ... class Shape:
    ...     rows: Positive
    >>> Shape(2)
    Shape(rows=2)
    >>> Shape(2.5)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: rows is 2.5; it must be a whole number.
    """
    made = dataclass(frozen=True, config=STRICT)(kind)
    checked = made.__init__

    @wraps(checked)
    def __init__(self, *args, **kwargs):
        try:
            checked(self, *args, **kwargs)
        except ValidationError as error:
            raise ReproError(" ".join(problems(error, made))) from None

    made.__init__ = __init__
    shown, types = signature(made), get_type_hints(made)  # without the bounds, which fill a screen
    made.__signature__ = shown.replace(parameters=[one.replace(annotation=types[name])
                                                   for name, one in shown.parameters.items()])
    return made


def problems(error: ValidationError, kind: type) -> Iterator[str]:
    """A sentence for each value that does not fit `kind`, a `config` or a pydantic model."""
    names = list(kind.__pydantic_fields__)
    for one in error.errors():
        first, *rest = one["loc"] or ("",)
        if one["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            yield str(unknown(f"setting of {kind.__name__}", first, names))
        elif one["type"] in ("unexpected_positional_argument", "multiple_argument_values"):
            yield f"{kind.__name__} has {len(names)} settings, each given once: {', '.join(names)}."
        else:
            first = names[first] if isinstance(first, int) else first
            yield sentence(".".join(map(str, (first, *rest))), one)


def sentence(name: str, problem: Mapping[str, Any]) -> str:
    """The problem with the value of a field, in words, from one of pydantic's `errors()`."""
    kind, bounds = problem["type"], problem.get("ctx", {})
    if kind == "value_error":
        return f"{bounds['error']}".rstrip(".") + "."
    if kind.startswith("missing"):
        return f"{name} has no value; give it one."
    if kind == "literal_error" and isinstance(problem["input"], str):
        return str(unknown(re.sub(r"\.\d+$", "", name), problem["input"], re.findall(r"'([^']*)'", bounds["expected"])))
    if kind == "literal_error":
        must = bounds["expected"]
    elif kind == "is_instance_of":
        must = f"a {bounds['class']}"
    elif bound := next((bound for bound in BOUNDS if bound in bounds), None):
        must = BOUNDS[bound].format(bounds[bound])
    else:
        must = next((known for start, known in KINDS.items() if kind.startswith(start)), problem["msg"])
    return f"{name} is {short(problem['input'])}; it must be {must}."
