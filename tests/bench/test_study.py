"""The benchmark of `repro list`: what it lists, not how fast it is."""

from repro.bench import read, study
from repro.study import Record, Store


def test_copies_are_whole_records_of_their_own_and_as_many_as_asked_for(tmp_path):
    committed = study.multiply(tmp_path / "few")
    assert study.multiply(tmp_path / "many", committed + 5) == committed + 5
    paths = list((tmp_path / "many").rglob("*.json"))
    assert len({Record.read(path).id for path in paths}) == len(paths) == committed + 5
    charlm = Store(tmp_path / "many").find("charlm-ablation", "small")
    assert {record.seed for record in charlm} >= {5, 6}


def test_the_report_holds_seconds_beside_their_bounds(tmp_path, monkeypatch):
    asked = []
    seconds = {"few": 0.5, "many": 3.0}
    monkeypatch.setattr(study, "listing", lambda store, _: asked.append(store.name) or seconds[store.name])
    found = study.main(tmp_path / "study.json", many=1_600, rounds=2)
    assert asked == ["few", *["few", "many"] * 2], "the first call compiles"
    assert read(tmp_path / "study.json") == found
    ratio = found["ratios"]["seconds for 1,600 records"]
    assert (ratio["measured"], ratio["wanted"], ratio["bound"]) == (3.0, 4, "at most")


def test_listing_runs_the_command_line(tmp_path):
    study.multiply(tmp_path)
    assert 0.1 < study.listing(tmp_path, tmp_path / "compiled") < 60
    assert list((tmp_path / "compiled").rglob("cli.*.pyc"))
