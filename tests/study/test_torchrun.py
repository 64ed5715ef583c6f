"""`torchrun --nproc_per_node 2 -m repro run …` makes the record that one process makes with the whole batch."""

import json
import os
import subprocess
import sys

import pytest
import torch

from repro.models import gpt2_mini, save_causal_lm
from repro.study import experiment, run
from repro.study.settings import as_text

SET = {"model": "recurrent", "overlap": 0, "hidden_size": 8, "windows_per_sequence": 3, "batch_size": 4,
       "epochs": 0.01, "validate_every": 3000, "validation_tokens": 1000,
       "learning_rate": None, "learning_rates": (1e-3, 4e-3), "selection_share": 0.5}  # two runs are needed first
SPY = """
import atexit, json, os, sys
renamed = []
sys.addaudithook(lambda event, told: renamed.append(str(told[1])) if event == "os.rename" else None)

@atexit.register
def tell():
    if "RANK" in os.environ:
        from accelerate import PartialState
        told = {"pid": os.getpid(), "processes": PartialState().num_processes, "renamed": renamed}
        with open(os.path.join(os.environ["SPY"], os.environ["RANK"]), "w") as file:
            json.dump(told, file)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("base") / "model"
    save_causal_lm(gpt2_mini(3, 16, 2, 205, 32), folder)
    return str(folder)


@pytest.fixture(scope="module")
def alone(base, tmp_path_factory):
    """The record that this process makes."""
    def make(**changes):
        folder = tmp_path_factory.mktemp("alone")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REPRO_WORK", str(folder / "work"))
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
            config, = experiment("finetune-gpt2").plan("smoke", {**SET, "base": base, **changes})
            return run(config, folder / "results", progress=False)
    return make


@pytest.fixture(scope="module")
def together(base, tmp_path_factory):
    """(what the command printed, the records, what each process told when it ended, its folder)."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "sitecustomize.py").write_text(SPY)
    words = ["run", "finetune-gpt2", "--results", str(folder / "results")]
    for key, value in {**SET, "base": base}.items():
        words += ["--set", f"{key}={as_text(value)}"]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "repro", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPY": str(folder),
             "REPRO_WORK": str(folder / "work"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in (folder / "results").rglob("*.json")]
    return done, records, [json.loads((folder / rank).read_text()) for rank in "01"], folder


def test_two_processes_ran_and_parted(together):
    done, records, told, _ = together
    assert [one["processes"] for one in told] == [2, 2]
    assert told[0]["pid"] != told[1]["pid"]
    assert [record["environment"]["processes"] for record in records] == 3 * [2]
    assert not [line for line in done.stderr.splitlines() if "tokens/s" not in line]  # progress is all it may tell
    assert done.stdout.count("validation token loss") == 1


def test_only_the_first_writes_runs_and_records(together):
    _, records, told, folder = together
    first, second = ([path for path in one["renamed"] if "/runs/" in path or "/results/" in path] for one in told)
    assert second == []
    for record in records:
        run_folder = folder / "work" / "runs" / record["id"]
        assert {str(run_folder / name) for name in ("checkpoint.pt", "model", "record.json")} <= set(first)
        assert str(folder / "results" / "smoke" / "finetune-gpt2" / f"{record['id']}.json") in first


def test_the_loss_is_that_of_one_process_with_twice_the_batch_of_each(together, alone):
    _, records, _, _ = together
    whole = alone()
    half = alone(batch_size=2, learning_rate=whole.notes["learning_rate"])
    found, = (record for record in records if record["id"] == whole.id)
    assert found["needs"].keys() == whole.needs.keys()
    assert found["notes"]["tokens"] == whole.notes["tokens"]
    assert found["metrics"] == pytest.approx(whole.metrics, rel=1e-4)
    for name, curve in whole.curves.items():
        assert found["curves"][name] == [pytest.approx(point, rel=1e-4) for point in curve]
    assert abs(half.metrics["validation_token_loss"] / whole.metrics["validation_token_loss"] - 1) > 1e-3
