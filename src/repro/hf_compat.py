"""Differences between versions and models of transformers: the name of the cache, `cache` from 5.24 on and
`past_key_values` before, and how models change logits."""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from repro.errors import ReproError

NAMES = "cache", "past_key_values"
OF_LAYERS = *NAMES, "past_key_value", "layer_past"
# Settings that change logits, each with the values that leave them unchanged.
PLAIN = {"final_logit_softcapping": (None, 0), "logits_scaling": (None, 1), "logit_scale": (None, 1)}


@cache
def cache_name() -> str:
    """The name of the cache in the installed version."""
    major, minor = re.match(r"(\d+)\.(\d+)", version("transformers")).groups()
    return NAMES[(int(major), int(minor)) < (5, 24)]


def cache_argument(held) -> dict:
    """The argument that hands a model its cache: `model(ids, **cache_argument(held))`."""
    return {cache_name(): held}


def layer_cache_name(layer) -> str | None:
    """The argument by which a decoder layer takes a cache; None for a layer that takes none."""
    taken = inspect.signature(layer.forward).parameters
    return next((name for name in OF_LAYERS if name in taken), None)


def cache_in(named: Mapping):
    """The cache among the named arguments of a model, or in its output; None if there is none."""
    return next((named[one] for one in NAMES if named.get(one) is not None), None)


def changed_logits(config) -> str:
    """The setting by which a model changes the product of its states and its output layer; "" if it does not."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return next((name for name, plain in PLAIN.items() if getattr(text, name, None) not in plain), "")


def check_logits(config) -> None:
    """Raise ReproError for a model whose logits are more than the product of its states and its output layer."""
    if name := changed_logits(config):
        raise ReproError(f"{name} of this {config.model_type} is {getattr(config.get_text_config(), name)}, so its "
                         "logits are not a plain product of states and weights; give a model without it.")
