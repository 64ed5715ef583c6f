"""The base models that there are: listed, checked, loaded without any text, and installed from a run's folder."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from repro import cli, paths
from repro.errors import ReproError
from repro.papers.base import base_model, base_models, gpt2_mini, roberta_mini
from repro.papers.base.models import check, install
from repro.study import Experiment, experiment, run
from repro.study.settings import as_text

SETTINGS = {"n_layer": 1, "n_embd": 16, "n_head": 2, "sequence": 32, "batch_size": 2, "tokens": 128, "warmup_steps": 1,
            "weights": "bf16", "vocab_size": 300, "growing": [], "n_positions": 64}


def plan(name, **changes):
    own = {"tokeniser": "bpe"} if name == "pretrain-gpt2-mini" else {}
    sets = {key: as_text(value) for key, value in (SETTINGS | own | changes).items()}
    return experiment(name).plan("smoke", sets)[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project with a base model of each kind, and one whose weights are not kept."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("models")
        patch.setenv("REPRO_HOME", str(folder))
        patch.setenv("REPRO_WORK", str(folder / "work"))
        for module in (gpt2_mini, roberta_mini):
            patch.setattr(module, "HELD_OUT", 100)
        records = [run(config, progress=False) for config in (
            plan("pretrain-gpt2-mini"), plan("pretrain-gpt2-mini", weights="fp32"), plan("pretrain-roberta-mini"))]
    return SimpleNamespace(folder=folder, records=records)


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """A copy of its records and weights, as in a fresh clone: an empty work folder."""
    shutil.copytree(trained.folder / "build", tmp_path / "build")
    for name, folder in (("HOME", "."), ("WORK", "work"), ("MODELS", "models")):
        monkeypatch.setenv(f"REPRO_{name}", str(tmp_path / folder))
    return SimpleNamespace(records=trained.records, folder=tmp_path / "build/results/smoke",
                           runs=trained.folder / "work/runs")


def call(line):
    done = CliRunner().invoke(cli.main, line)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_all_are_listed(here):
    kept, plain, masked = here.records
    found = {one.id: one for one in base_models()}
    assert found.keys() == {record.id for record in here.records}
    one = found[kept.id]
    assert (one.name, one.experiment, one.scale, one.corpus) == (
        "gpt2-mini", "pretrain-gpt2-mini", "smoke", "synthetic-books")
    assert (one.weights, one.tokens, one.state) == ("bf16", 128, "ok")
    assert (one.loss, one.unit) == (kept.metrics["validation_token_loss"], "nats per token")
    assert one.parameters == kept.metrics["parameters"]
    assert 2 * one.parameters < one.bytes < 2 * one.parameters + 5000
    assert (found[plain.id].weights, found[plain.id].bytes, found[plain.id].state) == ("fp32", None, "not kept")
    assert (found[masked.id].name, found[masked.id].unit) == ("roberta-mini", "bits per masked token")
    code, out, _ = call("models list")
    assert code == 0
    assert all(record.id in out for record in here.records)
    assert "not kept" in out
    assert max(map(len, out.splitlines())) <= 80
    assert json.loads(call("models list --json")[1])["base"] == [one.__dict__ for one in base_models()]
    assert base_models(here.folder / "nowhere") == []


def test_whole_ones_pass(here):
    assert sorted(one.state for one in check()) == ["not kept", "ok", "ok"]
    assert call("models check")[0] == 0
    assert [one["name"] for one in json.loads(call("models check roberta-mini --json")[1])["base"]] == ["roberta-mini"]


def change_config(**changes):
    def change(model):
        config = json.loads((model / "config.json").read_text())
        assert config.keys() >= changes.keys()
        (model / "config.json").write_text(json.dumps(config | changes))
    return change


@pytest.mark.parametrize(("damage", "told", "by"), [
    (lambda model: (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-9]),
     "is truncated", "list"),
    (lambda model: (model / "tokenizer.json").write_text("{}"), "belongs to another model", "list"),
    (change_config(n_head=4), "belongs to another model: its n_head is 4, that of record", "check"),
    (change_config(n_layer=2), "belongs to another model: its n_layer is 2", "check"),
    (change_config(vocab_size=301), "belongs to another model: its vocab_size is 301", "check")],
    ids=["weights", "tokeniser", "heads", "layers", "vocabulary"])
def test_what_is_wrong_is_told(here, damage, told, by):
    damage(here.folder / "pretrain-gpt2-mini" / here.records[0].id / "model")
    listed, checked = ({one.id: one.state for one in found} for found in (base_models(), check()))
    assert told in checked[here.records[0].id]
    assert (told in listed[here.records[0].id]) == (by == "list")
    assert checked[here.records[2].id] == "ok"
    code, out, err = call("models check")
    assert code == 2
    assert told in err and err.count("\n") == 1


def test_a_model_is_ready_to_be_used_without_its_text(here, monkeypatch):
    """As a chapter does: nothing is trained, and no file is written."""
    for name, config in (("gpt2-mini", plan("pretrain-gpt2-mini")), ("roberta-mini", plan("pretrain-roberta-mini"))):
        with monkeypatch.context() as patch:
            patch.setattr(Experiment, "plan", lambda self, scale, config=config: [config])
            model, coder = base_model(name, "smoke")
        ids = torch.tensor(coder.encode("near the curtain"))[None].long()
        with torch.no_grad():
            logits = model(ids).logits
        assert logits.shape == (*ids.shape, 300) and logits.isfinite().all()
    assert not paths.work().exists()


def test_what_is_not_kept_is_not_made(here):
    with pytest.raises(ReproError, match="no weights of gpt2-mini at smoke .* `repro run pretrain-gpt2-mini --scale"):
        base_model("gpt2-mini", "smoke")
    with pytest.raises(ReproError, match="unknown base model 'gpt2'. Did you mean 'gpt2-mini'?"):
        base_model("gpt2")


def test_a_folder_is_read_by_plain_transformers_alone(here):
    """In a process that has nothing of ours."""
    folder = here.folder / "pretrain-gpt2-mini" / here.records[0].id / "model"
    code = ("from transformers import AutoTokenizer, GPT2LMHeadModel, PreTrainedTokenizerFast\n"
            f"model = GPT2LMHeadModel.from_pretrained({str(folder)!r})\n"
            "readers = AutoTokenizer, PreTrainedTokenizerFast\n"
            f"ids = [one.from_pretrained({str(folder)!r}).encode('near the curtain') for one in readers]\n"
            "print(ids[0] == ids[1], max(ids[0]) < 300, sum(p.numel() for p in model.parameters()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
    assert done.stdout.split() == ["True", "True", f"{here.records[0].metrics['parameters']:.0f}"]


def test_a_run_from_elsewhere_is_installed(here, tmp_path):
    record = here.records[2]
    folder = here.runs / record.id
    code, out, _ = call(f"models install {folder} --results {tmp_path / 'mine'}")
    assert code == 0
    placed = tmp_path / "mine/smoke/pretrain-roberta-mini" / record.id / "model"
    assert str(placed) in out.replace("\n", "")
    assert sorted(os.listdir(placed)) == sorted(os.listdir(folder / "model"))
    assert [one.state for one in check(tmp_path / "mine")] == ["ok"]
    assert install(folder, tmp_path / "mine") == placed, "twice does no harm"
    with pytest.raises(ReproError, match="lists no stored weights"):
        install(here.runs / here.records[1].id, tmp_path / "mine")
    with pytest.raises(ReproError, match="cannot read .*record.json"):
        install(tmp_path, tmp_path / "mine")


@pytest.mark.parametrize(("change", "line"), [
    ({"num_hidden_layers": 10**9}, "num_hidden_layers 1,000,000,000, but model.safetensors holds"),
    ({"num_hidden_layers": 2}, "its n_layer is 2, that of record"), ([], "it must be a JSON object"),
    ({"model_type": "nope"}, "cannot be loaded with its settings"), (None, "is not here")])
def test_what_would_not_load_is_not_installed(here, tmp_path, change, line):
    folder = tmp_path / "run"
    shutil.copytree(here.runs / here.records[2].id, folder)
    config = folder / "model/config.json"
    if change is None:
        shutil.rmtree(folder / "model")
    else:
        config.write_text(json.dumps(json.loads(config.read_text()) | change if change else change))
    code, out, err = call(f"models install {folder} --results {tmp_path / 'mine'}")
    assert (code, out) == (2, "") and line in err and len(err.splitlines()) == 1
    assert not (tmp_path / "mine").exists()
