"""Whether goals are met, on made-up records."""

import math
import types

import pytest

from repro.papers.yoshida2020.perplexity.goals import BY_POSITION, TABLE_1, _gain, goals
from repro.study import experiment


def record(nll, seed=0, **config):
    """Of two documents of 100 words, with this loss per word, or with these gains of each document."""
    documents = {"test": {"nll": [100 * nll, 100 * nll], "n_words": [100, 100]}}
    if isinstance(nll, list):
        documents = {"validation": {"late_gain": nll}}
    return types.SimpleNamespace(documents=documents, seed=seed, config=config)


def made(disjoint, overlapped, late, scales=("small",)):
    """The table from losses of the baseline on disjoint windows and with the largest overlap, and from late gains."""
    def plan(scale, **fields):
        own = experiment(fields.pop("experiment")).plan(scale)
        return [one for one in own if all(getattr(one, key) == value for key, value in fields.items())]

    def records_of(config):
        if config.experiment == BY_POSITION:
            return late and [record(late, after=150, window=1024)]
        assert (config.experiment, config.model, config.train_overlap) == (TABLE_1, "baseline", None)
        loss = {0: disjoint, 50: overlapped, 5: overlapped}[config.overlap]
        return [record(loss + seed / 10, seed) for seed in (-1, 1)] if loss else []  # two seeds, whose mean counts

    return goals(types.SimpleNamespace(scales=scales, plan=plan, records_of=records_of,
                                       at_common_seeds=lambda some: [records_of(config) for config in some]))


@pytest.mark.parametrize(("disjoint", "overlapped", "late", "met"), [
    (math.log(249), math.log(249 * 0.95), [0.1, 0.2, 0.3], ["yes", "yes", "yes"]),
    (math.log(251), math.log(251 * 0.97), [0.1, -0.2, 0.1], ["no", "no", "no"]),
    (None, None, [], ["–", "–", "–"]), (math.log(249), None, [], ["yes", "–", "–"])])
def test_goals_at_small(disjoint, overlapped, late, met):
    table = made(disjoint, overlapped, late)
    assert list(table["met"]) == met
    assert list(table["scale"]) == ["small"] * 3


def test_a_gain_is_of_seeds_that_both_have():
    assert _gain([record(2.0), record(9.0, 1)], [record(1.9)])[0].startswith(f"{1 - math.exp(-0.1):+.1%} ")
    assert _gain([record(2.0)], [record(1.9, 1)]) == ("not run", None)


def test_what_was_found_is_told():
    found = list(made(math.log(200), math.log(190), [0.1, 0.1])["result"])
    assert found == ["200.0 [200.0, 200.0]", "+5.0% [+5.0%, +5.0%]",
                     "+0.100 [+0.100, +0.100]: positions 301 to 1024 against 151 to 300"]


def test_generated_text_has_no_goals():
    table = made(math.log(200), math.log(190), [0.1, 0.1], scales=("smoke", "small"))
    assert list(table["scale"]) == ["small"] * 3 + ["smoke"] * 3
    assert set(table["met"][3:]) == set(table["target"][3:]) == {"–"}
    assert list(table["met"][:3]) == ["yes"] * 3
