"""Helpers for chapters: show the library's own code, fold secondary tables, read and check parameters, and find out
whether they run in a notebook."""

import ast
import html
import inspect
import math
import operator
import sys
import textwrap
from dataclasses import dataclass

from repro.errors import ReproError


def source(*objects, docstring: bool = False):
    """The source of functions, properties and classes, as highlighted code in the page; without docstrings by default.

    The chapter explains the code in its own words.
    """
    from IPython.display import Markdown

    return Markdown("\n\n".join(f"```python\n{_source(one, docstring)}\n```" for one in objects))


@dataclass(frozen=True)
class Folded:
    """Outputs behind a title; a click opens them."""

    title: str
    shown: tuple

    def _repr_html_(self) -> str:
        return (f'<details class="more"><summary><b>{html.escape(self.title)}</b></summary>'
                f'{"".join(map(_html, self.shown))}</details>')

    def __repr__(self) -> str:
        return self.title  # the repr of some tables contains an address, which differs in every run


def folded(title: str, *shown) -> Folded:
    """Secondary tables and figures behind one title, which says what is inside. The printed book shows them open.

    Raises ReproError for an empty title, for nothing to show, and for an object that has no HTML.

    >>> from repro.study import artifact
    >>> folded("Settings of every run", artifact("gpt1_2018-hyperparameters").render("small")).title
    'Settings of every run'
    """
    if not isinstance(title, str) or not title.strip():
        raise ReproError(f"title is {title!r}; give a title that says what is inside, such as 'Learning rates tried'.")
    if not shown:
        raise ReproError(f"{title!r} folds nothing; give at least one table or figure.")
    for one in shown:
        if not _html(one):
            raise ReproError(f"{title!r} cannot fold {type(one).__name__}, which has no HTML; give a rendered table, "
                             "figure or verdict table.")
    return Folded(title, shown)


def _html(one) -> str | None:
    """The HTML that a notebook shows for an object; None if it has none."""
    if hasattr(one, "_repr_mimebundle_"):
        return one._repr_mimebundle_().get("text/html")
    return one._repr_html_() if hasattr(one, "_repr_html_") else None


def _source(one, docstring: bool) -> str:
    text = textwrap.dedent(inspect.getsource(one.fget if isinstance(one, property) else one)).rstrip()
    return text if docstring else without_docstrings(text)


def without_docstrings(code: str) -> str:
    """`code` without the docstrings of its functions and classes, and without the empty line after each."""
    lines, dropped = code.splitlines(), set()
    for node in ast.walk(ast.parse(code)):
        has_one = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node)
        if has_one and len(node.body) > 1:  # a docstring that is the whole body stays, so that the code parses
            first, last = node.body[0].lineno, node.body[0].end_lineno
            dropped |= set(range(first, last + 1 + (not lines[last].strip())))
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in dropped)


def listed(value) -> list[int]:
    """A parameter that holds numbers, as a list: papermill's `-p overlaps 10` gives a number, `-p overlaps 0,10` text.

    >>> listed(10), listed("0,10"), listed((0, 10))
    ([10], [0, 10], [0, 10])

    Raises ReproError if the value holds no whole numbers.
    """
    parts = value.strip("[]() ,").split(",") if isinstance(value, str) else value
    parts = [value] if hasattr(value, "__index__") and not isinstance(value, bool) else [] if parts == [""] else parts
    try:
        return [int(part) if isinstance(part, str) else operator.index(part) for part in parts]
    except (TypeError, ValueError):
        raise ReproError(f"{value!r} is no list of whole numbers; give one such as 0,10.") from None


def within(*, multiple_of: int | None = None, **parameters: tuple) -> None:
    """Check parameters, each given as (value, lowest) or (value, lowest, highest), the value a number or a list.

    Raises ReproError for the first that is out of its limits, not a number, not whole although its lowest is, or not a
    multiple of `multiple_of`.

    >>> within(stride=(7, 2), side=(6, 4, 10), depths=([4, 16], 1, 128), weight=(0.5, 0.0))
    >>> within(multiple_of=2, window=(8, 4, 128))
    """
    for name, (value, low, *high) in parameters.items():
        some = value if isinstance(value, (list, tuple)) else [value]
        kind = int if isinstance(low, int) else (int, float)
        fits = bool(some) and all(isinstance(one, kind) and not isinstance(one, bool)
                                  and low <= one <= (high or [one])[0] and one < math.inf for one in some)
        rule = (f"{low:,} to {high[0]:,}" if high else f"{low:,} or more") + ", whole" * (kind is int)
        if multiple_of:
            fits = fits and not any(one % multiple_of for one in some)
            rule += f", a multiple of {multiple_of:,}"
        require(rule, **{name: (value, fits)})


def require(rule: str, **parameters: tuple) -> None:
    """Check parameters, each given as (value, whether it follows the rule). Raises ReproError for one that does not.

    >>> sizes = [1, 3, 8]
    >>> require("in rising order", sizes=(sizes, sizes == sorted(sizes)))
    """
    for name, (value, follows) in parameters.items():
        if not follows:
            raise ReproError(f"{name} is {value!r}; allowed: {rule}. Change it in the cell of the parameters.")


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
