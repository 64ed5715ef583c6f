"""Tests are read as the base models' texts are: with plain quotes and dashes, or as they are typed where another's
model, which has read all kinds of them, is tried."""

from collections.abc import Callable
from typing import Any, Literal

Punctuation = Literal["plain", "as typed"]


def tidied(config) -> Callable[[Any], Any]:
    """What is done to a text or an example, by the setting `punctuation`.

    >>> from types import SimpleNamespace
    >>> tidied(SimpleNamespace(punctuation="plain"))("“so”"), tidied(SimpleNamespace(punctuation="as typed"))("“so”")
    ('"so"', '“so”')
    """
    from repro.data.examples import rewritten
    from repro.data.normalisation import PLAIN

    return (lambda given: rewritten(given, PLAIN)) if config.punctuation == "plain" else (lambda given: given)
