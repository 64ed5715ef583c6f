"""The rule of verdicts, step by step, and its intervals against simulated truth."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from repro.errors import ReproError
from repro.study import judge, rule
from repro.study.rule import holm, worded

SPREAD = np.array([[-0.9, -0.3, 0.1, 0.4, 0.7], [-0.5, -0.2, 0.0, 0.1, 0.6], [-0.7, 0.1, -0.1, 0.3, 0.4]])


def effects(mean, spread=0.1, seeds=3):
    """Three seeds, five units, around exactly this mean."""
    return mean + spread * (SPREAD - SPREAD.mean())[:seeds]


# --- the interval

def t_interval(values, level=0.95):
    return stats.ttest_1samp(values, 0).confidence_interval(level)


def test_one_seed_gives_a_t_interval_over_units():
    values = SPREAD[0] + 0.4
    found = judge(values[None], "higher", seeds=1)
    assert (found.low, found.high) == pytest.approx(t_interval(values))
    assert found.detectable == pytest.approx(2.8 * stats.sem(values))
    assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert judge(values, "higher", seeds=1) == found, "one dimension: units of one seed"


def test_one_unit_gives_a_t_interval_over_seeds():
    values = np.array([0.2, 0.5, 0.9, 0.6])
    found = judge(values[:, None], "higher")
    assert (found.low, found.high) == pytest.approx(t_interval(values))
    assert (found.n_seeds, found.n_units) == (4, 1)


def test_seeds_that_agree_leave_the_doubt_of_units_and_units_that_agree_that_of_seeds():
    values = SPREAD[0] + 0.4
    found = judge(np.tile(values, (3, 1)), "higher")
    assert (found.low, found.high) == pytest.approx(t_interval(values))
    found = judge(np.tile([[0.2], [0.5], [0.9]], (1, 7)), "higher")
    assert (found.low, found.high) == pytest.approx(t_interval([0.2, 0.5, 0.9]))


def test_both_sources_together_by_hand():
    """Seeds and units without interaction: their squares add, with the degrees of freedom of Satterthwaite."""
    seeds, units = np.arange(-2.0, 3.0), 1.5 * np.arange(-2.5, 3.0)
    found = judge(10 + seeds[:, None] + units, "higher")
    a, b = seeds.var(ddof=1) / 5, units.var(ddof=1) / 6
    reach = stats.t.ppf(0.975, (a + b)**2 / (a**2 / 4 + b**2 / 5)) * (a + b)**0.5
    assert reach > max(stats.t.ppf(0.975, 4) * a**0.5, stats.t.ppf(0.975, 5) * b**0.5)
    assert (found.low, found.high) == pytest.approx((10 - reach, 10 + reach))
    assert found.detectable == pytest.approx(2.8 * (a + b)**0.5)


def test_what_is_left_in_each_number_counts_once():
    """Where seeds and units are only noise, adding both their squares would count it twice."""
    rng = np.random.default_rng(0)
    errors = [judge(rng.normal(size=(8, 40)), "higher").detectable / 2.8 for _ in range(50)]
    assert 1 < np.mean(errors) * 320**0.5 < 1.25, "1.41 with both"


@pytest.mark.parametrize("family", [1, 3])
def test_a_family_widens_the_interval(family):
    values = SPREAD[0] + 0.4
    found = judge(values, "higher", seeds=1, family=family)
    assert (found.low, found.high) == pytest.approx(t_interval(values, 1 - 0.05 / family))


@pytest.mark.parametrize(("n_seeds", "n_units"), [*product((3, 5, 10), (5, 10, 30)), (1, 5), (1, 30), (3, 1), (10, 1)])
def test_intervals_cover_the_truth(n_seeds, n_units):
    """95 % claimed; simulated at length, the worst of these covers 93.7 %."""
    rng = np.random.default_rng(n_seeds * 100 + n_units)
    kinds = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0.1), (0.3, 1, 0.1), (0.3, 1, 1), (1, 0.3, 1)]
    for of_seed, of_unit, rest in kinds:
        if (n_seeds == 1 and of_seed) or (n_units == 1 and of_unit):
            continue  # one alone cannot tell how much it varies
        n = 1_000
        values = (of_seed * rng.normal(size=(n, n_seeds, 1)) + of_unit * rng.normal(size=(n, 1, n_units))
                  + rest * rng.normal(size=(n, n_seeds, n_units)))
        found = [judge(one, "higher", seeds=1) for one in values]
        covered = np.mean([one.low <= 0 <= one.high for one in found])
        assert covered >= 0.92, (of_seed, of_unit, rest)


def test_intervals_cover_less_where_a_few_units_carry_the_effect():
    """What `how-to-read` says of units that are far from normal: a lognormal with a sigma of 1.5, less its mean."""
    rng = np.random.default_rng(0)
    units = rng.lognormal(sigma=1.5, size=(1_000, 1, 33)) - np.exp(1.5**2 / 2)
    found = [judge(one, "higher", seeds=1) for one in units + 0.1 * rng.normal(size=(1_000, 3, 33))]
    assert 0.78 < np.mean([one.low <= 0 <= one.high for one in found]) < 0.84


# --- the rule

STEPS = {  # what fulfils the conditions of a step and of all steps after it, and of none before
    "open": {"effects": effects(-0.5, 0.01, seeds=2), "room": 0.05, "control": effects(0.0, 0.01, seeds=2)},
    "not testable here": {"effects": effects(-0.5, 0.01), "room": 0.05, "control": effects(0.0, 0.01)},
    "reproduced": {"effects": effects(0.03, 0.001), "room": 0.2, "control": effects(0.0, 0.001)},
    "not reproduced": {"effects": effects(0.03, 0.001), "room": 0.2, "control": effects(0.03, 0.002)},
    "inconclusive": {"effects": effects(0.03, 0.08), "room": 0.2, "control": effects(0.0, 0.001)},
}


@pytest.mark.parametrize("verdict", STEPS)
def test_the_first_step_that_holds_decides(verdict):
    found = judge(direction="higher", paper_effect=0.1, **STEPS[verdict])
    assert found.verdict == verdict
    mirrored = {name: -value if name != "room" else value for name, value in STEPS[verdict].items()}
    assert judge(direction="lower", paper_effect=-0.1, **mirrored).verdict == verdict


def test_few_seeds_leave_a_claim_open_however_clear_it_is():
    found = judge(effects(0.5, 0.01, seeds=2), "higher", paper_effect=0.1)
    assert found.verdict == "open" and found.low > 0.4
    assert found.text.endswith("; 2 of 3 seeds")
    assert judge(effects(0.5, 0.01, seeds=2), "higher", paper_effect=0.1, seeds=2).verdict == "reproduced"
    assert judge(effects(0.5, 0.01, seeds=1), "higher", paper_effect=0.1, seeds=1).verdict == "reproduced"


def test_a_claim_needs_room_for_the_papers_effect():
    found = judge(effects(0.5, 0.01), "higher", paper_effect=0.1, room=0.0999)
    assert found.verdict == "not testable here"
    assert found.text.endswith("the assay leaves room for 0.0999, the paper's effect is +0.1")
    found = judge(effects(-0.5, 0.01), "lower", paper_effect=-0.1, room=-0.02)
    assert found.text.endswith("the assay leaves no room (-0.02), the paper's effect is -0.1")
    found = judge(1.5 - effects(0, 0.01), "lower", paper_effect=1.4, room=0.05, null=1.5)
    assert found.text.endswith("the assay leaves room for 0.05, the paper's effect is 0.1 beyond +1.5")
    assert judge(effects(0.5, 0.01), "higher", paper_effect=0.1, room=0.1).verdict == "reproduced"
    assert judge(effects(-0.5, 0.01), "lower", paper_effect=-0.1, room=0.1).verdict == "reproduced"
    assert judge(effects(0.5, 0.01), "higher", room=0.01).verdict == "reproduced", "no effect of the paper to hold"
    for room in (0.0, -5.0):
        found = judge(effects(0.5, 0.01), "higher", room=room)
        assert found.verdict == "not testable here" and found.text.endswith(
            f"the assay leaves no room ({found.room:.3g})"), found.text


def test_a_claim_needs_the_power_to_see_the_papers_effect():
    noisy = effects(0.5)
    smallest = judge(noisy, "higher").detectable
    assert 0.05 < smallest < 0.3
    found = judge(noisy, "higher", paper_effect=smallest * 0.99)
    assert found.verdict == "not testable here" and found.low > 0
    assert f"no effect below {smallest:.3g} could be seen" in found.text
    assert judge(noisy, "higher", paper_effect=smallest * 1.01).verdict == "reproduced"
    assert judge(noisy, "higher").verdict == "reproduced"


def test_the_control_has_to_be_exceeded():
    clear = effects(0.1, 0.001)
    assert judge(clear, "higher", control=effects(0.05, 0.001)).verdict == "reproduced"
    found = judge(clear, "higher", paper_effect=0.1, control=effects(0.1, 0.002))
    assert found.verdict == "inconclusive"
    assert found.text.endswith("not surely beyond its control (p 1, at most 0.05 is asked for); without the mechanism "
                               "+0.1")
    for sign, direction in ((1, "higher"), (-1, "lower")):
        found = judge(sign * clear, direction, control=sign * effects(0.15, 0.001))
        assert found.verdict == "inconclusive" and found.text.startswith(f"{sign * 0.1:+.3g} [")
        assert f"]; surely less than its control; without the mechanism {sign * 0.15:+.3g}" in found.text
    one_number = judge(clear, "higher", control=[[0.04], [0.05], [0.06]])
    assert one_number.verdict == "reproduced" and one_number.control == pytest.approx(0.05)
    assert judge(1 + clear, "higher", null=1, control=1 + clear / 2).verdict == "reproduced", "0 for their difference"


def test_a_p_that_misses_its_bar_by_little_is_not_printed_as_the_bar():
    def told(shift):
        return judge(effects(0.1, 0.001), "higher", control=effects(0.1, 0.002) - shift)

    low, high = 0.0, 0.05  # from a p of 1 to one far below the bar
    for _ in range(60):
        low, high = (middle, high) if "(p " in told(middle := (low + high) / 2).text else (low, middle)
    assert "(p > 0.05, at most 0.05 is asked for)" in told(low).text


def test_what_excludes_half_the_papers_effect_is_not_reproduced():
    none = effects(0.0, 0.01)
    high = judge(none, "higher").high
    assert judge(none, "higher", paper_effect=2.02 * high).verdict == "not reproduced"
    assert judge(none, "higher", paper_effect=1.98 * high).verdict == "inconclusive"
    assert judge(none, "higher").verdict == "inconclusive", "nothing to exclude"
    assert judge(effects(-0.1, 0.01), "higher").verdict == "not reproduced"


def test_what_is_surely_less_than_half_the_papers_effect_says_so():
    found = effects(0.1, 0.01)
    high = judge(found, "higher").high
    few, half = (judge(found, "higher", paper_effect=effect) for effect in (2.02 * high, 1.98 * high))
    assert few.verdict == half.verdict == "reproduced"
    assert "surely less than half of the paper's" in few.text and "half" not in half.text
    assert "half" not in judge(1.07, "higher", paper_effect=9.0, seeds=1).text, "a count is not estimated"


@pytest.mark.parametrize(("control", "word"), [
    (None, "on the other side"), (0.0, "opposite"), (-0.02, "opposite"), (-0.07, "no effect"), (-0.1, "no effect"),
    (-0.3, "no effect"), (0.1, "opposite")])
def test_opposite_is_what_goes_with_the_mechanism(control, word):
    found = judge(effects(-0.1, 0.01), "higher", paper_effect=0.1,
                  control=control if control is None else effects(control, 0.012))
    assert found.verdict == "not reproduced"
    assert re.search(r"\]; ([a-z ]+)", found.text)[1] == word


def test_opposite_needs_an_interval_wholly_on_the_other_side():
    found = judge(effects(-0.01, 0.02), "higher", paper_effect=0.1, control=effects(0.0, 0.001))
    assert found.low < 0 < found.high and found.verdict == "not reproduced"
    assert "no effect" in found.text


def test_effects_are_held_against_the_null():
    assert judge(effects(1.2, 0.01), "higher", null=1.0).verdict == "reproduced"
    assert judge(effects(1.2, 0.01), "higher", null=1.3).verdict == "not reproduced"
    assert judge(effects(1.2, 0.01), "lower", null=1.3).verdict == "reproduced"
    found = judge(effects(1.02, 0.01), "higher", null=1.0, paper_effect=1.1)
    assert found.verdict == "reproduced" and found.low == pytest.approx(2.04 - found.high)
    assert judge(effects(1.0, 0.01), "higher", null=1.0, paper_effect=1.1).verdict == "not reproduced"
    assert judge(effects(1.0, 0.01), "higher", null=1.0, paper_effect=1.1, room=0.09).verdict == "not testable here"


@pytest.mark.parametrize(("values", "seeds"), [(2.0, 1), ([2.0], 1), ([[2.0]], 1), ([[2.0] * 5] * 3, 3),
                                               ([[2.0]] * 3, 3), ([[0.1 * 3] * 7] * 3, 3)])
def test_an_exact_effect_has_no_brackets(values, seeds):
    found = judge(values, "higher", seeds=seeds)
    assert found.exact and found.verdict == "reproduced"
    assert found.low == found.effect == found.high and found.detectable == 0
    assert found.text == f"+{found.effect:g}"
    assert judge(values, "lower", seeds=seeds).verdict == "not reproduced"
    assert judge(values, "lower", seeds=seeds, null=found.effect).verdict == "not reproduced", "there is no doubt"


def test_one_number_of_one_seed_tells_nothing_where_more_are_asked_for():
    found = judge(2.0, "higher")
    assert (found.verdict, found.effect, found.low, found.high, found.detectable) == ("open", 2.0, None, None, None)
    assert not found.exact and found.p == 1
    assert found.text == "+2; 1 of 3 seeds"


def test_doubt_in_nothing_but_interaction_is_doubt():
    found = judge([[1.0, -1.0], [-1.0, 1.0]], "higher", seeds=2)
    assert found.verdict == "inconclusive" and found.low < -1


def test_words_in_a_unit():
    found = judge(effects(-0.0234, 0.01), "lower", paper_effect=-0.04, control=effects(0.001, 0.001))
    assert worded(found, lambda nats: f"{nats:+.1%}") == (
        f"-2.3% [{found.low:+.1%}, {found.high:+.1%}]; without the mechanism +0.1%")
    assert found.text.startswith("-0.0234 [-0.0")


@pytest.mark.parametrize(("p", "shares"), [
    ([0.5], [1]), ([0.001, 0.5, 0.03], [3, 2, 2]), ([0.02, 0.001, 0.03], [2, 3, 1]), ([0.02, 0.03, 0.04], [3, 3, 3]),
    ([1.0, 0.0], [1, 2]), ([], []), ([0.01, 0.03, 0.04, 0.005], [3, 2, 2, 4])])
def test_holm_steps_down(p, shares):
    assert holm(p) == shares


def test_holm_rejects_what_its_textbook_form_rejects():
    """Holm (1979): adjusted p, the largest so far of (m - rank) times p, against 0.05."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = rng.uniform(0, 0.1, size=rng.integers(1, 7))
        adjusted, largest = np.empty(len(p)), 0.0
        for rank, at in enumerate(np.argsort(p)):
            largest = adjusted[at] = max(largest, (len(p) - rank) * p[at])
        assert [one <= 0.05 / share for one, share in zip(p, holm(p), strict=True)] == (adjusted <= 0.05).tolist()


def test_p_and_interval_agree_at_every_level():
    values = effects(0.1, 0.1)
    p = judge(values, "higher").p
    family = 0.05 / p
    assert judge(values, "higher", family=int(family)).low > 0 > judge(values, "higher", family=int(family) + 1).low
    assert judge(values, "higher", control=effects(0.05, -0.1)).p > p, "the larger of two"


@pytest.mark.parametrize(("change", "message"), [
    ({"direction": "below"}, "direction 'below': a claimed effect is 'lower' or 'higher'."),
    ({"effects": np.empty((0, 5))}, "effects have the shape (0, 5)"),
    ({"effects": []}, "effects have the shape (1, 0)"),
    ({"effects": np.ones((2, 3, 4))}, "effects have the shape (2, 3, 4)"),
    ({"effects": [[0.1, 0.2], [0.3]]}, "effects are no array of numbers"),
    ({"effects": [0.1, float("nan"), float("inf")]}, "effects hold 2 of 3 numbers that are not finite"),
    ({"control": np.ones((3, 4))}, "control has the shape (3, 4), effects (3, 5)"),
    ({"control": np.ones((1, 5))}, "control has the shape (1, 5), effects (3, 5)"),
    ({"control": np.full((3, 5), float("nan"))}, "control hold 15 of 15 numbers"),
    ({"paper_effect": -0.1}, "paper_effect is -0.1, which is not 'higher' than 0"),
    ({"paper_effect": 0.0}, "paper_effect is 0, which is not 'higher' than 0"),
    ({"paper_effect": 0.1, "null": 0.2}, "paper_effect is 0.1, which is not 'higher' than 0.2"),
    ({"paper_effect": float("nan")}, "paper_effect is nan; it must be a finite number"),
    ({"room": float("inf")}, "room is inf"), ({"null": float("nan")}, "null is nan"),
    ({"seeds": 0}, "seeds is 0; it must be a whole number from 1 on"), ({"seeds": 2.5}, "seeds is 2.5"),
    ({"family": 0}, "family is 0"),
])
def test_what_cannot_be_judged_is_refused_in_one_line(change, message):
    with pytest.raises(ReproError, match=re.escape(message)) as caught:
        judge(**{"effects": effects(0.1), "direction": "higher"} | change)
    assert "\n" not in str(caught.value)


def test_the_page_tells_the_rule_in_the_order_of_the_code():
    page = " ".join((Path(__file__).parents[2] / "book/how-to-read.md").read_text().split())
    table = page[page.index("| verdict | when |"):page.index("\"Not reproduced\" comes")]
    assert re.findall(r"\| ([a-z ]+) \| [^-]", table) == ["verdict", "not run", *STEPS]
    assert list(STEPS) == [rule.OPEN, rule.NOT_TESTABLE, rule.REPRODUCED, rule.NOT_REPRODUCED, rule.INCONCLUSIVE]
    for words in (f"{rule.DETECTABLE} standard errors", f"one error of {100 * rule.ERROR:.0f} %", "at least 93.7 %",
                  f"{rule.MACHINERY} : what every claim says at `smoke`"):
        assert words in page
