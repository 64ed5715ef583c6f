"""A page on which a reader picks window and overlap: what is read and scored, what it costs, what was measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.plotting.style import COLOURS
from repro.windows import check_window

SHOWN = ("read", "scored", "baseline", "recurrent")


@dataclass(frozen=True, repr=False)
class Explorer:
    """Static HTML with its own script and data, for a notebook's output; needs no server and no network.

    series: entries of `repro.papers.yoshida2020.explorer.measured`, the first shown first. architectures: the models
    whose FLOPs are shown, from `architecture` beside it; no window can be picked that is longer than all their
    contexts.
    window, overlap: where the sliders stand at first, in tokens. Raises ReproError for a choice out of range.
    """

    series: Sequence[Mapping[str, Any]]
    architectures: Sequence[Mapping[str, Any]]
    window: int = 300
    overlap: int = 0

    def __post_init__(self) -> None:
        check_window(self.window, self.overlap, max(one["n_positions"] for one in self.architectures))

    def _repr_html_(self) -> str:
        data = {"series": self.series, "architectures": self.architectures,
                "start": {"window": self.window, "overlap": self.overlap}}
        filled = {"data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
                  "colours": "; ".join(f"--{name}: {COLOURS[name]}" for name in SHOWN)}
        page = Path(__file__).with_suffix(".html").read_text()
        for name, text in filled.items():
            page = page.replace(f"{{{{{name}}}}}", text)
        return page

    def __repr__(self) -> str:
        points = sum(len(one["points"]) for one in self.series)
        return f"Explorer at window {self.window}, overlap {self.overlap}; {points} measured points."
