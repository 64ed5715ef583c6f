"""Memories that a GPT-2 can carry from window to window, one small file each.

A memory is a `Memory`: `read(layer, hidden, state, stride)` reads one window and returns the state for the next.
`repro.recurrence.with_memory` puts one into a model.
"""

from repro.errors import ReproError, unknown
from repro.recurrence.memories.base import Memory, settings_of
from repro.recurrence.memories.block_recurrent import BlockRecurrent
from repro.recurrence.memories.cache import Cache
from repro.recurrence.memories.compressed import Compressed
from repro.recurrence.memories.gated import Gated
from repro.recurrence.memories.infini import Infini
from repro.recurrence.memories.knn import NearestKeys
from repro.recurrence.memories.rmt import RecurrentMemoryTransformer
from repro.recurrence.memories.yoshida import Yoshida

__all__ = ["MEMORIES", "Memory", "complete", "make"]

MEMORIES = {  # name: its class, and settings that differ from the defaults
    "yoshida": (Yoshida, {}),
    "yoshida-first": (Yoshida, {"insert_layer": 0}),
    "embeddings-4": (Yoshida, {"insert": "every", "n_embeddings": 4}),
    "gated": (Gated, {}),
    "rmt": (RecurrentMemoryTransformer, {}),
    "block-recurrent": (BlockRecurrent, {}),
    "infini": (Infini, {}),
    "compressed": (Compressed, {}),
    "knn": (NearestKeys, {}),
    "cache": (Cache, {}),
}
WITHOUT_MEMORY = ("none", "overlap")  # names of plain models in comparisons


def complete(memory: str, **settings) -> dict:
    """The name of a memory and all of its settings, as a model's config keeps them.

    Raises ReproError, with the nearest name, for an unknown memory or setting.
    """
    if memory in WITHOUT_MEMORY:
        raise ReproError(f"memory is '{memory}', which means a model without one; load it with "
                         f"repro.models.load_causal_lm, or choose one of {', '.join(MEMORIES)}.")
    if memory not in MEMORIES:
        raise unknown("memory", memory, MEMORIES)
    kind, own = MEMORIES[memory]
    return {"name": memory} | settings_of(kind, memory, own | settings)


def make(config, settings: dict) -> Memory:
    """A fresh memory for a model of this GPT2Config; settings: from `complete`."""
    kind, _ = MEMORIES[settings["name"]]
    memory = kind(config, **{key: value for key, value in settings.items() if key != "name"})
    memory.reset_parameters()
    return memory
