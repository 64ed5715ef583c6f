"""An interactive page for attention patterns: sliders set a pattern; the page shows its mask, keys, pairs and reach."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.errors import unknown
from repro.plotting.explorer import embedded

if TYPE_CHECKING:
    from torch import Tensor

    from repro.attention import Pattern

FILE = Path(__file__)
PATTERNS = {"sliding": "sliding window, looking back", "both sides": "sliding window, both sides", "causal": "causal",
            "full": "full", "blocks": "blocks", "strided": "strided (Sparse Transformer)",
            "fixed": "fixed (Sparse Transformer)"}
NAMES = {"pattern": "pattern", "n": "positions", "window": "window", "dilation": "dilation",
         "stride": "stride or block", "summary": "summary positions", "globals": "global positions",
         "apart": "distance between them"}
RANGES = {"n": (8, 96), "window": (2, 48), "dilation": (1, 8), "stride": (1, 32), "summary": (1, 8), "globals": (0, 8),
          "apart": (1, 32)}
START = {"pattern": "sliding", "n": 64, "window": 12, "dilation": 1, "stride": 8, "summary": 2, "globals": 1,
         "apart": 16, "query": 40}


BOTH_WAYS = "both sides", "full"  # patterns whose queries see later positions


def pattern_of(choice: Mapping[str, Any]) -> "Pattern":
    """The pattern for a choice: `pattern`, the numbers it uses, and `global`, a list of positions.

    In a causal pattern, global positions are causal too: `Global(positions) & Causal()`. Raises ReproError for an
    unknown pattern.
    """
    first, *rest = _parts(choice)
    return first | rest[0] if rest else first


def _parts(choice: Mapping[str, Any]) -> "list[Pattern]":
    """The chosen pattern and, if there are any, the pattern of its global positions."""
    from repro.attention import BlockLocal, Causal, Fixed, Full, Global, SlidingWindow, Strided

    made = {"full": lambda one: Full(), "causal": lambda one: Causal(),
            "sliding": lambda one: SlidingWindow(one["window"], one["dilation"]),
            "both sides": lambda one: SlidingWindow(one["window"], one["dilation"], causal=False),
            "blocks": lambda one: BlockLocal(one["stride"]), "strided": lambda one: Strided(one["stride"]),
            "fixed": lambda one: Fixed(one["stride"], one["summary"])}
    if choice["pattern"] not in made:
        raise unknown("pattern", choice["pattern"], made)
    found = [made[choice["pattern"]](choice)]
    if choice["global"]:
        everywhere = Global(choice["global"])
        found.append(everywhere if choice["pattern"] in BOTH_WAYS else everywhere & Causal())
    return found


def written(choice: Mapping[str, Any]) -> str:
    """`pattern_of` a choice as Python code.

    >>> written({"pattern": "causal", "global": [2]})
    'Causal() | Global(positions=(2,)) & Causal()'
    """
    from repro.attention import Global

    code = repr(_parts(choice)[0])
    if choice["global"]:
        code += f" | {Global(choice['global'])!r}" + " & Causal()" * (choice["pattern"] not in BOTH_WAYS)
    return code


@dataclass(frozen=True, repr=False)
class Playground:
    """Static HTML with its own script, for a notebook's output. start: initial settings of the controls, replacing
    values of START.

    >>> "<svg" in Playground({"pattern": "strided"})._repr_html_()
    True
    """

    start: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        one = START | dict(self.start)
        places = [at for at in range(0, one["globals"] * one["apart"], one["apart"]) if at < one["n"]]
        pattern, code = pattern_of(one | {"global": places}), written(one | {"global": places})
        n, pairs = one["n"], pattern.count(one["n"])
        filled = {"n": n, "cells": cells(pattern.mask(n)), "written": html.escape(code),
                  "alt": html.escape(f"{code} on {n} positions: each row shows what one query sees"),
                  "told": f"{pairs} pairs, {pairs / n**2:.1%} of full attention.",
                  "data": embedded(one | {"patterns": PATTERNS, "names": NAMES, "ranges": RANGES,
                                            "both_ways": BOTH_WAYS}),
                  "script": FILE.with_suffix(".js").read_text()}
        text = FILE.with_suffix(".html").read_text()
        for name, value in filled.items():
            text = text.replace(f"{{{{{name}}}}}", str(value))
        return text

    def __repr__(self) -> str:
        return "Attention playground."


def cells(mask: "Tensor") -> str:
    """The allowed pairs of a mask (n, n) as an SVG path: one rectangle per run of adjacent keys in a row."""
    parts = []
    for i, row in enumerate(mask.tolist()):
        starts = [j for j, seen in enumerate(row) if seen and not (j and row[j - 1])]
        ends = [j for j, seen in enumerate(row) if seen and not (j + 1 < len(row) and row[j + 1])]
        parts += [f"M{first} {i}h{last - first + 1}v1h{first - last - 1}z"
                  for first, last in zip(starts, ends, strict=True)]
    return "".join(parts)
