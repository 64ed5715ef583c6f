"""An interactive page that shows how long a text fits on a GPU when a recurrent GPT-2 is trained on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repro.errors import unknown
from repro.plotting.explorer import embedded
from repro.recompute import RECOMPUTE, Plan

FILE = Path(__file__)
VOCABULARY, POSITIONS = 50_257, 1_024  # of GPT-2
MODELS = {"GPT-2 small": (12, 768), "GPT-2 medium": (24, 1_024), "GPT-2 large": (36, 1_280), "GPT-2 xl": (48, 1_600)}
PRECISIONS = {"no": "single precision", "bf16": "bfloat16"}
CARDS = [4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192]  # GB
WINDOWS, BATCHES = (50, 1_024), (1, 64)
KEPT = {"none": "everything", "layer": "what enters a layer", "window": "z of every window",
        "window+layer": "z; in a window, what enters a layer"}
TEXTS = {"a page": 400, "an article": 3_600, "a book": 90_000}  # approximate tokens, to illustrate a length
START = {"model": "GPT-2 small", "precision": "no", "card": 24, "window": 300, "batch": 1}
USABLE = 0.9e9  # usable bytes per GB of a card: the rest is for the driver and for fragmentation


def plan_of(choice: Mapping[str, Any], recompute: str) -> Plan:
    """The plan for a choice of `model`, `precision`, `window` and `batch`. Raises ReproError for an unknown model."""
    if choice["model"] not in MODELS:
        raise unknown("model", choice["model"], MODELS)
    n_layer, width = MODELS[choice["model"]]
    return Plan(n_layer, width, VOCABULARY, weights(n_layer, width), window=choice["window"],
                batch_size=choice["batch"], precision=choice["precision"], recompute=recompute)


def weights(n_layer: int, width: int) -> int:
    """The number of weights of such a GPT-2: embeddings, 12 matrices per layer with their biases and norms, a final
    norm."""
    return (VOCABULARY + POSITIONS) * width + n_layer * (12 * width**2 + 13 * width) + 2 * width


def longest(choice: Mapping[str, Any]) -> dict[str, int]:
    """The longest text in tokens that can be trained on with each kind of recomputation; 0 if no window fits."""
    memory = USABLE * choice["card"]
    return {kind: choice["window"] * plan_of(choice, kind).most_windows(memory) for kind in RECOMPUTE}


def shares(choice: Mapping[str, Any]) -> dict[str, float]:
    """The share of the card's memory that a single window takes; above 1 it does not fit."""
    return {kind: replace(plan_of(choice, kind), n_windows=1).peak / (USABLE * choice["card"]) for kind in RECOMPUTE}


@dataclass(frozen=True, repr=False)
class Planner:
    """Static HTML with its own script, for a notebook's output. start: initial settings of the controls, replacing
    values of START.

    >>> "a page" in Planner({"card": 8})._repr_html_()
    True
    """

    start: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        one, rows = START | dict(self.start), ""
        lengths, taken = longest(one), shares(one)
        for kind, tokens in lengths.items():
            rows += (f'<tr data-kind="{kind}"><th scope="row"><code>{kind}</code></th><td>{KEPT[kind]}</td>'
                     f'<td>{tokens:,}</td><td class="bar"><i style="width: {width(tokens):.1f}%"></i></td>'
                     f"<td>{taken[kind]:.0%}</td></tr>")
        marks = "".join(f'<span style="left: {width(tokens):.1f}%">{name}</span>' for name, tokens in TEXTS.items())
        data = {"start": one, "precisions": PRECISIONS, "cards": CARDS, "windows": WINDOWS, "batches": BATCHES,
                "vocabulary": VOCABULARY, "usable": USABLE,
                "models": {name: [*size, weights(*size)] for name, size in MODELS.items()}}
        filled = {"rows": rows, "marks": marks, "data": embedded(data), "script": FILE.with_suffix(".js").read_text(),
                  "told": f"{one['model']}, {PRECISIONS[one['precision']]}, {one['card']} GB, windows of "
                          f"{one['window']} tokens, {one['batch']} at once."}
        text = FILE.with_suffix(".html").read_text()
        for name, value in filled.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text

    def __repr__(self) -> str:
        return "Planner of memory."


def width(tokens: int) -> float:
    """The position of a number of tokens on the logarithmic axis of the bars, 0 to 100: from 10 to 10 million
    tokens."""
    from math import log10

    return min(100.0, max(0.0, 100 * (log10(tokens) - 1) / 6)) if tokens else 0.0
