"""Punctuation of test texts: plain quotes and dashes, as in the base models' texts, or as typed for published models,
which have read all kinds."""

from collections.abc import Callable
from typing import Any, Literal

Punctuation = Literal["plain", "as typed"]


def tidied(config) -> Callable[[Any], Any]:
    """The function applied to a text or an example, by the setting `punctuation`.

    >>> from types import SimpleNamespace
    >>> tidied(SimpleNamespace(punctuation="plain"))("“so”"), tidied(SimpleNamespace(punctuation="as typed"))("“so”")
    ('"so"', '“so”')
    """
    from repro.data.examples import rewritten
    from repro.data.normalisation import PLAIN

    return (lambda given: rewritten(given, PLAIN)) if config.punctuation == "plain" else (lambda given: given)
