"""What the study declares: modules of `repro.study.catalog` register experiments, artifacts and claims.

A later chapter adds one module there and touches no other file. Catalog modules import nothing heavy at the top,
so that `repro list` starts at once.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any, TypeVar

from repro.errors import ReproError, unknown

Declared = TypeVar("Declared")
_declared: dict[type, dict[str, Any]] = {}


def register(*declarations: Any) -> None:
    """Make experiments, artifacts and claims known by their ids. Raises ReproError for an id that is already taken."""
    for declaration in declarations:
        names = _declared.setdefault(type(declaration), {})
        if declaration.id in names:
            raise ReproError(f"{_kind(type(declaration))} '{declaration.id}' is declared twice; rename one of them.")
        names[declaration.id] = declaration


def lookup(kind: type[Declared], name: str) -> Declared:
    """The declaration of this kind and name. Raises ReproError, with the nearest name, when there is none."""
    if name not in declared(kind):
        raise unknown(_kind(kind), name, declared(kind))
    return declared(kind)[name]


def declared(kind: type[Declared]) -> dict[str, Declared]:
    """All declarations of this kind by name, in the order of the catalog's modules."""
    _discover()
    return _declared.setdefault(kind, {})


@cache
def _discover() -> None:
    """Import every module of the catalog once."""
    from repro.study import catalog

    for module in sorted(found.name for found in pkgutil.iter_modules(catalog.__path__)):
        importlib.import_module(f"{catalog.__name__}.{module}")


def _kind(kind: type) -> str:
    return kind.__name__.lower()
