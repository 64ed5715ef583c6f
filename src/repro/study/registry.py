"""The registry of experiments, artifacts and claims, which the packages `repro.papers.<paper>` declare.

Packages are discovered by name, and this module knows nothing about their content, so adding a paper changes no other
code. Their modules import nothing heavy at the top level, so that `repro list` starts immediately.
"""

import importlib
import pkgutil
import re
import sys
from functools import cache
from typing import Any, TypeVar

from repro.errors import ReproError, unknown

PACKAGE = "repro.papers"
SHARED = "base"  # a package that is not a paper, but the starting point of the papers' experiments
NEEDED = ("paper", "experiment", "artifact", "claim")  # what the package of a paper must declare, one or more of each
Declared = TypeVar("Declared")
_declared: dict[type, dict[str, Any]] = {}
_modules: dict[tuple[type, str], str] = {}  # the module that declares each


def register(*declarations: Any) -> None:
    """Register experiments, artifacts and claims under their ids.

    Raises ReproError for an id that is already taken, and for a declaration that conflicts with others of its kind
    (`check_beside`, if it has one).

    >>> from repro.papers.example import EXPERIMENT  # importing it registers it
    >>> register(EXPERIMENT)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: experiment 'counted-words' is declared twice, in repro.papers.example and ...
    """
    module = sys._getframe(1).f_globals["__name__"]
    for declaration in declarations:
        kind, id = type(declaration), declaration.id
        names = _declared.setdefault(kind, {})
        if id in names:
            raise ReproError(f"{_kind(kind)} '{id}' is declared twice, in {_modules[kind, id]} and in {module}; "
                             "rename one of them.")
        if hasattr(declaration, "check_beside"):
            declaration.check_beside(list(names.values()))
        names[id], _modules[kind, id] = declaration, module


def lookup(kind: type[Declared], name: str) -> Declared:
    """The declaration of this kind and name. Raises ReproError, with the nearest name, when there is none."""
    if name not in declared(kind):
        raise unknown(_kind(kind), name, declared(kind))
    return declared(kind)[name]


def declared(kind: type[Declared]) -> dict[str, Declared]:
    """All declarations of this kind by name, in the order of the packages and their modules."""
    _discover()
    return _declared.setdefault(kind, {})


def package(declaration: Any) -> str:
    """The package that declares it, such as "yoshida2020" or "base"; "" if it is declared outside `repro.papers`."""
    module = _modules[type(declaration), declaration.id]
    return module.removeprefix(f"{PACKAGE}.").partition(".")[0] if module.startswith(f"{PACKAGE}.") else ""


def packages() -> list[str]:
    """The names of all packages in `repro.papers`."""
    papers = importlib.import_module(PACKAGE)
    return sorted(found.name for found in pkgutil.iter_modules(papers.__path__) if found.ispkg)


def title(paper: str) -> str:
    """Authors, year and title of a paper from its package's docstring; the name itself if there is no package."""
    if paper not in packages():
        return paper
    line = (importlib.import_module(f"{PACKAGE}.{paper}").__doc__ or "").partition("\n")[0]
    found = re.match(r"([^*]*)\*([^*]*)\*", line)
    return f"{found[1]}{found[2]}" if found else paper


def cited(paper: str) -> str:
    """A paper's citation, such as "Yoshida et al. (2020)"; the name itself if the authors are not known."""
    found = re.match(r"(.+?) (\(\d{4}\))", title(paper))
    if not found:
        return paper
    names = re.split(", | and ", found[1].removesuffix(" et al."))
    return f"{found[1] if len(names) == 2 else names[0] + ' et al.' * (found[1] != names[0])} {found[2]}"


@cache
def _discover() -> None:
    """Import every module of every package, including subpackages, once."""
    for name in packages():
        paper = importlib.import_module(f"{PACKAGE}.{name}")
        for module in pkgutil.walk_packages(paper.__path__, f"{paper.__name__}."):  # in alphabetical order
            importlib.import_module(module.name)
        if name != SHARED:
            _check_whole(name)


def _check_whole(paper: str) -> None:
    """Raise ReproError if a paper's package lacks a declaration, or if its `Paper` has another id."""
    found = {_kind(kind): names for kind, names in _declared.items()
             if any(package(one) == paper for one in names.values())}
    for needed in NEEDED:
        if needed not in found:
            raise ReproError(f"package {PACKAGE}.{paper} declares no {needed}; register at least one, or move the "
                             "package away (CONTRIBUTING.md, \"A paper\").")
    if paper not in found["paper"]:
        raise ReproError(f"the Paper of package {PACKAGE}.{paper} has another id; its id must be '{paper}'.")


def _kind(kind: type) -> str:
    return kind.__name__.lower()
