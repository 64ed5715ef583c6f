"""The reference: the public names of the rooms with their signatures and docstrings, as the code has them."""

import importlib
import inspect
import re

ROOMS = ("attention", "evaluation", "recurrence", "models", "training", "data", "plotting", "study")
PLACE = "<!-- api -->"


def filled(text: str) -> str:
    """The page with all rooms in its place."""
    before, after = text.split(PLACE)
    return before + "\n".join(map(room, ROOMS)) + after


def room(name: str) -> str:
    """A room: what it is for, and each of its public names, in the order of the alphabet."""
    module = importlib.import_module(f"repro.{name}")
    links = " · ".join(f'<a href="#repro.{name}.{one}">{one}</a>' for one in public(name))
    return "\n".join([f"## repro.{name}", "", written(inspect.getdoc(module)), "", f"**All names**: {links}", "",
                      *(entry(one, getattr(module, one), name) for one in public(name))])


def public(name: str) -> list[str]:
    """The names that a room hands out."""
    return sorted(importlib.import_module(f"repro.{name}").__all__, key=str.lower)


def entry(name: str, value: object, room: str) -> str:
    """One name: its signature as code, then its docstring, then its methods; of a value that is no function or class
    what it is. It has a place that links lead to, and stands in the index."""
    index = f'```{{index}} single: {name}; repro.{room}\n```\n\n<span id="repro.{room}.{name}"></span>\n\n'
    told = f"```python\n{name}{signature(value)}\n```\n\n{docstring(value)}\n"
    return f"{index}### {name}\n\n{told}{methods(value, name)}"


def methods(value: object, name: str) -> str:
    """The public methods of a class and of its own bases: what is called how, and the first line of what it says."""
    if not inspect.isclass(value):
        return ""
    every: dict[str, object] = {}
    for kind in reversed([kind for kind in value.__mro__ if kind.__module__.startswith("repro.")]):
        every |= {one: getattr(raw, "__func__", raw) for one, raw in vars(kind).items() if not one.startswith("_")}
    lines = (f"- `.{one}{bound(method)}`: {written(first_line(method))}\n" for one, method in every.items()
             if inspect.isfunction(method) and inspect.getdoc(method))
    return "\n".join(["", "".join(lines), ""])


def bound(method: object) -> str:
    """The arguments of a method that is called on an object or a class, in one line."""
    parts = [argument(one) for one in inspect.signature(method).parameters.values() if one.name not in ("self", "cls")]
    return f"({', '.join(parts)})"


def first_line(method: object) -> str:
    """The first sentence or paragraph of a docstring, in one line."""
    return " ".join(inspect.getdoc(method).partition("\n\n")[0].split())


def signature(value: object) -> str:
    """The arguments of a function or class, a line each where they are many; "" for what takes none to speak of."""
    if not callable(value):
        return f": {type(value).__name__}"
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parts = [argument(one) for one in found.parameters.values() if one.name != "self"]
    flat = f"({', '.join(parts)})"
    return flat if len(flat) < 90 else "(\n    " + ",\n    ".join(parts) + ",\n)"


def argument(one: inspect.Parameter) -> str:
    """A parameter as it is written: a type without quotes and without modules, a default that has no name as "..."."""
    kind = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
    kind = re.sub(r"\b(?:\w+\.)+(?=\w)", "", kind)
    name = str(one.replace(annotation=one.empty, default=one.empty))
    typed = name if one.annotation is one.empty else f"{name}: {kind}"
    if one.default is one.empty:
        return typed
    default = re.sub(r"<function \S+ at \w+>", "...", repr(one.default))
    return f"{typed}{'=' if typed == name else ' = '}{default}"


def docstring(value: object) -> str:
    """What the code says of it; "" for a value, whose docstring would be that of its type."""
    told = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else ""
    if not told or told.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return written(told)


def written(told: str) -> str:
    """A docstring as Markdown: its examples set as code, and nothing in it taken for a tag."""
    told = re.sub(r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", told, flags=re.MULTILINE)
    code = re.compile(r"(^```pycon$[\s\S]*?^```$|`[^`]*`|^ {4}.*$)", re.MULTILINE)  # it stays as it is
    return "".join(part if k % 2 else part.replace("<", r"\<") for k, part in enumerate(code.split(told)))
