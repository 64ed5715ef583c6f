"""The records that lie in the repository: each has kept its id, its digest and its place in the study."""

import json
from pathlib import Path

from repro.study import Store, artifacts, claims, experiments, plan
from repro.study.cache import caching
from repro.study.record import Record

RESULTS = Path(__file__).parents[2] / "results"
KNOWN = json.loads((Path(__file__).parent / "committed.json").read_text())  # id -> [place, digest]


def test_every_known_record_has_its_id_and_digest():
    found = {path.stem: [f"{path.parts[-3]}/{path.parts[-2]}", Record.read(path).digest]
             for path in RESULTS.glob("*/*/*.json")}
    assert {id: found.get(id) for id in KNOWN} == KNOWN
    assert set(found) == set(KNOWN), "a record was added: name it in committed.json"


def test_every_known_record_is_found_by_its_config():
    """By its id where the corpora are at hand, by its settings elsewhere."""
    found = set()
    with caching():
        for scale in {place.split("/")[0] for place, _ in KNOWN.values()}:
            for config in plan.every_run(scale):
                found |= {record.id for record in Store.for_scale(scale, RESULTS).seeds(config)}
    assert set(KNOWN) - found == set()


def test_no_two_papers_declare_an_experiment_of_one_name():
    names = [one.name for one in experiments()]
    assert len(set(names)) == len(names) > 0


def test_no_artifact_is_called_as_a_claim_is():
    """`repro show ID` shows either."""
    assert not {one.id for one in artifacts()} & {one.id for one in claims()}
