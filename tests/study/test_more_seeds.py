"""Records of more seeds than were planned, of all runs of a claim or of one: no claim may break by them."""

from dataclasses import replace
from pathlib import Path

import pytest

from repro.study import claims
from repro.study.cache import caching

RESULTS = Path(__file__).parents[2] / "results"


def more(record, seed=99):
    return replace(record, seed=seed, config=record.config | {"seed": seed})


@pytest.fixture(scope="module")
def found():
    """By claim the configs that it needs at `small` with their records; of claims that have all of them."""
    with caching():
        known = {one: one.records("small", RESULTS) for one in claims() if "small" in one.scales}
    return {one: rows for one, rows in known.items() if all(records for _, records in rows)}


@pytest.mark.parametrize("which", ["all", "ends"])
def test_a_claim_is_judged_whatever_seeds_are_there(found, which):
    assert len(found) > 50
    for one, rows in found.items():
        chosen = {"all": range(len(rows)), "ends": [0, len(rows) - 1]}[which]
        rows = [(config, [*records, more(records[0])] if k in chosen else records)
                for k, (config, records) in enumerate(rows)]
        judged = [records for config, records in rows if one.where(config)]
        common = set.intersection(*({record.seed for record in records} for records in judged))
        assert which != "all" or 99 in common
        positive = [record for config, records in rows if one.assay and one.assay.where(config) for record in records]
        assert one.judge([record for records in judged for record in records if record.seed in common],
                         positive).text, one.id
