"""Write the reference: the public names of every package with their signatures and docstrings."""

import importlib
import inspect
import re

ROOMS = ("attention", "evaluation", "recurrence", "models", "training", "data", "plotting", "study", "pages")
PLACE = "<!-- api -->"


def filled(text: str) -> str:
    """The page with all packages inserted."""
    before, after = text.split(PLACE)
    return before + "\n".join(map(room, ROOMS)) + after


def room(name: str) -> str:
    """A package: its purpose, then each of its public names in alphabetical order."""
    module = importlib.import_module(f"repro.{name}")
    links = " · ".join(f'<a href="#repro.{name}.{one}">{one}</a>' for one in public(name))
    return "\n".join([f"## repro.{name}", "", written(inspect.getdoc(module)), "", f"**All names**: {links}", "",
                      *(entry(one, getattr(module, one), name) for one in public(name))])


def public(name: str) -> list[str]:
    """The public names of a package."""
    return sorted(importlib.import_module(f"repro.{name}").__all__, key=str.lower)


def entry(name: str, value: object, room: str) -> str:
    """One name, with an anchor and an index entry: its signature, its docstring, its methods; for a plain value, its
    type."""
    index = f'```{{index}} single: {name}; repro.{room}\n```\n\n<span id="repro.{room}.{name}"></span>\n\n'
    text = f"```python\n{name}{signature(value)}\n```\n\n{docstring(value)}\n"
    return f"{index}### {name}\n\n{text}{methods(value, name)}"


def methods(value: object, name: str) -> str:
    """The public methods of a class and of its bases in this library, each with its arguments and first sentence."""
    if not inspect.isclass(value):
        return ""
    every: dict[str, object] = {}
    for kind in reversed([kind for kind in value.__mro__ if kind.__module__.startswith("repro.")]):
        every |= {one: getattr(raw, "__func__", raw) for one, raw in vars(kind).items() if not one.startswith("_")}
    lines = (f"- `.{one}{bound(method)}`: {written(first_line(method))}\n" for one, method in every.items()
             if inspect.isfunction(method) and inspect.getdoc(method))
    return "\n".join(["", "".join(lines), ""])


def bound(method: object) -> str:
    """The arguments of a method without `self` or `cls`, in one line."""
    parts = [argument(one) for one in inspect.signature(method).parameters.values() if one.name not in ("self", "cls")]
    return f"({', '.join(parts)})"


def first_line(method: object) -> str:
    """The first sentence or paragraph of a docstring, in one line."""
    return " ".join(inspect.getdoc(method).partition("\n\n")[0].split())


def signature(value: object) -> str:
    """The arguments of a function or class, one per line if they are many; "" if they cannot be inspected."""
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
    """A parameter as in the source: types without quotes or modules, and "..." for a default that is a function."""
    kind = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
    kind = re.sub(r"\b(?:\w+\.)+(?=\w)", "", kind)
    name = str(one.replace(annotation=one.empty, default=one.empty))
    typed = name if one.annotation is one.empty else f"{name}: {kind}"
    if one.default is one.empty:
        return typed
    default = re.sub(r"<function \S+ at \w+>", "...", repr(one.default))
    return f"{typed}{'=' if typed == name else ' = '}{default}"


def docstring(value: object) -> str:
    """Its docstring as Markdown; "" for a plain value, whose docstring would describe its type."""
    text = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else ""
    if not text or text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return written(text)


def written(text: str) -> str:
    """A docstring as Markdown, with its examples as code and its "<" escaped."""
    text = re.sub(r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", text, flags=re.MULTILINE)
    code = re.compile(r"(^```pycon$[\s\S]*?^```$|`[^`]*`|^ {4}.*$)", re.MULTILINE)  # left unchanged
    return "".join(part if k % 2 else part.replace("<", r"\<") for k, part in enumerate(code.split(text)))
