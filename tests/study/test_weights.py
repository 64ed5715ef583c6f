"""Weights beside their record: found on a fresh clone and without their text, and refused when they are not whole."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from repro import paths
from repro.errors import ReproError
from repro.study import Estimate, Experiment, Outcome, Run, Store, kept_model, model_folder, register, run, run_id
from repro.study.weights import keep


def weights_file(content: bytes) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    return len(header).to_bytes(8, "little") + header + content


def write_model(folder, width, noise=0.0):
    folder.mkdir(parents=True, exist_ok=True)
    files = {"model.safetensors": weights_file(bytes(range(width)) + str(noise).encode()),
             "tokenizer.json": json.dumps({"ids": width}).encode(), "config.json": b'{"n": 1}'}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {"model": hashlib.sha256(files["model.safetensors"]).hexdigest(),
            "tokeniser": hashlib.sha256(files["tokenizer.json"]).hexdigest()}


@pytest.fixture
def study(toy):
    """The toy study with a base whose weights are kept, at `small`, and what needs it."""
    def make(config, context):
        toy.executed.append(config)
        notes = write_model(context.folder / "model", config.width, toy.noise)
        return Outcome({"loss": 3.0 + toy.noise}, {"loss": "nats"}, "base", notes=notes)

    def use(config, context):
        toy.executed.append(config)
        _, folder = context.need(toy.kept.plan("small")[0])
        return Outcome({"n": len((folder / "model" / "tokenizer.json").read_bytes())}, {"n": "bytes"}, "user")

    cost = Estimate(1, 1, 1.0, 1, 1.0)
    toy.kept = Experiment(name="toy-kept", paper="toy2020", summary="Kept.", config=toy.base.config, execute=make,
                          scales={"small": {"corpus": "toy-books"}}, estimate=lambda c: cost)
    toy.user = Experiment(name="toy-user", paper="toy2020", summary="Needs it.", config=toy.experiment.config,
                          execute=use, scales={"small": {"corpus": "toy-text"}}, estimate=lambda c: cost,
                          needs=lambda c: toy.kept.plan("small"))
    register(toy.kept, toy.user)
    return toy


@pytest.fixture
def clone(study):
    """A fresh clone: the record and what lies beside it, and an empty work folder. Its config, record and folder."""
    config, = study.kept.plan("small")
    record = run(config, progress=False)
    shutil.rmtree(paths.work())
    study.executed.clear()
    return config, record, paths.results("small") / "small" / "toy-kept" / record.id / "model"


def test_a_run_leaves_its_weights_beside_its_record(clone):
    config, record, folder = clone
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == record.notes["model"]
    assert [path.name for path in folder.parents[1].iterdir() if path.name.startswith(".")] == []
    assert [found.id for found in Store(paths.results("small")).find("toy-kept", "small")] == [record.id]


def test_what_is_no_part_of_a_model_is_not_read_with_it(clone):
    config, record, folder = clone
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ReproError, match="adapter_config.json, which does not belong to a stored model"):
        model_folder(config, progress=False)


def test_on_a_fresh_clone_nothing_is_trained_again(study, clone):
    config, record, folder = clone
    user, = study.user.plan("small")
    assert run(user, progress=False).needs == {record.id: record.digest}
    assert model_folder(config, progress=False) == kept_model(config) == folder
    assert [one.experiment for one in study.executed] == ["toy-user"]


def test_without_its_text_a_model_is_found_and_used(study, clone):
    config, record, folder = clone
    user, = study.user.plan("small")
    with_text = run_id(user)
    study.absent.add("toy-books")
    assert Run(config).data_at_hand and run_id(config) == record.id
    assert Run(user).data_at_hand and run_id(user) == with_text
    assert run(user, progress=False).needs == {record.id: record.digest}
    assert model_folder(config, progress=False) == kept_model(config) == folder
    assert run(config, progress=False) == record
    assert [one.experiment for one in study.executed] == ["toy-user"]
    shutil.rmtree(folder.parent)
    assert not Run(config).data_at_hand and not Run(user).data_at_hand
    with pytest.raises(ReproError, match="toy-books"):
        run_id(user)


def test_of_a_changed_text_the_model_is_another(study, clone):
    config, record, _ = clone
    study.texts["toy-books"] = "another book"
    assert kept_model(config) is None
    assert run(config, progress=False).id != record.id
    study.absent.add("toy-books")
    with pytest.raises(ReproError, match=f"{record.id}.*different data; delete one"):
        run_id(config)


def test_records_that_go_elsewhere_stand_on_the_same_weights(study, clone, tmp_path):
    config, record, folder = clone
    assert model_folder(config, tmp_path / "mine", progress=False) == folder
    assert Store(tmp_path / "mine").get(config) == record
    assert not study.executed


def test_a_record_of_another_result_does_not_take_these_weights(study, clone, tmp_path):
    config, record, folder = clone
    study.noise = 0.5
    other = run(config, tmp_path / "mine", progress=False)
    assert other.digest != record.digest
    again = model_folder(config, tmp_path / "mine", progress=False)
    assert hashlib.sha256((again / "model.safetensors").read_bytes()).hexdigest() == other.notes["model"]
    assert model_folder(config, progress=False) == folder


def test_weights_come_back_from_the_work_folder(study):
    config, = study.kept.plan("small")
    record = run(config, progress=False)
    store = Store(paths.results("small"))
    shutil.rmtree(store.path(record).with_suffix(""))
    store.path(record).unlink()
    model_folder(config, progress=False)
    assert store.kept(record) == store.path(record).with_suffix("")
    assert len(study.executed) == 1


def test_weights_alone_that_are_gone_are_made_again(study, clone):
    config, record, folder = clone
    shutil.rmtree(folder.parent)
    assert model_folder(config, progress=False).parts[-3] == "runs"
    assert kept_model(config) == folder
    assert len(study.executed) == 1


def test_forced_it_replaces_both(study, clone):
    config, record, folder = clone
    study.noise = 0.5
    again = run(config, progress=False, force=True)
    assert again.digest != record.digest
    assert kept_model(config) == folder
    assert model_folder(config, progress=False).parent == paths.work() / "runs" / record.id, "the same run left it"
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == again.notes["model"]


def test_a_run_that_does_not_tell_of_its_weights_keeps_none(toy):
    base = run(toy.base.plan("small")[0], progress=False)
    assert kept_model(toy.base.plan("small")[0]) is None
    assert [path.name for path in (paths.results("small") / "small" / "toy-base").iterdir()] == [f"{base.id}.json"]


DAMAGE = {
    "weights cut off": ("model.safetensors", lambda old: old[:-1], "is truncated: it has 80 of 81 bytes"),
    "header cut off": ("model.safetensors", lambda old: old[:20], "is truncated: it ends within its header"),
    "empty weights": ("model.safetensors", lambda old: b"", "is truncated: it ends within its header"),
    "other weights": ("model.safetensors", lambda old: old[:-1] + b"x", "is another file: its sha256"),
    "other tokeniser": ("tokenizer.json", lambda old: b'{"ids": 9}', "belongs to another model: its sha256"),
    "tokeniser cut off": ("tokenizer.json", lambda old: old[:-1], "is truncated: it is not a complete JSON file"),
    "config cut off": ("config.json", lambda old: old[:-1], "is truncated"),
    "no config": ("config.json", None, "has no config.json"),
    "no tokeniser": ("tokenizer.json", None, "has no tokenizer.json"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_whole_is_refused_before_any_use(study, clone, damage):
    config, record, folder = clone
    name, change, told = DAMAGE[damage]
    if change:
        (folder / name).write_bytes(change((folder / name).read_bytes()))
    else:
        (folder / name).unlink()
    for use in (lambda: kept_model(config), lambda: model_folder(config, progress=False),
                lambda: run(study.user.plan("small")[0], progress=False)):
        with pytest.raises(ReproError, match=told) as raised:
            use()
        assert "\n" not in str(raised.value) and str(folder) in str(raised.value)
    assert not study.executed


def test_weights_that_are_not_the_records_are_not_laid_beside_it(clone, tmp_path):
    config, record, folder = clone
    before = (folder / "model.safetensors").read_bytes()
    write_model(tmp_path / "other", 5)
    with pytest.raises(ReproError, match="is another file"):
        keep(record, Store(paths.results("small")).path(record), tmp_path / "other")
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.parents[1].iterdir())) == 2


class Killed(BaseException):
    """A kill: nothing of ours handles it."""


@pytest.mark.parametrize("moment", ["before the old ones are moved", "between them", "before the old ones are deleted"])
def test_a_kill_while_weights_are_replaced_loses_none(clone, tmp_path, monkeypatch, moment):
    config, record, folder = clone
    path = Store(paths.results("small")).path(record)
    shutil.copytree(folder, tmp_path / "again")
    rename, rmtree = Path.rename, shutil.rmtree
    names = {"before the old ones are moved": record.id, "between them": f".{record.id}.unfinished"}

    def moved(self, target):
        if self.name == names.get(moment):
            raise Killed
        return rename(self, target)

    def deleted(which, **options):
        if moment == "before the old ones are deleted" and which.name == f".{record.id}.before" and which.exists():
            raise Killed
        rmtree(which, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", moved)
        patched.setattr(shutil, "rmtree", deleted)
        with pytest.raises(Killed):
            keep(record, path, tmp_path / "again")
    assert kept_model(config) == folder and (folder / "model.safetensors").exists()
    keep(record, path, tmp_path / "again")
    assert kept_model(config) == folder
    assert {path.name for path in folder.parents[1].iterdir()} == {record.id, f"{record.id}.json"}
