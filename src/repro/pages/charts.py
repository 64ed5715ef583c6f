"""Cost and quality of runs as points for the explorer; all points are measured, none interpolated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from repro.study.artifacts import heading
from repro.study.cache import caching
from repro.study.experiment import experiment
from repro.study.record import Record
from repro.study.registry import declared, title
from repro.study.runs import command
from repro.study.settings import COMMITTED, RunConfig
from repro.study.store import Store

QUALITIES = {  # metric -> label; lower is better. A series opens with the first one that it has
    "test_word_perplexity": "perplexity per word, test text",
    "validation_word_perplexity": "perplexity per word, validation text",
    "test_bits_per_character": "bits per character, test text",
    "validation_bits_per_character": "bits per character, validation text",
    "test_bits_per_byte": "bits per byte, test data",
}
COSTS = {"flops_per_token": "FLOPs per scored token", "flops_per_character": "FLOPs per character",
         "flops_per_byte": "FLOPs per byte", "pairs_per_character": "attended pairs per character",
         "pairs_per_byte": "attended pairs per byte", "memory_per_sequence": "memory of a sequence, bytes",
         "state_numbers": "state carried on, numbers"}
GENERATED = "synthetic-"  # prefix of generated corpora, which no paper uses
PEAK = "peak memory of the run, bytes"


@dataclass(frozen=True, eq=False, kw_only=True)
class Chart:
    """How the explorer presents the runs of an experiment.

    The records contain the metrics named in QUALITIES and COSTS; a chart adds everything else, in plain words.

    >>> from repro.study import experiment
    >>> chart = Chart(id="toy", paper="yoshida2020", title="Toys", experiment="recurrence-pg19",
    ...     line=lambda config: config.model, settings=lambda config: {"overlap, tokens": config.overlap})
    >>> chart.line(experiment("recurrence-pg19").plan("smoke")[0])
    'baseline'
    """

    id: str
    paper: str
    title: str
    experiment: str
    line: Callable[[Any], str]  # of a config: the kind of model
    settings: Callable[[Any], Mapping[str, float]]  # of a config: the settings a reader can choose, with units
    costs: Callable[[Any], Mapping[str, float]] = lambda config: {}  # of a config, in addition to those of its records
    match: Callable[[Any], str] = lambda config: ""  # of a config: the printed point that it matches
    printed: Callable[[str], list[dict[str, Any]]] = lambda metric: []  # the paper's: line, match, quality, costs


def charts() -> list[Chart]:
    """All charts of the papers."""
    return list(declared(Chart).values())


def measured(chart: Chart, scale: str, results: Path | str | None = None) -> list[dict[str, Any]]:
    """The records of a chart at a scale as series, one per corpus and quality; empty series are left out.

    A series has its `id`, `paper`, `title`, `scale`, `data`, `part_of`, `text` (all of these in plain words), `metric`,
    and `quality` (its name). It has the names of its `settings` and `costs`, its `points`, and the paper's `printed`
    points (none for generated text). A point has `line`, `settings`, `quality` with the 95% interval over documents
    where there is one, `costs`, `records`, their `files`, `command` and `match`.
    Raises ReproError for records that cannot be trusted.
    """
    parent = experiment(chart.experiment)
    if scale not in parent.scales:
        return []
    store = Store.for_scale(scale, results)
    found = [(config, records) for config in parent.plan(scale) if (records := store.seeds(config))]
    series = []
    for corpus in dict.fromkeys(config.corpus for config, _ in found):
        for metric, quality in QUALITIES.items():
            points = [_point(chart, config, records, metric) for config, records in found
                      if config.corpus == corpus and all(metric in record.metrics for record in records)]
            if points:
                data = next(records[0].data for config, records in found if config.corpus == corpus)
                generated = data["name"].startswith(GENERATED)
                series.append({
                    "id": f"{chart.id}/{scale}/{corpus}/{metric}", "paper": title(chart.paper), "title": chart.title,
                    "scale": heading(scale), "data": data["name"], "part_of": data["part_of"], "generated": generated,
                    "text": f"{_name(chart.title, data)}, {heading(scale)}", "metric": metric, "quality": quality,
                    "settings": list(dict.fromkeys(k for one in points for k in one["settings"])),
                    "costs": list(dict.fromkeys(k for one in points for k in one["costs"])), "points": points,
                    "printed": [] if generated else chart.printed(metric)})
    return series


def explored(scales: tuple[str, ...], results: Path | str | None = None) -> list[dict[str, Any]]:
    """The series of all charts at these scales. The first one has the largest scale with records, the unit that comes
    first in QUALITIES and, among these, the best value. If several series have the same name, because experiments read
    the same generated text, only the one with the most points is kept.

    >>> explored(("small",), results=folder)
    []
    """
    with caching():
        found = [(scales.index(scale), one) for scale in scales for chart in charts()
                 for one in measured(chart, scale, results)]
    found.sort(key=lambda at: -len(at[1]["points"]))
    found = list({(one["paper"], one["text"], one["metric"]): (at, one) for at, one in reversed(found)}.values())
    order = list(QUALITIES)
    found.sort(key=lambda at: (at[0], order.index(at[1]["metric"]), min(p["quality"][0] for p in at[1]["points"])))
    return [one for _, one in found]


def _name(title: str, data: Mapping[str, Any]) -> str:
    """The name of a series, such as "Books: PG-19, a part" or "Generated books, variations of the module"."""
    if data["name"].startswith(GENERATED):
        return f"Generated {data['name'].removeprefix(GENERATED)}{title.removeprefix(title.partition(',')[0])}"
    return f"{title}: {(data['part_of'] or data['name']).partition(':')[0]}{', a part' * bool(data['part_of'])}"


def _point(chart: Chart, config: RunConfig, records: list[Record], metric: str) -> dict[str, Any]:
    costs = {label: fmean(record.metrics[name] for record in records) for name, label in COSTS.items()
             if all(name in record.metrics for record in records)}
    peaks = [record.cost["peak_memory_bytes"] for record in records]
    folder = Store.for_scale(config.scale)
    return {
        "line": chart.line(config), "settings": dict(chart.settings(config)), "match": chart.match(config),
        "quality": _interval(records, metric), "costs": costs | dict(chart.costs(config)) | {PEAK: fmean(peaks)},
        "records": [record.id for record in records], "command": command(config),
        "files": [f"../results/{folder.path(record).relative_to(folder.folder)}" for record in records
                  if config.scale in COMMITTED]}


def _interval(records: list[Record], metric: str) -> list[float]:
    """The mean over seeds; for perplexities with the 95% interval over documents (losses averaged over seeds)."""
    value, split = fmean(record.metrics[metric] for record in records), metric.partition("_")[0]
    losses = [record.documents.get(split, {}).get("nll") for record in records]
    if not metric.endswith("word_perplexity") or not all(losses) or len({len(one) for one in losses}) > 1 or (
            len(losses[0]) < 2):
        return [value]
    from repro.evaluation import bootstrap

    return [float(end) for end in bootstrap(losses, records[0].documents[split]["n_words"])]
