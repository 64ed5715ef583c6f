"""What was measured at which window and overlap, for the page on which a reader picks both."""

from statistics import fmean
from typing import Any

from repro.papers.yoshida2020.tables import compare, interval
from repro.study.experiment import experiment, experiments
from repro.study.record import Record
from repro.study.settings import RunConfig
from repro.study.store import Store

PAPER = "yoshida2020"
AXES = ("window", "overlap")
SPLITS = ("test", "validation")


def measured(scale: str, results=None) -> list[dict[str, Any]]:
    """One entry per split and experiment of this paper that has models, windows, overlaps and word perplexities.

    An entry has its `id`, the text (`data`, `part_of`, `split`) and its `points`: those of the experiment's grid that
    have records. Entries without one are left out. Raises ReproError for records that cannot be trusted.
    """
    found = []
    for one in experiments():
        if one.paper != PAPER or scale not in one.scales or not {"model", *AXES} <= one.config.model_fields.keys():
            continue
        plan = one.plan(scale)
        everything = {(_name(config, plan), config.window, config.overlap): Store.of(scale, results).seeds(config)
                      for config in plan}
        for split in SPLITS:
            records = {key: told for key, same in everything.items()
                       if (told := [record for record in same if f"{split}_word_perplexity" in record.metrics])}
            if records:
                data = next(iter(records.values()))[0].data
                found.append({"id": f"{one.name}/{scale}/{split}", "experiment": one.name, "scale": scale,
                              "data": data["name"], "part_of": data["part_of"], "split": split,
                              "points": [_point(*key, records, split) for key in records]})
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
               if key not in (*AXES, "splits") and value != first[key]]
    return " ".join([config.model, *differs])


def _point(model: str, window: int, overlap: int, records: dict[tuple, list[Record]], split: str) -> dict[str, Any]:
    """Perplexity with its interval; `difference`: paired, to a baseline at the same point; `module`: to the same model
    with its module masked out. Both are shares."""
    here, baseline = records[model, window, overlap], records.get(("baseline", window, overlap))
    name, masked = f"{split}_word_perplexity", f"{split}_word_perplexity_masked"
    point = {"model": model, "window": window, "overlap": overlap, "records": [record.id for record in here],
             "perplexity": interval(here, split)}
    if baseline and here is not baseline:
        point["difference"] = compare(here, baseline, split)
    if all(masked in record.metrics for record in here):
        point["module"] = fmean(record.metrics[name] / record.metrics[masked] for record in here) - 1
    return point
