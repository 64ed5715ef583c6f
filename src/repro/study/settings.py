"""The settings of a run: a validated config, its canonical text, and the id computed from it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repro.configs import problems
from repro.errors import ReproError, short

SCALES = ("smoke", "small", "pretrained", "medium", "paper")
COMMITTED = ("paper", "medium", "pretrained", "small")  # scales with committed records, the largest first
DEVICES = {"smoke": "one CPU core", "small": "one CPU core"} | dict.fromkeys(SCALES[2:], "one GPU")  # for estimates


@dataclass(frozen=True)
class Absent:
    """Marks a field added after the first records were made, with the value that describes the earlier behavior.

        optimizer: Annotated[Literal["adamw", "muon"], Absent("adamw")] = "adamw"

    A run with this value keeps the id that it had without the field, and its record does not store it. The value
    describes the past and stays when the default changes, so a new default gives new ids. If the effect of a value
    changes, increase `Experiment.revision` to change the ids.

    >>> from typing import Annotated
    >>> class Old(RunConfig):
    ...     optimizer: Annotated[str, Absent("adamw")] = "adamw"
    >>> Old(experiment="e", scale="smoke", corpus="c").settings()
    {'experiment': 'e', 'scale': 'smoke', 'seed': 0, 'corpus': 'c'}
    """

    meant: Any


class RunConfig(BaseModel):
    """The base of every experiment's config: frozen, no extra keys, every value finite.

    Subclasses add fields with defaults, later ones marked as `Absent`; check combinations in a pydantic
    `model_validator` that raises ValueError with one clear line.

    >>> class Counting(RunConfig):
    ...     order: int = 2
    >>> Counting(experiment="counting", scale="smoke", corpus="synthetic-books").settings()
    {'experiment': 'counting', 'scale': 'smoke', 'seed': 0, 'corpus': 'synthetic-books', 'order': 2}
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    experiment: str
    scale: Literal[*SCALES]
    seed: int = Field(0, ge=0, lt=2**32)  # torch's generators and numpy's take these
    corpus: str

    @property
    def key(self) -> str:
        """16 hex digits that identify a run even if its data is not here: a hash of all its settings."""
        return sha256(self.model_dump(mode="json"))[:16]

    def settings(self) -> dict[str, Any]:
        """The settings as JSON, without fields whose `Absent` value describes the earlier behavior. Ids are computed
        from them, and records store them."""
        values = self.model_dump(mode="json")
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, Absent) and getattr(self, name) == mark.meant:
                    del values[name]
        return values


def validated(kind: type[RunConfig], values: Mapping[str, Any]) -> RunConfig:
    """A config with these values. Raises a one-line ReproError for invalid values."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ReproError(f"{values['experiment']}: {' '.join(problems(error, kind))}") from error
    except TypeError as error:  # a validator looked up a list or a mapping, which has no hash
        wrong = [f"{name}={short(value, 40)}" for name, value in values.items() if isinstance(value, (list, dict))]
        raise ReproError(f"{values['experiment']}: {' or '.join(wrong)} is a list or a mapping where a single value "
                         f"belongs ({error}); give one value.") from error


def canonical(value: Any) -> str:
    """One JSON text for equal values: sorted keys, no spaces, floats by their shortest exact digits.

    Raises ReproError for a value that is not finite, because JSON cannot represent it.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=lambda v: v.tolist())
    except ValueError as error:
        raise ReproError("a config or record holds a value that is not finite (nan or inf); "
                         "look for a diverged loss.") from error


def sha256(value: Any) -> str:
    """Hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def identify(settings: Mapping[str, Any], fingerprint: str, needs: Iterable[str],
             reads: Mapping[str, str] | None = None, revision: int = 0) -> str:
    """Id (16 hex digits) of the run with these settings, on data with this fingerprint, that needs the runs `needs`.

    `reads`: the fingerprints of the other corpora it reads, by name. `revision`: of its experiment.
    """
    parts = {"config": settings, "data": fingerprint, "needs": sorted(needs)}
    return sha256(parts | ({"reads": reads} if reads else {}) | ({"revision": revision} if revision else {}))[:16]


def choices(value: Any) -> list[Any]:
    """The grid values in one `--set`; `as_text` is the inverse for one value."""
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
