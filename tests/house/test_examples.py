"""Every public name of every room has an example in its docstring, and it does what it shows."""

import doctest
import importlib
import inspect
import re

import api
import pytest
import torch

NAMES = [(room, name) for room in api.ROOMS for name in api.public(room)]


def shown(room: str, name: str) -> list[doctest.Example]:
    """The examples of a public name: those of its docstring; a value has none, so those of its room's that name it."""
    module = importlib.import_module(f"repro.{room}")
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return examples(inspect.getdoc(value) or "")
    return examples(module.__doc__, name)


def examples(text: str, name: str = "") -> list[doctest.Example]:
    """The examples in a docstring; of a `name`, those up to the last that has it."""
    found = doctest.DocTestParser().get_examples(text)
    named = [k for k, one in enumerate(found) if re.search(rf"\b{name}\b", one.source)]
    return found[:named[-1] + 1] if named else []


@pytest.mark.parametrize(("room", "name"), NAMES, ids=[f"{room}.{name}" for room, name in NAMES])
def test_a_public_name_has_an_example_and_it_runs(room, name, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    module, found = importlib.import_module(f"repro.{room}"), shown(room, name)
    assert found, f"repro.{room}.{name} has no example in its docstring: add one of 2 to 5 lines"
    known = {one: getattr(module, one) for one in module.__all__}
    known |= {"torch": torch, "folder": tmp_path, "__name__": "example"}
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(doctest.DocTest(found, known, f"repro.{room}.{name}", None, 0, None), out=said.append)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize(("text", "found"), [
    ("No example.", 0), (">>> other(1)\n1", 0), (">>> x = name(1)\n>>> x\n1", 1), (">>> renamed(1)", 0)])
def test_what_counts_as_an_example(text, found):
    assert len(examples(text, "name")) == found


def test_examples_are_set_as_code_in_the_reference():
    def three():
        """Says <it>.

        >>> three() < 4
        True

        Ends in <it>.
        """

    assert api.docstring(three) == "Says \\<it>.\n\n```pycon\n>>> three() < 4\nTrue\n```\n\nEnds in \\<it>."
