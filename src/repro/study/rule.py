"""The rule by which every claim is judged: one pure function of the measured effects.

Seeds and units (documents, books, stretches of text) are crossed: every seed reads the same units. So the variance of
the mean effect is that of seeds over their number, plus that of units over theirs, plus what is left of each single
number. A t interval over seeds alone misses what the units share; a percentile bootstrap of both (Sellam et al. 2022)
covers 75 to 90 % with three seeds. Here the mean squares of a two-way analysis of variance give the variance,
Satterthwaite its degrees of freedom, and no interval is shorter than seeds alone or units alone would make it. With 3
to 10 seeds and 5 to 30 units at least 93.7 % were covered where 95 % are claimed (`tests/study/test_rule.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from repro.errors import ReproError
from repro.page import signed

if TYPE_CHECKING:
    import numpy as np

NOT_RUN, OPEN, NOT_TESTABLE = "not run", "open", "not testable here"
REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"
MACHINERY = "machinery works"  # the word at smoke
SEEDS = 3  # that a verdict asks for, unless it says more
ERROR = 0.05  # that the claims of a family share
DETECTABLE = 2.8  # standard errors: of that size an effect is found in four of five repetitions, if many add to it


@dataclass(frozen=True)
class Verdict:
    """What records say about a claim: a word, the effect with its interval, and `text`, which tells both.

    >>> verdict = judge([[-0.031, -0.027, -0.030]], "lower", paper_effect=-0.05, seeds=1)
    >>> verdict.verdict, verdict.n_units
    ('reproduced', 3)
    """

    verdict: Literal["reproduced", "not reproduced", "inconclusive", "not testable here", "open", "not run",
                     "machinery works"]
    effect: float | None = None
    low: float | None = None  # None where one number of one seed stands for many
    high: float | None = None
    text: str = ""
    detectable: float | None = None  # the smallest effect that so many seeds and units would show; no sign
    exact: bool = False  # there is nothing to be unsure of: low and high are the effect
    paper_effect: float | None = None
    control: float | None = None  # the mean effect without the mechanism
    null: float = 0.0
    room: float | None = None  # what the assay moved
    n_seeds: int = 0
    n_units: int = 0
    p: float | None = None  # of no effect; with a control the larger of two. For `holm`
    because: str = ""  # the reason, with the names of fields in braces


def judge(effects, direction: Literal["lower", "higher"], paper_effect: float | None = None, control=None,
          room: float | None = None, seeds: int = SEEDS, null: float = 0.0, family: int = 1) -> Verdict:
    """The verdict on a claim that effects lie below ("lower") or above ("higher") `null`.

    effects: (seeds, units), or (units,) of a single seed, or one number. paper_effect: with its sign, in the same unit.
    control: the same effects without the mechanism, (seeds, units), or (seeds, 1) where one number stands for all.
    room: by how much a positive control moves what is measured; it has no sign. seeds: as many are asked for; 1 where
    the same weights are compared. family: the number of claims that share one error of 5 %.

    The first of these that holds decides (before it, a claim whose runs are missing is "not run"):
    "open": there are fewer seeds than asked for.
    "not testable here": the room, or what could be detected (2.8 standard errors), is less than the paper's effect, or
    there is no room at all.
    "reproduced": the interval lies on the claimed side of `null`, and that of effects minus control on that side of 0;
    the text says so where it is surely less than half of the paper's effect.
    "not reproduced": the interval excludes half the paper's effect (without one: everything on the claimed side). The
    text says "opposite" where all of it lies on the other side and most of it surely goes with the mechanism, which
    only a control can tell, and that it lies there where there is none; else "no effect".
    "inconclusive": none of these.
    Distances are from `null`, of the paper's effect too. Where all effects are equal they are exact; where one seed is
    asked for, so is a single number.

    Raises ReproError for arrays that are empty, not finite or do not fit together, for another direction, and for a
    paper's effect that contradicts it.

    >>> effects = [[-0.031, -0.027, -0.040], [-0.035, -0.022, -0.038], [-0.029, -0.030, -0.036]]
    >>> control = [[0.001, -0.002, 0.000], [0.002, 0.001, -0.001], [-0.001, 0.000, 0.001]]  # (seeds, documents)
    >>> print(judge(effects, "lower", paper_effect=-0.05, control=control, room=0.08).text)
    -0.032 [-0.0465, -0.0175]; without the mechanism +0.000111
    """
    import numpy as np

    if direction not in ("lower", "higher"):
        raise ReproError(f"direction '{direction}': a claimed effect is 'lower' or 'higher'.")
    for name, count in (("seeds", seeds), ("family", family)):
        if not (isinstance(count, int | np.integer) and count >= 1):
            raise ReproError(f"{name} is {count}; it must be a whole number from 1 on.")
    for name, number in (("paper_effect", paper_effect), ("room", room), ("null", null)):
        if number is not None and not np.isfinite(number):
            raise ReproError(f"{name} is {number}; it must be a finite number.")
    sign = 1 if direction == "higher" else -1
    effects = _matrix("effects", effects)
    claimed = sign * (effects - null)  # from here on what is claimed lies above 0
    paper = None if paper_effect is None else sign * (paper_effect - null)
    if paper is not None and paper <= 0:
        raise ReproError(f"paper_effect is {paper_effect:g}, which is not '{direction}' than {null:g}; give it with "
                         "its sign, or the other direction.")
    whole = _interval(claimed, family)
    without = beyond = None
    if control is not None:
        control = _matrix("control", control)
        if control.shape not in (effects.shape, (len(effects), 1)):
            raise ReproError(f"control has the shape {control.shape}, effects {effects.shape}; give the same seeds and "
                             "units, or one number a seed.")
        without = sign * (control - null)
        beyond = _interval(claimed - without, family)
    detectable = DETECTABLE * whole.error
    if len(effects) < seeds:
        verdict, because = OPEN, f"{len(effects)} of {seeds} seeds"
    elif room is not None and (room <= 0 or paper and room < paper):
        left, size = "room for {room}" if room > 0 else "no room ({room})", "{size}" if null else "{paper_effect}"
        verdict, because = NOT_TESTABLE, f"the assay leaves {left}" + f", the paper's effect is {size}" * bool(paper)
    elif paper and detectable > paper:
        verdict, because = NOT_TESTABLE, "no effect below {detectable} could be seen, the paper's is {size}"
    elif whole.low > 0 and (beyond is None or beyond.low > 0):
        small = paper and whole.error and whole.high < paper / 2
        verdict, because = REPRODUCED, "surely less than half of the paper's {size}" if small else ""
    elif whole.high < paper / 2 if paper else whole.high <= 0:
        opposite = without is not None and whole.high < 0 < _interval(without - claimed / 2, family).low
        none = ("no effect of half the paper's size" if whole.low > 0 else
                "on the other side, and no control tells why" if whole.high < 0 and without is None else "no effect")
        verdict, because = NOT_REPRODUCED, "opposite" if opposite else none
    else:
        verdict, because = INCONCLUSIVE, ""
        if whole.low > 0:
            bar, p = (f"{number:.2g}" for number in (ERROR / family, beyond.p))
            p = f"> {bar}" if p == bar else p
            because = ("surely less than its control" if beyond.high < 0 else
                       f"not surely beyond its control (p {p}, at most {bar} is asked for)")
    if control is not None:
        because += "; " * bool(because) + "without the mechanism {control}"
    exact, unsure = whole.error == 0, effects.size == 1 < seeds  # one number of one seed: who knows
    effect = float(effects[0, 0] if exact else effects.mean())
    low, high = (effect, effect) if exact else (null + sign * end for end in (whole.low, whole.high)[::sign])
    found = Verdict(verdict, effect, *((None, None) if unsure else (low, high)), exact=exact and not unsure,
                    detectable=None if unsure else detectable, paper_effect=paper_effect, null=null, room=room,
                    control=None if control is None else float(control.mean()), n_seeds=len(effects),
                    n_units=effects.shape[1], p=1.0 if unsure else max(one.p for one in (whole, beyond) if one),
                    because=because)
    return replace(found, text=worded(found))


def worded(verdict: Verdict, write: Callable[[float], str] = lambda number: signed(number, ".3g"),
           unit: str = "") -> str:
    """The words of a verdict, each number written by `write`: the effect with its interval, in `unit`, then why."""
    names = ("effect", "low", "high", "paper_effect", "control", "detectable", "room")
    numbers = {name: write(value) for name in names if (value := getattr(verdict, name)) is not None}
    if verdict.paper_effect is not None:
        beyond = f" beyond {write(verdict.null)}" if verdict.null else ""
        numbers["size"] = write(abs(verdict.paper_effect - verdict.null)) + beyond
    numbers |= {name: numbers[name].removeprefix("+") for name in ("detectable", "room", "size") if name in numbers}
    brackets = "" if verdict.exact or verdict.low is None else " [{low}, {high}]"
    return "; ".join(filter(None, ("{effect}" + brackets + f" {unit}" * bool(unit), verdict.because))).format(**numbers)


def holm(p: Sequence[float]) -> list[int]:
    """With how many claims each of a family shares the error (Holm 1979), given the `p` of each, 1 of one not run.

    The smallest p is held against all of them, the next against one fewer, and so on to the first that is not small
    enough; the others stay where that one is.
    """
    shares, share, held = [0] * len(p), len(p), False
    for rank, at in enumerate(sorted(range(len(p)), key=lambda at: p[at])):
        share = share if held else len(p) - rank
        shares[at], held = share, held or p[at] > ERROR / share
    return shares


class _Interval(NamedTuple):
    """Of a mean, with its standard error and the two-sided p of a mean of 0."""

    low: float
    high: float
    error: float
    p: float


def _interval(values: "np.ndarray", family: int) -> _Interval:
    """The mean of (seeds, units) at the level 1 - 0.05 / family."""
    import numpy as np
    from scipy.special import stdtr, stdtrit  # Student's distribution; scipy.stats takes two seconds to import

    mean, (n_seeds, n_units) = float(values.mean()), values.shape
    if np.ptp(values) <= 1e-12 * np.abs(values).max():  # equal, to rounding
        return _Interval(mean, mean, 0.0, float(mean == 0))
    of_seeds, of_units = values.mean(1, keepdims=True) - mean, values.mean(0, keepdims=True) - mean
    rest, free = values - mean - of_seeds - of_units, (n_seeds - 1, n_units - 1)
    # How unsure the mean is (squared) by seeds alone and by units alone. What is left in `rest` is part of both.
    seeds, units = (float((part**2).mean()) / max(n, 1) for part, n in zip((of_seeds, of_units), free, strict=True))
    twice = float((rest**2).mean()) / max(free[0] * free[1], 1)
    ways = [(square, n) for square, n in ((seeds, free[0]), (units, free[1]), (twice, free[0] * free[1]))
            if n and square]
    if all(free) and seeds + units:
        satterthwaite = (seeds + units)**2 / (seeds**2 / free[0] + units**2 / free[1])
        ways.append((max(seeds, units, seeds + units - twice), satterthwaite))
    reach = max(float(stdtrit(n, 1 - ERROR / family / 2)) * square**0.5 for square, n in ways)
    p = max(2 * float(stdtr(n, -abs(mean) / square**0.5)) for square, n in ways)
    return _Interval(mean - reach, mean + reach, max(ways)[0]**0.5, p)


def _matrix(name: str, values) -> "np.ndarray":
    """`values` as (seeds, units)."""
    import numpy as np

    try:
        found = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ReproError(f"{name} are no array of numbers; give (seeds, units), each seed as many units.") from None
    found = found.reshape((1,) * (2 - found.ndim) + found.shape) if found.ndim < 2 else found
    if found.ndim > 2 or not found.size:
        raise ReproError(f"{name} have the shape {found.shape}; give (seeds, units), at least one of each.")
    if not np.isfinite(found).all():
        raise ReproError(f"{name} hold {int((~np.isfinite(found)).sum())} of {found.size} numbers that are not finite; "
                         "leave out units without a measurement.")
    return found
