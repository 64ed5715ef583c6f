"""Settings check themselves: every public config refuses what is of another type or out of range."""

import inspect
import math
import pickle
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from importlib import import_module

import numpy as np
import pytest

from repro.attention import Causal, Strided
from repro.configs import Positive, Tuple, config
from repro.errors import ReproError

ROOMS = "repro.models", "repro.recurrence", "repro.training"
GIVEN = {"vocab_size": 9, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 16, "units": 4, "length": 16,
         "tokens": 10, "learning_rate": 0.1, "patterns": (Causal(),), "k": 1, "n_experts": 2}
BAD = {int: (0, -3, 2.5, math.nan, math.inf, "3", "", True, None, [1], 10**30, np.float64(2.5)),
       float: (-0.1, math.nan, math.inf, "x", True, None, [0.1]),
       str: ("", "x", 3, None, True, ["x"]), bool: (0, "yes", None, 1.0)}
FINE = {"seed": (0,), "warmup_steps": (0,), "n_experts": (0,), "insert_layer": (0,), "best": ("", "x"), "k": (0,)}


def public():
    named = (getattr(import_module(room), name) for room in ROOMS for name in import_module(room).__all__)
    return sorted({one for one in named if inspect.isclass(one) and one.__name__.endswith("Config")}, key=str)


def made(kind, **changes):
    needed = {one.name: GIVEN[one.name] for one in fields(kind) if one.default is MISSING}
    return kind(**needed | changes)


def test_every_public_config_is_found_and_checks_itself():
    assert {kind.__name__ for kind in public()} >= {
        "DecoderConfig", "EncoderConfig", "EncoderDecoderConfig", "GPTConfig", "LSTMConfig", "RecurrenceConfig",
        "Seq2SeqConfig", "SparseConfig", "TDMCAConfig", "TrainConfig"}
    for kind in public():
        assert is_dataclass(kind) and kind.__dataclass_params__.frozen and kind.__pydantic_fields__


@pytest.mark.parametrize("kind", public(), ids=lambda kind: kind.__name__)
def test_bad_values_are_refused_in_one_line_that_names_the_field(kind):
    types, tried = {name: part.annotation for name, part in inspect.signature(kind).parameters.items()}, 0
    for name, default in ((one.name, one.default) for one in fields(kind)):
        of = next((one for one in BAD if types[name] is one or types[name] == one | None), str)
        optional = default is None
        for bad in BAD[of]:
            if bad is None and optional or bad in FINE.get(name, ()):
                continue
            with pytest.raises(ReproError) as raised:
                made(kind, **{name: bad})
            assert name in str(raised.value) and "\n" not in str(raised.value)
            tried += 1
    assert tried >= 20


@pytest.mark.parametrize("kind", public(), ids=lambda kind: kind.__name__)
def test_a_config_is_a_plain_frozen_dataclass(kind):
    one = made(kind)
    assert one == replace(one) == pickle.loads(pickle.dumps(one)) and hash(one) == hash(replace(one))
    assert kind(**{each.name: getattr(one, each.name) for each in fields(one)}) == one
    assert kind(*(getattr(one, each.name) for each in fields(one))) == one
    assert asdict(one).keys() == {each.name for each in fields(one)} == set(inspect.signature(kind).parameters)
    with pytest.raises(AttributeError):
        setattr(one, fields(one)[0].name, 1)
    with pytest.raises(ReproError, match="unknown setting of .* 'n_lyer'"):
        made(kind, n_lyer=2)


@config
class Shape:
    rows: Positive
    names: Tuple[str] = ()

    def __post_init__(self):
        if self.rows == 7:
            raise ReproError("rows is 7; it must not be.")


@pytest.mark.parametrize(("given", "kept"), [
    ((np.int32(3),), Shape(3)), ((3, ["a"]), Shape(3, ("a",))), ((3, ("a",)), Shape(rows=3, names=("a",)))])
def test_what_stands_for_a_value_becomes_it(given, kept):
    found = Shape(*given)
    assert found == kept and type(found.rows) is int and type(found.names) is tuple


@pytest.mark.parametrize(("given", "words"), [
    ((0,), "rows is 0; it must be at least 1."), ((7,), "rows is 7; it must not be."),
    ((2.0, 3), "rows is 2.0; it must be a whole number. names is 3; it must be a list, written […, …]."),
    ((2, ["a", 5]), "names.1 is 5; it must be a text."), ((), "rows has no value; give it one."),
    ((1, (), 2), "Shape has 2 settings, each given once: rows, names."),
    ((np.eye(3),), "rows is array([[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]]); it must be a whole number.")])
def test_the_line_says_what_is_allowed(given, words):
    with pytest.raises(ReproError) as raised:
        Shape(*given)
    assert str(raised.value) == words


def test_the_signature_shows_types_not_bounds():
    assert str(inspect.signature(Shape)) == "(rows: int, names: tuple[str, ...] = ()) -> None"


def test_a_pattern_is_a_pattern():
    from repro.models import DecoderConfig, SparseConfig

    for bad in ("strided", None, 4, [Causal()]):
        with pytest.raises(ReproError, match="pattern is .*; it must be a Pattern"):
            SparseConfig(9, 16, 2, 2, 8, pattern=bad)
    for bad in (((1, 2),), (None,), "ab", Causal(), 3):
        with pytest.raises(ReproError, match="patterns"):
            DecoderConfig(9, 8, 2, bad)
    assert SparseConfig(9, 16, 2, 2, 8, pattern=Strided(4)).pattern == Strided(4)
