"""The name that models of transformers give their cache: `cache` from 5.24 on, `past_key_values` before."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

NAMES = "cache", "past_key_values"


@cache
def cache_name() -> str:
    """The name in the version that is installed."""
    major, minor = re.match(r"(\d+)\.(\d+)", version("transformers")).groups()
    return NAMES[(int(major), int(minor)) < (5, 24)]


def cache_argument(held) -> dict:
    """The argument that hands a model its cache: `model(ids, **cache_argument(held))`."""
    return {cache_name(): held}


def cache_in(named: Mapping):
    """The cache among the named arguments of a model, or in what it returns; None for none."""
    return next((named[one] for one in NAMES if named.get(one) is not None), None)
