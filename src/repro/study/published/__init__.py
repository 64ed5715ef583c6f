"""Values printed in the papers, digit by digit, as package data: one CSV file per table, figure or section."""

import csv
from importlib.resources import files
from typing import TYPE_CHECKING

from repro.checked import checked
from repro.errors import unknown
from repro.study.cache import cached

if TYPE_CHECKING:
    import pandas


def published_names() -> list[str]:
    """The names of all files of published values, e.g. "yoshida2020_table1_wikitext103"."""
    return sorted(file.name.removesuffix(".csv") for file in files(__name__).iterdir() if file.name.endswith(".csv"))


@cached
def printed_rows(name: str) -> list[dict[str, str]]:
    """The rows of `published(name)`, without pandas, because judging claims reads them often."""
    if name not in published_names():
        raise unknown("published table", name, published_names())
    with (files(__name__) / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@checked
def published(name: str) -> "pandas.DataFrame":
    """One table of published values; every cell is text with the digits as printed, empty if nothing is printed.

    Column `confidence` is "exact" (digits read in a copy of the paper) or "not printed" (only a plotted point).
    Raises ReproError, with the nearest name, for an unknown name.

    >>> list(published("yoshida2020_table1_wikitext103"))[:4]
    ['model', 'window_tokens', 'train_windows_per_sequence', 'overlap_tokens']
    """
    import pandas

    return pandas.DataFrame(printed_rows(name))
