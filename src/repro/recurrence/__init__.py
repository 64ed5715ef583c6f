"""State carried between the windows of a pretrained transformer: the recurrence module of Yoshida, Ettinger and
Gimpel (2020), and other memories.

>>> sorted(MEMORIES)[:4]
['block-recurrent', 'cache', 'compressed', 'embeddings-4']
"""

_WHERE = {"Recurrence": "module", "RecurrenceConfig": "module",
          "MaskedOut": "memory_lm", "RecurrentLM": "memory_lm", "MemoryLM": "memory_lm", "with_memory": "memory_lm",
          "MEMORIES": "memories", "Memory": "memories.base", "reach_windows": "reach",
          "RecurrentEncoder": "reader", "RecurrentBert": "reader", "RecurrentRoberta": "reader",
          "question_windows": "reader"}

__all__ = [*_WHERE]


def __getattr__(name: str):  # torch and transformers take seconds to import
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
