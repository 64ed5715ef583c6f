"""What records took, added up."""

import json
from dataclasses import asdict

import pytest

from repro.pages import costs
from repro.pages.costs import hours
from repro.study import Record, Store, run


@pytest.fixture
def stored(toy, tmp_path):
    """A store with a record of two experiments each, of which the first took 2 cores 90 minutes and was resumed."""
    store = Store(tmp_path / "results")
    for one, wall, threads, resumed in ((toy.base, 5_400, 2, True), (toy.experiment, 1_800, 1, False)):
        parts = asdict(run(one.plan("small")[0], store.folder, progress=False))
        parts["cost"] |= {"wall_seconds": wall, "resumed": resumed, "peak_memory_bytes": int(1e9 * threads)}
        parts["environment"] |= {"threads": threads, "processes": 1, "device": "cpu"}
        for path in (store.folder / "small" / parts["experiment"]).glob("*.json"):
            path.unlink()
        del parts["digest"], parts["schema"]
        store.put(Record.sealed(**parts))
    return store


def test_hours_are_of_all_cores_and_the_first_row_is_of_all_records(stored, toy):
    told = costs(stored.folder).set_index("experiment")
    assert list(told.index) == ["–", toy.base.name, toy.experiment.name]  # the longest first
    assert list(told["hours"]) == ["3.5", "3.0", "0.50"]
    assert list(told["runs"]) == ["2", "1", "1"] and list(told["resumed"]) == ["1", "1", "0"]
    assert list(told["most memory, GB"]) == ["2.0", "2.0", "1.0"]
    assert list(told["scale"]) == ["–", "small", "small"]


def test_a_gpu_counts_once_whatever_threads_feed_it(stored, toy):
    record, = stored.find(toy.base.name, "small")
    parts = json.loads(json.dumps(asdict(record)))
    parts["environment"] |= {"device": "a GPU", "processes": 2}
    assert hours(Record(**parts)) == pytest.approx(3.0)  # 90 minutes of two of them, with 2 threads each


def test_without_records_there_is_one_row_of_nothing(tmp_path):
    told, = costs(tmp_path).to_dict("records")
    assert (told["paper"], told["runs"], told["hours"], told["most memory, GB"]) == ("all", "0", "0.00", "0.0")
