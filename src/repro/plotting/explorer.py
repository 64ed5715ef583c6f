"""An interactive chart of quality against cost: measured points only, with the paper's points next to ours."""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import markup
from repro.plotting.style import COLOURS, CYCLE, MARKERS, canvas, house

FILE = Path(__file__)


@dataclass(frozen=True, repr=False)
class Explorer:
    """Static HTML with its own script and data, for a notebook's output; needs no server and no network.

    series: as returned by `repro.pages.explored`. The page opens at the best point of the first series. Without
    JavaScript, it shows a picture of the first series and tables of all.

    >>> point = {"line": "baseline", "settings": {"window, tokens": 300}, "match": "", "quality": [20, 18, 22],
    ...     "costs": {"FLOPs": 1e6}, "command": "repro run x", "records": [], "files": []}
    >>> toy = {"id": "toy", "paper": "Toy et al.", "title": "Toys", "text": "Toys, small",
    ...     "data": "toy-text", "part_of": "", "metric": "m", "quality": "perplexity", "settings": ["window, tokens"],
    ...     "costs": ["FLOPs"], "printed": [], "points": [point]}
    >>> "perplexity" in Explorer([toy])._repr_html_()
    True
    """

    series: Sequence[Mapping[str, Any]]

    def _repr_html_(self) -> str:
        tables = "".join(map(table, self.series)) or "<p>There are no records to show.</p>"
        filled = {"tables": tables, "picture": picture(self.series[0]).svg() if self.series else "",
                  "data": embedded(self.series), "script": FILE.with_suffix(".js").read_text(),
                  "colours": "; ".join(f"--l{k}: {colour}" for k, colour in enumerate(LINES))}
        text = FILE.with_suffix(".html").read_text()
        for name, value in filled.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text

    def __repr__(self) -> str:
        return f"Explorer of {sum(len(one['points']) for one in self.series)} measured points."


# One color per line of a chart, readable on white and on black.
LINES = ("#2f7fc1", "#d55e00", "#0b8f6a", "#b06a9a", "#7a74c8", "#a87900", "#7c7c7c", "#9a6324", "#808000", "#3f8fa8",
         "#c2554d", "#5c8a3a")


def embedded(value: Any) -> str:
    """`value` as JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def table(series: Mapping[str, Any]) -> str:
    """All points of a series as a table."""
    import pandas

    rows = []
    for one in series["points"]:
        value, *ends = (f"{end:.4g}" for end in one["quality"])
        rows.append({"model": one["line"]} | {name: f"{one['settings'].get(name, '–')}" for name in series["settings"]}
                    | {series["quality"]: value + (f" [{', '.join(ends)}]" if ends else "")}
                    | {name: f"{one['costs'][name]:.4g}" if name in one["costs"] else "–" for name in series["costs"]})
    part = f", part of {series['part_of']}" if series["part_of"] else ""
    caption = f"{series['text']}: {series['data']}{part}. {series['paper']}"
    return markup.table(pandas.DataFrame(rows), html.escape(caption, quote=False))


@house()
def picture(series: Mapping[str, Any]):
    """A series drawn against its first cost."""
    cost = series["costs"][0]
    figure, axes = canvas(3.2, alt=f"{series['quality']} against {cost}: {len(series['points'])} measured points")
    for k, line in enumerate(dict.fromkeys(one["line"] for one in series["points"])):
        points = sorted((one["costs"][cost], one["quality"][0]) for one in series["points"]
                        if one["line"] == line and cost in one["costs"])
        axes.plot([x for x, _ in points], [y for _, y in points], MARKERS[k % len(MARKERS)], linestyle="none",
                  color=CYCLE[k % len(CYCLE)], label=line)
    axes.set(xlabel=cost, ylabel=series["quality"])
    axes.legend(labelcolor=COLOURS["ink"])
    return figure
