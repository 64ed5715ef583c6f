"""Memories that a decoder can carry from window to window, one small file each.

A memory is a `Memory`: `read(layer, hidden, state, stride, places)` reads one window and returns its hidden states and
the state for the next. The module of Yoshida et al. is "yoshida", the memory of `repro.recurrence.RecurrentLM`. Each
file of this folder defines one memory, which has the name of the file: `block_recurrent.py` is "block-recurrent".
`repro.recurrence.with_memory` puts one into a model.
"""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from repro.errors import ReproError, unknown

if TYPE_CHECKING:
    from repro.recurrence.memories.base import Memory

__all__ = ["MEMORIES", "complete", "make"]

WITHOUT_MEMORY = ("none", "overlap")  # names of plain models in comparisons


class Memories(Mapping[str, "type[Memory]"]):
    """The class of every memory, by name. Listing the names reads no file; asking for a class imports its file.

    Raises ReproError for a file that does not define exactly one memory.
    """

    def __iter__(self) -> Iterator[str]:
        return (file.name.replace("_", "-") for file in pkgutil.iter_modules(__path__) if file.name != "base")

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> "type[Memory]":
        if name not in list(self):
            raise KeyError(name)
        from repro.recurrence.memories.base import Memory

        file = name.replace("-", "_")
        module = import_module(f"{__name__}.{file}")
        found = [one for one in vars(module).values()
                 if isinstance(one, type) and issubclass(one, Memory) and one.__module__ == module.__name__]
        if len(found) != 1:
            names = f" ({', '.join(one.__name__ for one in found)})" if found else ""
            raise ReproError(f"memories/{file}.py defines {len(found)} memories{names}; define one class that inherits "
                             "from Memory, or move the file out of the folder.")
        return found[0]


MEMORIES = Memories()


def complete(memory: str, **settings) -> dict:
    """The name of a memory and all of its settings, as a model's config keeps them.

    Raises ReproError, with the nearest name, for an unknown memory or setting.
    """
    from repro.recurrence.memories.base import settings_of

    if memory in WITHOUT_MEMORY:
        raise ReproError(f"memory is '{memory}', which means a model without one; load it with "
                         f"repro.models.load_causal_lm, or choose one of {', '.join(MEMORIES)}.")
    if memory not in list(MEMORIES):
        raise unknown("memory", memory, MEMORIES)
    return {"name": memory} | settings_of(MEMORIES[memory], memory, settings)


def make(config, settings: dict) -> "Memory":
    """A fresh memory for a model of this config; settings: from `complete`."""
    memory = MEMORIES[settings["name"]](config, **{key: value for key, value in settings.items() if key != "name"})
    memory.reset_parameters()
    return memory
