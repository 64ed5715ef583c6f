"""Experiments: named, parameterized pieces of work that plan, estimate and execute their runs."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from repro.checked import checked
from repro.errors import unknown
from repro.study.progress import Progress
from repro.study.record import Record
from repro.study.registry import declared, lookup
from repro.study.settings import RunConfig, choices, validated


@dataclass(frozen=True)
class Context:
    """The inputs of `execute(config, context)` besides its config.

    `folder` belongs to the run and survives an interruption. Put checkpoints there, and everything that other
    runs need into `folder / "model"`. `progress(total, description, unit)` opens a bar with `.advance(n, **info)`.
    `need(config)` returns the record of a run in the experiment's `needs` and, if that run must leave its model, also
    its folder.

    >>> from dataclasses import fields
    >>> [one.name for one in fields(Context)]
    ['folder', 'progress', 'need']
    """

    folder: Path
    progress: Progress
    need: Callable[[RunConfig], tuple[Record, Path | None]]


@dataclass(frozen=True)
class Outcome:
    """The result of `execute`. Everything in it must be a deterministic function of config, data and machine.

    >>> Outcome(metrics={"loss": 2.1}, units={"loss": "nats per token"}, model="counts").documents
    {}
    """

    metrics: dict[str, float]  # flat and finite, e.g. {"test_word_perplexity": 30.47}
    units: dict[str, str]  # unit of each metric, e.g. {"test_word_perplexity": "per word"}
    model: str  # "baseline", "recurrent", ...
    curves: dict[str, list] = field(default_factory=dict)  # name -> [[x, y], ...]
    documents: dict[str, dict[str, list]] = field(default_factory=dict)  # split -> per-document sums, for the bootstrap
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """The expected cost of a run, shown by `repro run --dry-run`.

    >>> plan = Estimate(parameters=7_000_000, training_tokens=60_000_000, flops=2.5e15, memory_bytes=2**30,
    ...     seconds=7_200)
    >>> plan.seconds / 3_600
    2.0
    """

    parameters: int
    training_tokens: int
    flops: float  # training and evaluation together
    memory_bytes: int  # at the peak
    seconds: float  # on the device of the scale (`DEVICES`)
    note: str = ""  # anything else to know in advance


@dataclass(frozen=True)
class Rereading:
    """How the runs of an experiment read a text other than their own, for `repro replicate`.

    `settings(configs, name)` returns, for each config of a claim, the settings to change so that it reads the corpus
    `name`. `tokens(config)` is the number of tokens needed in a document or, if `trains`, in each part of the text.
    `tokeniser(config)` is the tokenizer of the models; None if tokens are bytes. `trains`: whether models learn from
    the text that they are tested on. `learns(config)`: whether a run first trains a model on the study's text.
    `note(configs)` says how the models and their input differ from the study.

    >>> reading = Rereading(lambda configs, name: [{"corpus": name} for _ in configs], tokens=lambda config: 300)
    >>> reading.settings(["config"], "letters"), reading.trains
    ([{'corpus': 'letters'}], False)
    """

    settings: Callable[[Sequence[Any], str], list[dict[str, Any]]]
    tokens: Callable[[Any], int]
    tokeniser: Callable[[Any], Any] | None = None
    trains: bool = False
    learns: Callable[[Any], bool] = lambda config: False
    note: Callable[[Sequence[Any]], str] = lambda configs: ""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A named, parameterized piece of work: one run per grid point and seed.

    `scales` gives the config values of each scale, `grid(scale)` the points (values that vary).
    `execute(config, context)` does the work. `needs(config)` returns the runs that must be finished first, such as the
    base model. `reads(config)` names the corpora that it reads besides `config.corpus`, such as those that train a
    tokenizer. Needed runs in `models_of(config)` must leave their model; for the others, the record is enough. If
    `models_of` is None, all must leave their model. For a key in `selects`, a value set by the user selects the points
    with this value; for other keys it replaces the value in every point. `revision` counts how often the effect of the
    settings has changed since the first records; it is part of the ids. `rereading` says how the runs read another text
    (`repro replicate`); None: they cannot.

    >>> toy = Experiment(name="toy", paper="this book", summary="Counts.", config=RunConfig,
    ...     scales={"smoke": {"corpus": "synthetic-books"}}, execute=print, grid=lambda scale: [{}],
    ...     estimate=lambda config: Estimate(0, 0, 0.0, 2**20, 1.0))
    >>> [config.seed for config in toy.plan("smoke", seeds=(0, 1))]
    [0, 1]
    """

    name: str
    paper: str
    summary: str
    config: type[RunConfig]
    scales: Mapping[str, Mapping[str, Any]]
    execute: Callable[[Any, Context], Outcome]
    estimate: Callable[[Any], Estimate]
    grid: Callable[[str], list[dict[str, Any]]] = lambda scale: [{}]
    needs: Callable[[Any], list[RunConfig]] = lambda config: []
    models_of: Callable[[Any], list[RunConfig]] | None = None
    reads: Callable[[Any], Iterable[str]] = lambda config: ()
    selects: tuple[str, ...] = ()
    revision: int = 0
    rereading: Rereading | None = None

    @property
    def id(self) -> str:
        """Its name in the registry."""
        return self.name

    def plan(self, scale: str, sets: Mapping[str, Any] | None = None, seeds: Iterable[int] = (0,)) -> list[RunConfig]:
        """The configs of this scale: grid x seeds, without duplicates.

        Each of `sets` replaces a key in every grid point. A string is read as on the command line ("5", "5,10" for
        several points, "null", JSON for lists), a Python list gives several points, and any other value is used as is.
        Raises ReproError for an unknown scale, key or corpus (with the nearest name) and for values out of range.
        """
        seeds = tuple(seeds)
        if not sets and seeds == (0,):
            return list(_plan(self, scale))
        return self._planned(scale, sets or {}, seeds)

    def _planned(self, scale: str, sets: Mapping[str, Any], seeds: Iterable[int]) -> list[RunConfig]:
        if scale not in self.scales:
            raise unknown("scale", scale, self.scales)
        keys = self.config.model_fields.keys() - {"experiment", "scale"}
        chosen = {}
        for key, value in sets.items():
            if key not in keys:
                raise unknown(f"key of {self.name}", key, keys)
            chosen[key] = choices(value)
        points, plan = self.grid(scale), {}
        for key in self.selects:
            known = list(dict.fromkeys(point[key] for point in points))
            if key in chosen and (strange := [value for value in chosen[key] if value not in known]):
                raise unknown(key, strange[0], map(str, known))
            points = [point for point in points if point[key] in chosen.get(key, known)]
            chosen.pop(key, None)
        for seed, point, values in itertools.product(seeds, points, itertools.product(*chosen.values())):
            fixed = {"experiment": self.name, "scale": scale, "seed": seed, **self.scales[scale], **point}
            config = validated(self.config, fixed | dict(zip(chosen, values, strict=True)))
            plan.setdefault(config.key, config)
        for name in {name for config in plan.values() for name in (config.corpus, *self.reads(config))}:
            corpus_named(name)
        return list(plan.values())


@lru_cache(maxsize=1000)
def _plan(experiment: Experiment, scale: str) -> list[RunConfig]:
    """The default plan, cached because it is needed often."""
    return experiment._planned(scale, {}, (0,))


@checked
def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises ReproError, with the nearest name, when there is none.

    >>> experiment("recurrence-wikitext103").paper
    'yoshida2020'
    """
    return lookup(Experiment, name)


def experiments() -> list[Experiment]:
    """All experiments of the papers.

    >>> "recurrence-pg19" in [one.name for one in experiments()]
    True
    """
    return list(declared(Experiment).values())


def corpus_named(name: str) -> Any:
    """The corpus of this name (`repro.data.Corpus`). Raises ReproError, with the nearest name, when there is none."""
    from repro.data import corpus

    return corpus(name)
