"""What was measured at which window and overlap, for the page on which a reader picks both."""

from typing import Any

from repro.study.config import RunConfig, experiment, experiments
from repro.study.recurrence_tables import compare, interval, module_effect
from repro.study.store import Record, Store

AXES = ("window", "overlap")
MEASURE, MASKED = "test_word_perplexity", "test_word_perplexity_masked"


def measured(scale: str, results=None) -> list[dict[str, Any]]:
    """One entry per experiment whose runs have a model, a window and an overlap and tell a test perplexity per word.

    An entry has its `id`, the text (`data`, `part_of`) and its `points`: those of the experiment's grid that have
    records. Experiments without one are left out. Raises ReproError for records that cannot be trusted.
    """
    found = []
    for one in experiments():
        if scale in one.scales and {"model", *AXES} <= one.config.model_fields.keys():
            records = {}
            for config in one.plan(scale):
                same = [record for record in Store.of(scale, results).seeds(config) if MEASURE in record.metrics]
                if same:
                    records[_name(config, one.plan(scale)), config.window, config.overlap] = same
            if records:
                data = next(iter(records.values()))[0].data
                found.append({"id": f"{one.name}/{scale}", "experiment": one.name, "scale": scale,
                              "data": data["name"], "part_of": data["part_of"],
                              "points": [_point(*key, records) for key in records]})
    return found


def architecture(scale: str) -> dict[str, Any]:
    """The base model of `scale`: its `name`, `n_layer`, `d_model` (hidden size) and `n_positions` (context, tokens)."""
    base = experiment("pretrain-gpt2-mini").plan(scale)[0]
    name = "gpt2-mini" if base.source == "scratch" else base.source
    return {"scale": scale, "name": f"{name} ({scale})", "n_layer": base.n_layer, "d_model": base.n_embd,
            "n_positions": base.n_positions}


def _name(config: RunConfig, plan: list[RunConfig]) -> str:
    """The model, with the settings in which it differs from the first of its kind in the grid."""
    first = next(other for other in plan if other.model == config.model).model_dump()
    differs = [f"{key}={value}" for key, value in config.model_dump().items()
               if key not in AXES and value != first[key]]
    return " ".join([config.model, *differs])


def _point(model: str, window: int, overlap: int, records: dict[tuple, list[Record]]) -> dict[str, Any]:
    """Perplexity with its interval; beside a baseline at the same point, also the paired difference (a share)."""
    here, baseline = records[model, window, overlap], records.get(("baseline", window, overlap))
    point = {"model": model, "window": window, "overlap": overlap, "records": [record.id for record in here],
             "perplexity": interval(here, "test")}
    if baseline and here is not baseline:
        point["difference"] = compare(here, baseline, "test")
    if all(MASKED in record.metrics for record in here):
        point["module"] = module_effect(here)
    return point
