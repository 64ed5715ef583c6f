"""Five phases against other ways to read as many characters: what differs between them, and how they are judged."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest

from repro.papers.longformer2020.charlm import decoder_config, phase_length, phase_settings, training_tokens
from repro.papers.longformer2020.charlm_phases import FIVE, ONE, RATES, WIDEST, updates, way
from repro.study import artifact, claim, claims, experiment

SCALES = ["smoke", "small"]


def ways(scale):
    return {way(config): config for config in experiment("charlm-phases").plan(scale)}


def patterns(config):
    return [decoder_config(config, 2, phase).patterns for phase in range(len(config.steps))]


@pytest.mark.parametrize("scale", SCALES)
def test_every_way_reads_as_many_characters(scale):
    found = ways(scale)
    assert list(found) == [FIVE, ONE, RATES, WIDEST]
    read = {name: training_tokens(config) for name, config in found.items()}
    step = {name: config.batch_sizes[-1] * phase_length(config, -1 % len(config.steps)) if name != FIVE else 0
            for name, config in found.items()}
    for name in (RATES, WIDEST):  # phase by phase, to within a step
        assert all(0 <= theirs - ours < step[name] for ours, theirs in zip(read[FIVE], read[name], strict=True))
    assert read[ONE] == [sum(read[RATES])]
    if scale == "small":
        assert len({sum(characters) for characters in read.values()}) == 1


@pytest.mark.parametrize("scale", SCALES)
def test_the_ways_differ_in_what_they_say(scale):
    found = ways(scale)
    five, rates, widest = patterns(found[FIVE]), patterns(found[RATES]), patterns(found[WIDEST])
    assert all(later[-1][-1].window == 2 * earlier[-1][-1].window for earlier, later in pairwise(five))
    assert set(rates) == set(patterns(found[ONE])) == {five[0]} and set(widest) == {five[-1]}
    lengths = {name: [phase_length(config, phase) for phase in range(len(config.steps))]
               for name, config in found.items()}
    assert set(lengths[RATES]) == set(lengths[ONE]) == {lengths[FIVE][0]}
    assert set(lengths[WIDEST]) == {lengths[FIVE][-1]} and len(set(lengths[FIVE])) == 5
    paid = {name: [phase_settings(config, phase).learning_rate for phase in range(len(config.steps))]
            for name, config in found.items()}
    assert paid[FIVE] == paid[RATES] == paid[WIDEST] == [paid[ONE][0] / 2**phase for phase in range(5)]
    own = {"windows", "length", "steps", "batch_sizes", "doubling"}
    assert len({config.model_copy(update=dict.fromkeys(own)).model_dump_json(warnings=False)
                for config in found.values()}) == 1
    assert [way(config.settings()) for config in found.values()] == list(found)


def record(name, seed, loss):
    config = ways("small")[name]
    nll = [10 * math.log(2) * (hard + loss) for hard in (1.0, 2.0, 4.0)]
    documents = dict.fromkeys(("validation", "test"), {"nll": nll, "n_characters": [10] * 3})
    return SimpleNamespace(id=f"{name}-{seed}", seed=seed, config=config.settings(), metrics={}, documents=documents)


def records(**losses):
    names = {"five": FIVE, "one": ONE, "rates": RATES, "widest": WIDEST}
    return [record(names[name], seed, loss + seed / 100) for name, loss in losses.items() for seed in range(3)]


@pytest.mark.parametrize(("rates", "verdict"), [(2.0, "reproduced"), (1.8, "not testable here")])
def test_growth_counts_only_beyond_lower_rates(rates, verdict):
    one = claim("longformer2020-later-phases")
    found = one.judge(records(five=1.8, one=2.1, rates=rates))
    assert found.verdict == verdict and found.effect == pytest.approx(-0.3)
    assert found.control == pytest.approx(rates - 2.1)


def test_the_claim_is_judged_by_the_ways_that_it_names():
    one = claim("longformer2020-later-phases")
    assert [way(config) for config in one.plan("small") if one.where(config)] == [FIVE, ONE, RATES]
    assert one.assay is None and one.seeds == 3


def test_no_claim_compares_ways_that_take_unlike_numbers_of_updates():
    """For as many characters growth takes four times the updates of the last phase's sequences from the start."""
    assert updates("small") == {FIVE: 2_920, ONE: 4_275, RATES: 4_275, WIDEST: 760}
    judged = [one for one in claims() if one.experiment == "charlm-phases"]
    assert not any(way(config) == WIDEST for one in judged for config in one.plan("small") if one.where(config))


def test_the_table_tells_how_each_way_trains(tmp_path):
    table = artifact("longformer2020-phases").render("small", also=(), results=tmp_path).table.set_index("way")
    assert table["widest window"].to_dict() == {FIVE: "32 to 512", ONE: "32", RATES: "32", WIDEST: "512"}
    assert table["sequences"].to_dict() == {FIVE: "128 to 1,440", ONE: "128", RATES: "128", WIDEST: "1,440"}
    assert table["steps"].to_dict() == {FIVE: "2,920", ONE: "4,275", RATES: "4,275", WIDEST: "760"}
    assert set(table["characters"]) == {"4,377,600"} and set(table["dev"]) == {"not run"}
    assert list(table["five phases minus this"]) == ["–", *["not run"] * 3]


def test_all_runs_at_small_that_table_4_does_not_have_take_about_two_core_hours():
    """Three seeds of each, but of the details one by one, which no claim is about, one."""
    chosen = experiment("charlm-choices").plan("small")
    every = 3 * experiment("charlm-phases").plan("small") + [
        one for one in chosen for _ in range(1 if len(one.details) == 1 else 3)]
    assert len(every) == 27
    assert 2 * 3600 < sum(experiment(one.experiment).estimate(one).seconds for one in every) < 3 * 3600
