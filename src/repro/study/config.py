"""What a run is: a validated config, its id, and the experiment that plans, estimates and executes it."""

import hashlib
import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repro.errors import ReproError, unknown
from repro.study.registry import declared, lookup

if TYPE_CHECKING:
    from repro.study.runner import Context

SCALES = ("smoke", "small", "medium", "paper")
DEVICES = {"smoke": "one CPU core", "small": "one CPU core", "medium": "one GPU", "paper": "one GPU"}  # of estimates


class RunConfig(BaseModel):
    """The base of every experiment's config: frozen, no extra keys, every value finite.

    Subclasses add fields with defaults; check combinations in a pydantic `model_validator` that raises ValueError
    with one clear line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    experiment: str
    scale: Literal["smoke", "small", "medium", "paper"]
    seed: int = Field(0, ge=0)
    corpus: str


@dataclass(frozen=True)
class Outcome:
    """What `execute` returns; everything in it must be a deterministic function of config, data and machine."""

    metrics: dict[str, float]  # flat and finite, e.g. {"test_word_perplexity": 30.47}
    units: dict[str, str]  # unit of each metric, e.g. {"test_word_perplexity": "per word"}
    model: str  # "baseline", "recurrent", ...
    curves: dict[str, list] = field(default_factory=dict)  # name -> [[x, y], ...]
    documents: dict[str, dict[str, list]] = field(default_factory=dict)  # split -> per-document sums, for the bootstrap
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """What a run will take, told before it starts: by `repro run --dry-run`."""

    parameters: int
    training_tokens: int
    flops: float  # training and evaluation together
    memory_bytes: int  # at the peak
    seconds: float  # on the device that the scale is meant for, see DEVICES
    note: str = ""  # what else should be known before


@dataclass(frozen=True)
class Experiment:
    """A named, parameterised piece of work: one run per grid point and seed.

    `scales` gives the config values of each scale, `grid(scale)` the points (values that vary). `execute(config,
    context)` does the work. `needs(config)` names runs that must be finished before, such as the base model, and
    `reads(config)` the corpora it reads besides `config.corpus`, such as those that a tokeniser is trained on.
    """

    name: str
    paper: str
    summary: str
    config: type[RunConfig]
    scales: Mapping[str, Mapping[str, Any]]
    execute: Callable[[Any, "Context"], Outcome]
    estimate: Callable[[Any], Estimate]
    grid: Callable[[str], list[dict[str, Any]]] = lambda scale: [{}]
    needs: Callable[[Any], list[RunConfig]] = lambda config: []
    reads: Callable[[Any], Iterable[str]] = lambda config: ()

    @property
    def id(self) -> str:
        """The name under which the registry keeps it."""
        return self.name

    def plan(self, scale: str, sets: Mapping[str, Any] | None = None, seeds: Iterable[int] = (0,)) -> list[RunConfig]:
        """The configs of this scale: grid x seeds, without duplicates.

        Each of `sets` replaces a key in every grid point. A text is read as on the command line ("5", "5,10" for
        several points, "null", JSON for lists); a Python list gives several points; any other value is taken as is.
        Raises ReproError for an unknown scale, key or corpus (with the nearest name) and for values out of range.
        """
        if scale not in self.scales:
            raise unknown("scale", scale, self.scales)
        keys = self.config.model_fields.keys() - {"experiment", "scale"}
        choices = {}
        for key, value in (sets or {}).items():
            if key not in keys:
                raise unknown(f"key of {self.name}", key, keys)
            choices[key] = _choices(value)
        plan = {}
        for seed, point, chosen in itertools.product(seeds, self.grid(scale), itertools.product(*choices.values())):
            fixed = {"experiment": self.name, "scale": scale, "seed": seed, **self.scales[scale], **point}
            config = _validated(self.config, fixed | dict(zip(choices, chosen, strict=True)))
            plan.setdefault(canonical(config.model_dump(mode="json")), config)
        for name in {name for config in plan.values() for name in (config.corpus, *self.reads(config))}:
            corpus_named(name)
        return list(plan.values())


def experiment(name: str) -> Experiment:
    """The experiment of this name. Raises ReproError, with the nearest name, when there is none."""
    return lookup(Experiment, name)


def experiments() -> list[Experiment]:
    """All experiments of the catalog."""
    return list(declared(Experiment).values())


def corpus_named(name: str) -> Any:
    """The corpus of this name (`repro.data.Corpus`). Raises ReproError, with the nearest name, when there is none."""
    from repro.data import corpus

    return corpus(name)


def canonical(value: Any) -> str:
    """One JSON text for equal values: sorted keys, no spaces, floats by their shortest exact digits.

    Raises ReproError for a value that is not finite, because JSON has no word for it.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=lambda v: v.tolist())
    except ValueError as error:
        raise ReproError("a config or record holds a value that is not finite (nan or inf); "
                         "look for a diverged loss.") from error


def sha256(value: Any) -> str:
    """Hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def identify(config: Mapping[str, Any], fingerprint: str, needs: Iterable[str],
             reads: Mapping[str, str] | None = None) -> str:
    """Id (16 hex digits) of the run of a config on data with this fingerprint, on top of the runs with ids `needs`.

    `reads`: the fingerprints of the other corpora it reads, by name.
    """
    parts = {"config": config, "data": fingerprint, "needs": sorted(needs)}
    return sha256(parts | ({"reads": reads} if reads else {}))[:16]


def run_id(config: RunConfig) -> str:
    """Id of a run (16 hex digits): a hash of its config, of its corpora's fingerprints and of the runs it needs.

    Raises ReproError when a corpus, or that of a run it needs, is not on this machine.
    """
    needs = [run_id(need) for need in experiment(config.experiment).needs(config)]
    return identify(config.model_dump(mode="json"), corpus_named(config.corpus).fingerprint(), needs,
                    fingerprints(config))


def fingerprints(config: RunConfig) -> dict[str, str]:
    """Name -> fingerprint of the corpora that a run reads besides its own. Raises ReproError for an absent one."""
    return {name: corpus_named(name).fingerprint() for name in experiment(config.experiment).reads(config)}


def data_at_hand(config: RunConfig) -> bool:
    """Whether `run_id(config)` can be computed: its corpora and those of the runs it needs are on this machine."""
    parent = experiment(config.experiment)
    here = all(corpus_named(name).available() for name in (config.corpus, *parent.reads(config)))
    return here and all(data_at_hand(need) for need in parent.needs(config))


def command(config: RunConfig) -> str:
    """The shell command that runs exactly this config: it sets every key in which the experiment's grid differs."""
    parent = experiment(config.experiment)
    values, plan = config.model_dump(mode="json"), [c.model_dump(mode="json") for c in parent.plan(config.scale)]
    words = ["repro", "run", config.experiment, "--scale", config.scale]
    for key, value in values.items():
        if key not in ("experiment", "scale", "seed") and any(other[key] != value for other in plan):
            words += ["--set", f"{key}={as_text(value)}"]
    return shlex.join(words + (["--seed", str(config.seed)] if config.seed else []))


def _choices(value: Any) -> list[Any]:
    """The grid values that one `--set` stands for; `as_text` is the inverse for one value."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    if value[:1] in ('[', '{', '"'):
        try:
            return [json.loads(value)]
        except json.JSONDecodeError as error:
            raise ReproError(f"cannot read {value} as JSON: {error}.") from error
    return [None if part == "null" else part for part in value.split(",")]


def as_text(value: Any) -> str:
    """The text that `--set key=TEXT` reads as `value`."""
    plain = isinstance(value, str) and value not in ("", "null") and "," not in value and value[0] not in '[{"'
    return value if plain else canonical(value)


def _validated(kind: type[RunConfig], values: Mapping[str, Any]) -> RunConfig:
    """A config of `values`. Raises ReproError, in one line, for the values that do not fit."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            where = ".".join(map(str, problem["loc"]))
            given = f" {where}={problem['input']!r}:" if where else ""
            hint = """, written as a list: '[…, …]'""" if problem["type"] == "tuple_type" else ""
            problems.append(f"{given} {problem['msg'].removeprefix('Value error, ')}{hint}")
        raise ReproError(f"{values['experiment']}:{';'.join(problems)}.".replace("..", ".")) from error
