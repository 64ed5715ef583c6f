"""A small recurrence between the windows of a pretrained transformer (Yoshida, Ettinger and Gimpel 2020)."""

from repro.recurrence.module import Recurrence, RecurrenceConfig

__all__ = ["MaskedOut", "Recurrence", "RecurrenceConfig", "RecurrentLM"]


def __getattr__(name: str):  # transformers takes seconds to import: only those who build a model wait for it
    if name in ("MaskedOut", "RecurrentLM"):
        from repro.recurrence import causal
        return getattr(causal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
