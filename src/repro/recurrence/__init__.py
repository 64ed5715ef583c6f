"""State carried between the windows of a pretrained transformer: the recurrence module of Yoshida, Ettinger and
Gimpel (2020), and other memories.

>>> sorted(MEMORIES)[:4]
['block-recurrent', 'cache', 'compressed', 'embeddings-4']
"""

from repro.recurrence.module import Recurrence, RecurrenceConfig

_WHERE = {"MaskedOut": "causal", "RecurrentLM": "causal", "MemoryLM": "memory_lm", "with_memory": "memory_lm",
          "MEMORIES": "memories", "Memory": "memories", "reach_windows": "reach",
          "RecurrentRoberta": "reader", "question_windows": "reader"}

__all__ = ["Recurrence", "RecurrenceConfig", *_WHERE]


def __getattr__(name: str):  # transformers takes seconds to import, so it is imported only when a model is built
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
