"""Claims, their verdicts, and what is told of all of them."""

import re
import sys
from math import exp, log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from toy_claims import DECLARED, declare, difference

from repro.errors import ReproError
from repro.pages.verdicts import columns
from repro.study import Assay, Claim, Measured, artifact, claim, claims, judge, register, run, tally
from repro.study.cache import caching
from repro.study.claims import SHORT, mixed, overall
from repro.study.rule import blocks


@pytest.mark.parametrize(("change", "message"), [
    ({"why_no_control": ""}, "claim 'toy-gain' declares neither control nor why_no_control; give one of them."),
    ({"control": "masked"}, "claim 'toy-gain' declares both control and why_no_control; give one of them."),
    ({"why_no_assay": ""}, "claim 'toy-gain' declares neither assay nor why_no_assay"),
    ({"why_no_paper_effect": ""}, "claim 'toy-gain' declares neither paper_effect nor why_no_paper_effect"),
    ({"paper_effect": lambda: -1.0}, "claim 'toy-gain' declares both paper_effect and why_no_paper_effect"),
    ({"unit": "exact", "why_no_paper_effect": ""}, "declares neither paper_effect"),
    ({"short": "x" * 61}, "claim 'toy-gain' has a short form of 61 characters; shorten it to 60 or fewer."),
    ({"direction": "up"}, "claim 'toy-gain' has the direction 'up'; give one of lower, higher."),
    ({"unit": "page"}, "claim 'toy-gain' has the unit 'page'; give one of document, book, stretch, question, seed, "),
    ({"seeds": 2}, "claim 'toy-gain' asks for 2 seeds; ask for 3 or more, or set same_weights=True if"),
])
def test_what_is_neither_declared_nor_explained_is_refused(change, message):
    with pytest.raises(ReproError, match=re.escape(message)):
        Claim(**DECLARED | change)


def test_a_claim_is_said_in_short_where_its_sentence_is_long():
    assert Claim(**DECLARED).brief == DECLARED["sentence"]
    assert Claim(**DECLARED | {"short": "It helps."}).brief == "It helps."
    every = claims()
    assert [one.id for one in every if len(one.brief) > SHORT or not one.brief.endswith(".")] == []
    assert len({one.brief for one in every}) == len(every) > 50
    assert [one.id for one in every if not one.unit_shown] == [], "a number needs its unit"


def test_exact_claims_need_neither_control_nor_assay():
    assert Claim(**DECLARED | {"unit": "exact", "why_no_control": "", "why_no_assay": ""}).control == ""


def test_beyond_a_margin_only_the_side_counts():
    small = DECLARED | {"measure": lambda records: Measured([[-0.1, -0.11, -0.1]]), "why_no_paper_effect": "",
                        "paper_effect": lambda: -1.0}
    assert Claim(**small).judge([]).verdict == "reproduced, smaller"
    found = Claim(**small | {"margin": True}).judge([])
    assert found.verdict == "reproduced" and "half" not in found.text


def test_a_family_has_one_direction(toy):
    register(Claim(**DECLARED, family="toy"), Claim(**DECLARED | {"id": "toy-other", "direction": "higher"}))
    with pytest.raises(ReproError, match=re.escape(
            "family 'toy' has two directions: claim 'toy-gain' says 'lower', claim 'toy-cost' 'higher'; give one")):
        register(Claim(**DECLARED | {"id": "toy-cost", "direction": "higher"}, family="toy"))


def test_effects_in_logs_are_told_as_shares(toy):
    one = Claim(**DECLARED | {
        "relative": True, "why_no_paper_effect": "", "paper_effect": lambda: log(0.9), "null": log(1.01),
        "control": "masked", "why_no_control": "", "why_no_assay": "",
        "assay": Assay("more text", lambda config: True, lambda records: -log(0.8)),
        "measure": lambda records: Measured([[log(0.85), log(0.87)]], [[log(0.99), log(0.98)]], "note")})
    found = one.judge([], [SimpleNamespace(seed=0)])
    assert found.effect == pytest.approx((0.85 * 0.87)**0.5 - 1) and found.low < found.effect < found.high
    assert (found.paper_effect, found.room, found.null) == pytest.approx((-0.1, 0.2, 0.01))
    assert found.detectable == pytest.approx(1 - exp(-2.8 * log(0.87 / 0.85) / 2))
    assert found.text.startswith("-14.01% [-2") and "; note; " in found.text
    assert found.beyond == pytest.approx((0.85 * 0.87 / 0.99 / 0.98)**0.5 - 1)
    assert found.text.endswith("; without the mechanism -1.50%, beyond that -12.70% [-29.39%, +7.95%]")
    assert columns(one, found) == {"the paper's": "-10.00%", "seeds x units": "1 x 2 books",
                                "detectable": f"{found.detectable:.2%}", "room": "20.00%"}


def test_a_control_that_is_declared_has_to_be_measured():
    one = Claim(**DECLARED | {"control": "masked", "why_no_control": "", "measure": lambda records: Measured([[1.0]])})
    with pytest.raises(ReproError, match=re.escape("claim 'toy-gain' declares a control (masked), but its records")):
        one.judge([])


@pytest.mark.parametrize(("room", "verdict", "reason"), [
    (0.9, "not testable here", "no room"), (1.1, "inconclusive", ""), (None, "not testable here", "no room")])
def test_the_room_comes_from_the_runs_of_the_assay(toy, room, verdict, reason):
    """Of the baseline without overlap, at whatever seeds it was run; its interval reaches 0 and half of the room."""
    asked = []

    def measured(records):
        asked.append([(record.model, record.config["overlap"], record.seed) for record in records])
        return room

    assay = Assay("more text", lambda config: config.overlap == 0 and config.model == "baseline", measured)
    register(Claim(**DECLARED | {"assay": assay, "why_no_assay": "", "paper_effect": lambda: -1.0,
                                 "why_no_paper_effect": "", "measure": lambda records: Measured([[-0.9, 0.1, 0.1]])}))
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    missing = claim("toy-gain").verdict()
    assert (missing.verdict, missing.text.partition(":")[0]) == ("not run", "1 of 3 runs missing")
    run(toy.experiment.plan("smoke", seeds=(4,))[0], progress=False)
    found = claim("toy-gain").verdict()
    assert (found.verdict, found.reason, found.room) == (verdict, reason, room)
    assert asked == [[("baseline", 0, 4)]]


def test_the_runs_of_an_assay_are_compared_at_the_seeds_that_all_have(toy):
    asked = []
    assay = Assay("the module", lambda config: config.overlap == 0,
                  lambda records: asked.append([(record.model, record.seed) for record in records]) or 1.0)
    register(Claim(**DECLARED | {"assay": assay, "why_no_assay": ""}))
    plan = {seed: toy.experiment.plan("smoke", seeds=(seed,)) for seed in (0, 1, 2)}
    chosen = [index for index, config in enumerate(plan[0]) if config.overlap == 0]
    assert len(chosen) == 2
    for index in (1, 3):
        run(plan[0][index], progress=False)
    for seed, indices in ((1, chosen), (2, chosen[:1]), (0, chosen[1:])):
        for index in indices:
            run(plan[seed][index], progress=False)
    assert claim("toy-gain").verdict().room == 1.0
    assert asked == [[("baseline", 1), ("recurrent", 1)]]


def test_seeds_that_all_runs_have_are_compared(toy):
    seen = []
    register(Claim(**DECLARED | {"measure": lambda records: seen.append(
        [(record.model, record.seed) for record in records]) or difference(records)}))
    plan = {seed: toy.experiment.plan("smoke", seeds=(seed,)) for seed in (0, 1, 2, 3)}
    run(plan[0][1], progress=False)
    run(plan[3][3], progress=False)
    told = claim("toy-gain").verdict()
    assert (told.verdict, told.text) == (
        "not run", "its runs have no seed in common; run them with the same --seed")
    for seed in (2, 1):
        run(plan[seed][1], progress=False)
        run(plan[seed][3], progress=False)
    assert claim("toy-gain").verdict().n_seeds == 2
    assert seen == [[("baseline", 1), ("recurrent", 1), ("baseline", 2), ("recurrent", 2)]]


def test_a_claim_that_lacks_seeds_says_how_to_get_one_more(toy):
    register(Claim(**DECLARED | {"seeds": 3, "same_weights": False}))
    for seed in (0, 2):
        for config in toy.experiment.plan("small", seeds=(seed,)):
            run(config, progress=False)
    found = claim("toy-gain").verdict("small")
    assert found.verdict == "open"
    assert found.text.endswith("2 of 3 seeds; for one more seed: repro run toy-recurrence --scale small --seed 1")


def test_a_scale_at_which_a_claim_means_nothing_shows_that_the_machinery_works(toy):
    register(Claim(**DECLARED | {"means_at": ("small",)}))
    assert claim("toy-gain").verdict("smoke").verdict == "not run"
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    told = claim("toy-gain").verdict("smoke")
    assert told.verdict == "machinery works" and told.low < told.effect < told.high
    assert told.text == f"{told.effect:+.3g} [{told.low:+.3g}, {told.high:+.3g}]"


def test_a_claim_is_there_at_the_scales_that_plan_what_it_compares(toy):
    assert Claim(**DECLARED | {"where": lambda config: config.scale == "small"}).scales == ("small",)
    assert Claim(**DECLARED).scales == ("smoke", "small")


def test_members_of_a_family_share_their_error_step_by_step(toy):
    """Of three members at p = 0.001, 0.02 and 0.03 the first is held against three, the second against two."""
    def member(p):
        units = np.linspace(-1, 1, 9)
        scale = stats.t.isf(p / 2, 8) * stats.sem(units)  # so far below 0 that a t test gives p
        return lambda records: Measured([units - scale])

    def declare(name, p, family):
        return Claim(**DECLARED | {"id": name, "measure": member(p), "family": family})

    register(*(declare(f"toy-{family}-{p}", p, family) for family in ("one", "") for p in (0.02, 0.001, 0.03)))
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    assert {p: claim(f"toy--{p}").verdict().verdict for p in (0.001, 0.02, 0.03)} == {
        0.001: "reproduced", 0.02: "reproduced", 0.03: "reproduced"}
    assert {p: claim(f"toy-one-{p}").verdict().verdict for p in (0.001, 0.02, 0.03)} == {
        0.001: "reproduced", 0.02: "reproduced", 0.03: "reproduced"}, "0.001 <= 0.05/3, 0.02 <= 0.05/2, 0.03 <= 0.05"
    register(declare("toy-one-0.9", 0.9, "one"))
    assert {p: claim(f"toy-one-{p}").verdict().verdict for p in (0.001, 0.02, 0.03, 0.9)} == {
        0.001: "reproduced", 0.02: "inconclusive", 0.03: "inconclusive", 0.9: "inconclusive"}, "0.02 > 0.05 / 3"


def test_a_family_counts_the_members_that_have_runs(toy):
    """p = 0.02 needs 0.05 / 2 with one other member, and fails at 0.05 / 3. Members without seeds or without runs do
    not count; one without room does, since its interval may decide it."""
    def member(p):
        units = np.linspace(-1, 1, 9)
        scale = stats.t.isf(p / 2, 8) * stats.sem(units)
        return lambda records: Measured([units - scale])

    def declare(id, p, **changes):
        return Claim(**DECLARED | {"id": id, "measure": member(p), "family": "one"} | changes)

    nothing = Assay("nothing", lambda config: config.overlap == 0 and config.model == "baseline", lambda records: 0.0)
    closed = {"assay": nothing, "why_no_assay": ""}
    register(declare("toy-first", 0.02), declare("toy-second", 0.9))
    for config in toy.experiment.plan("smoke"):
        run(config, progress=False)
    assert claim("toy-first").verdict().verdict == "reproduced"
    register(declare("toy-few", 0.02, seeds=3, same_weights=False),
             declare("toy-missing", 0.02, where=lambda config: config.overlap == 5 and config.seed == 9))
    assert claim("toy-first").verdict().verdict == "reproduced"
    register(declare("toy-closed", 0.02, **closed))
    assert claim("toy-first").verdict().verdict == "inconclusive", "0.02 > 0.05 / 3"
    assert claim("toy-closed").verdict().reason == "no room"


def test_stretches_of_one_text_are_judged_in_blocks(toy):
    values = np.random.default_rng(0).normal(-1, 1, size=(1, 60))
    one = Claim(**DECLARED | {"unit": "stretch", "measure": lambda records: Measured(values)})
    found = one.judge([])
    assert (found.n_units, found.n_blocks) == (60, 8)
    assert columns(one, found)["seeds x units"] == "1 x 60 stretches in 8 blocks"
    assert found.low == pytest.approx(judge(blocks(values), "lower", seeds=1).low)
    assert Claim(**DECLARED | {"measure": lambda records: Measured(values)}).judge([]).n_blocks == 0, "books"

@pytest.fixture
def judged(toy):
    """Which records the claims were given."""
    return declare()


def test_a_claim_is_judged_when_all_its_runs_are_there(toy, judged):
    told = claim("toy-gain").verdict()
    assert told.verdict == "not run"
    assert told.text == "2 of 2 runs missing: repro run toy-recurrence --scale smoke"
    run(toy.experiment.plan("smoke")[1], progress=False)
    assert claim("toy-gain").verdict().text == (
        "1 of 2 runs missing: repro run toy-recurrence --scale smoke --set model=recurrent --set overlap=5")
    assert judged == []
    for seed in (0, 2):
        run(toy.experiment.plan("smoke", seeds=(seed,))[3], progress=False)
    told = claim("toy-gain").verdict()
    assert told.verdict == "reproduced"
    assert judged == [[("baseline", 5, 0), ("recurrent", 5, 0)]]


def test_a_claim_knows_the_line_that_declares_it():
    one = Claim(**DECLARED)
    lines = Path(__file__).read_text().splitlines()
    file, line = one.declared_at
    assert file == Path(__file__) and lines[line - 1].strip() == "one = Claim(**DECLARED)"


def test_claims_are_counted_at_the_largest_scale_at_which_they_were_judged(toy, judged):
    for scale in ("smoke", "smoke", "small"):
        for index in (1, 3):
            run(toy.experiment.plan(scale)[index], progress=False)
        told = tally(claims())
    assert claim("toy-gain").verdict("small").verdict == "reproduced" and told == {"reproduced": 1, "not run": 1}
    assert list(told) == list(tally(claims()[::-1])) == ["reproduced", "not run"]
    assert tally([claim("toy-cost")]) == {"not run": 1} and tally([]) == {}


def test_an_artifact_has_the_worst_verdict_of_the_claims_about_it(toy, judged):
    register(Claim(**DECLARED | {"id": "toy-loss", "direction": "higher", "about": ("toy-table1",)}))
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    assert overall(artifact("toy-table1"), "smoke").verdict == "not reproduced"


@pytest.mark.parametrize(("number", "told"), [(-0.0123, "-1.23%"), (5e-5, "+0.01%"), (4.94e-5, "+0.005%"),
                                              (-4.5e-6, "-0.0004%"), (0.0, "0.00%")])
def test_a_small_share_is_not_told_as_none(number, told):
    assert Claim(**DECLARED | {"relative": True}).write(number) == told


def test_runs_of_one_seed_on_different_machines_are_told():
    def made(seed, device, cpu="AMD EPYC"):
        return SimpleNamespace(seed=seed, environment={"device": device, "cpu": cpu})

    alike = [made(0, "cpu"), made(0, "cpu"), made(1, "NVIDIA H200", "Intel Xeon"), made(1, "NVIDIA H200")]
    assert mixed(alike) == mixed([]) == ""
    assert mixed([*alike, made(0, "NVIDIA H200")]) == "mixed hardware (seed 0 on AMD EPYC and NVIDIA H200)"
    assert mixed([*alike, made(1, "cpu"), made(0, "NVIDIA H200")]) == \
        "mixed hardware (seed 0, 1 on AMD EPYC and NVIDIA H200)"
    two = [*alike, made(1, "cpu"), made(0, "cpu", "Intel Xeon"), made(2, "cpu")]
    assert mixed(two) == \
        "mixed hardware (seed 0 on AMD EPYC and Intel Xeon; seed 1 on AMD EPYC and NVIDIA H200)"
    assert mixed([*two, made(2, "NVIDIA H200"), made(0, "A100")]) == (
        "mixed hardware (seed 0 on A100 and AMD EPYC and Intel Xeon; seed 1, 2 on AMD EPYC and NVIDIA H200)")


def test_runs_that_are_compared_across_machines_alone_are_a_caution():
    def made(seed, device):
        return SimpleNamespace(seed=seed, environment={"device": device, "cpu": "AMD EPYC"})

    apart = [made(5, "cpu"), made(5, "NVIDIA H100"), made(6, "cpu"), made(6, "NVIDIA H100")]
    assert mixed(apart) == "caution: compared across hardware (seed 5, 6 on AMD EPYC and NVIDIA H100)"
    assert mixed([*apart, made(6, "cpu")]).startswith("mixed hardware")
    assert mixed([*apart, made(7, "cpu"), made(7, "cpu")]).startswith("mixed hardware")
    assert mixed([made(5, "cpu"), made(6, "NVIDIA H100")]) == "", "nothing is compared within a seed"


def test_a_verdict_tells_what_its_records_mix(toy, judged, monkeypatch):
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    module = sys.modules[Claim.__module__]
    monkeypatch.setattr(module, "mixed", lambda records: f"mixed {len(records)}")
    monkeypatch.setattr(module, "_verdicts", {})
    found = claim("toy-gain").verdict("smoke")
    assert found.because[-1] == "mixed 2" and found.text.endswith("; mixed 2")
    run(toy.experiment.plan("smoke")[0], progress=False)
    assay = Assay("the baseline", lambda config: config == toy.experiment.plan("smoke")[0], lambda records: 1.0)
    of_assay = Claim(**DECLARED | {"id": "toy-assay", "why_no_assay": "", "assay": assay})
    assert of_assay.verdict("smoke").because[-1] == "mixed 2", "the runs of its assay do not enter the effect"


def test_what_was_looked_up_is_not_changed_by_who_asked(toy, judged):
    run(toy.experiment.plan("smoke")[1], progress=False)
    one = claim("toy-gain")
    with caching():
        one.records("smoke").clear()
        assert one.records(scale="smoke") == one.records("smoke") != []


def test_a_number_that_a_seed_has_once_is_judged_by_seeds():
    one = Claim(**DECLARED | {"unit": "seed", "same_weights": False,
                              "measure": lambda records: Measured([[record.seed - 9.0] for record in records])})
    found = [one.judge([SimpleNamespace(seed=k) for k in range(n)]) for n in (1, 3)]
    assert [columns(one, each)["seeds x units"] for each in found] == ["1 seed", "3 seeds"]
    assert [each.verdict for each in found] == ["open", "reproduced"]
    assert found[1].effect == -8 and found[1].high == pytest.approx(-8 + 4.302653 / 3**0.5)
