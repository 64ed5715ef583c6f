"""Records are believed only when they prove themselves."""

import errno
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict

import pytest

from repro.errors import ReproError
from repro.paths import write_atomic
from repro.study import Record, Store, run
from repro.study.settings import identify


@pytest.fixture
def stored(toy, tmp_path):
    """(config, store, path) of one finished run."""
    config, store = toy.base.plan("small")[0], Store(tmp_path / "results")
    return config, store, store.path(run(config, progress=False))


def test_a_record_reads_back_equal(stored):
    config, store, path = stored
    record = store.get(config)
    assert path == store.folder / "small" / "toy-base" / f"{record.id}.json"
    assert record == Record.read(path)
    assert record.metrics == {"loss": 3.0}
    assert record.data["name"] == "toy-books"
    assert store.get(config.model_copy(update={"seed": 1})) is None
    assert store.find("toy-base", "small") == [record]
    assert store.find("toy-base", "smoke") == []


def changed(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(("break_it", "words"), [
    (lambda path: changed(path, metrics={"loss": 2.0}), "its digest does not match its content"),
    (lambda path: changed(path, digest="0" * 64), "its digest does not match its content"),
        (lambda path: changed(path, schema=0), "record schema 0, this version reads 1"),
    (lambda path: changed(path, extra=1), "not a complete record"),
    (lambda path: changed(path, metrics={"loss": float("nan")}),
     "not a complete record (ValueError: Out of range float"),
    (lambda path: path.write_text(path.read_text().replace("3.0", "1e999")), "Out of range float"),
    (lambda path: path.write_text(path.read_text()[:-20]), "not a complete record (JSONDecodeError"),
    (lambda path: path.write_bytes(b"\xff\xfe"), "not a complete record (UnicodeDecodeError"),
    (lambda path: path.write_text("[]"), "not a complete record"),
    (lambda path: path.write_text(""), "not a complete record"),
])
def test_untrusted_records_are_refused_with_reason_and_remedy(stored, break_it, words):
    config, store, path = stored
    break_it(path)
    for read in (lambda: store.get(config), lambda: store.find("toy-base", "small")):
        with pytest.raises(ReproError) as error:
            read()
        line = str(error.value)
        assert words in line
        assert str(path) in line
        assert "run it again" in line
        assert "\n" not in line


def test_a_record_of_a_newer_schema_is_kept_and_told_apart(stored):
    config, store, path = stored
    changed(path, schema=2, more={"than": "this version knows"})
    with pytest.raises(ReproError, match="schema 2, .* reads up to 1. A newer version wrote it: update repro"):
        store.get(config)
    assert json.loads(path.read_text())["more"] == {"than": "this version knows"}
    with pytest.raises(ReproError, match="A newer version wrote it"):
        run(config, store.folder, progress=False, force=True)
    assert json.loads(path.read_text())["schema"] == 2


def test_a_record_is_parsed_once_and_again_when_its_file_changes(stored):
    config, store, path = stored
    assert store.get(config) is Record.read(path)
    changed(path, cost={"wall_seconds": 1})
    assert store.get(config).cost == {"wall_seconds": 1}


def test_a_record_under_the_id_of_another_config_is_refused(stored):
    config, store, path = stored
    parts = json.loads(path.read_text())
    parts.pop("schema"), parts.pop("digest")
    forged = Record.sealed(**parts | {"config": parts["config"] | {"width": 17}})
    forged.write(path)
    with pytest.raises(ReproError, match="has the id of another config"):
        store.get(config)


@pytest.mark.parametrize(("changes", "in_config", "words"), [
    ({"scale": "../../x"}, False, "scale is '../../x', in its config 'small'"),
    ({"scale": None}, False, "scale is None, in its config 'small'"),
    ({"seed": False}, False, "seed is False, in its config 0"),
    ({"experiment": "toy-other"}, False, "experiment is 'toy-other', in its config 'toy-base'"),
    ({"scale": "/srv/x"}, True, "scale is '/srv/x'; scales are smoke, small"),
    ({"experiment": "../x"}, True, "experiment is '../x', which is no name"),
    ({"experiment": ".."}, True, "experiment is '..', which is no name"),
    ({"seed": -1}, True, "seed is -1; a seed is a whole number of 0 or more")])
def test_a_record_whose_names_would_place_it_elsewhere_is_refused(stored, changes, in_config, words):
    _, _, path = stored
    parts = json.loads(path.read_text())
    parts.pop("schema"), parts.pop("digest")
    if in_config:
        changes = changes | {"config": parts["config"] | changes}
        changes["id"] = identify(changes["config"], parts["data"]["fingerprint"], parts["needs"])
    forged = Record.sealed(**parts | changes)  # its digest and its id are right
    elsewhere = path.with_name("record.json")
    elsewhere.write_text(json.dumps(asdict(forged)))
    with pytest.raises(ReproError) as error:
        Record.read(elsewhere)
    assert words in str(error.value)


def test_a_renamed_record_is_refused(stored):
    config, store, path = stored
    path.rename(path.with_name("0123456789abcdef.json"))
    with pytest.raises(ReproError, match="has the id of another config"):
        store.find("toy-base", "small")


def test_cost_may_change_but_nothing_else(stored):
    config, store, path = stored
    changed(path, cost={})
    assert store.get(config).cost == {}


def test_a_record_is_readable_where_its_data_is_absent(stored, toy):
    config, store, path = stored
    record = store.get(config)
    toy.absent.add("toy-books")
    assert store.get(config) == record
    assert store.get(config.model_copy(update={"width": 17})) is None


def test_a_record_of_other_data_is_not_taken(stored, toy):
    config, store, path = stored
    toy.texts["toy-books"] = "another edition"
    assert store.get(config) is None


def test_a_record_names_the_further_corpora_it_read(toy):
    config = toy.base.plan("smoke")[0]
    object.__setattr__(toy.base, "reads", lambda config: ("toy-text",))
    record = run(config, progress=False)
    assert record.data["reads"] == {"toy-text": toy.corpus("toy-text").fingerprint()}
    assert Store.for_scale("smoke").get(config) == record
    toy.texts["toy-text"] += "!"
    assert Store.for_scale("smoke").get(config) is None


def test_two_records_that_differ_in_data_are_not_guessed_between(stored, toy):
    config, store, path = stored
    toy.texts["toy-books"] = "another edition"
    run(config, progress=False)
    toy.absent.add("toy-books")
    with pytest.raises(ReproError, match="have one config but different data"):
        store.get(config)


def test_absent_base_data_does_not_hide_whose_data_is_known(toy, tmp_path):
    config, store = toy.experiment.plan("small")[0], Store(tmp_path / "results")
    record = run(config, progress=False)
    toy.absent.add("toy-books")
    assert store.get(config) == record
    toy.texts["toy-text"] = "another edition"
    assert store.get(config) is None


def test_a_record_built_on_another_result_is_stale(toy, tmp_path):
    store, (config, *_) = Store(tmp_path / "results"), toy.experiment.plan("small")
    record = run(config, store.folder, progress=False)
    base = store.get(toy.base.plan("small")[0])
    assert store.get(config) == record
    assert store.stale(record) == ""

    def resealed(record, **changes):
        parts = asdict(record) | changes
        return Record.sealed(**{name: part for name, part in parts.items() if name not in ("schema", "digest")})

    store.put(resealed(base, metrics={"loss": 4.0}))
    assert store.get(config) is None
    assert store.seeds(config) == []
    assert store.look(config) == record
    assert f"another result of toy-base {base.id} than the one that is here now" in store.stale(record)

    store.put(resealed(base, metrics={"loss": 4.0}, environment=base.environment | {"cpu": "of another machine"}))
    assert store.get(config) == record
    store.path(base).unlink()
    assert store.get(config) == record

    store.put(base)
    built = resealed(record, needs={record.id: record.digest})
    assert store.stale(built) == ""
    store.put(resealed(base, metrics={"loss": 4.0}))
    assert store.stale(built) == store.stale(record) != ""


def test_records_of_all_seeds(toy, tmp_path):
    config = toy.base.plan("small")[0]
    made = [run(config.model_copy(update={"seed": seed}), progress=False) for seed in (9, 2)]
    run(config.model_copy(update={"width": 99}), progress=False)
    assert Store(tmp_path / "results").seeds(config) == made[::-1]


def test_a_full_disk_leaves_the_old_record(stored, monkeypatch):
    config, store, path = stored
    record = store.get(config)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReproError, match="No space left on device"):
        store.put(record)
    assert store.get(config) == record
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_that_outgrows_the_disk_leaves_the_old_one(tmp_path):
    path = tmp_path / "record.json"
    write_atomic(path, "old")
    code = f"""
import resource, signal
from repro.errors import ReproError
from repro.paths import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
try:
    write_atomic({str(path)!r}, "x" * 5000)
except ReproError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert "File too large" in done.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
