"""`repro run`, killed with SIGKILL at several moments and started again, ends in the record of an undisturbed run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "repro.cli", "run", "pretrain-gpt2-mini", "--set", "tokens=20480", "--set",
       "validate_every=4096", "--set", "n_embd=16"]
DEADLINE = 300


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "REPRO_WORK": str(folder / "work"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def finish(folder: Path) -> dict:
    subprocess.run([*RUN, "--results", str(folder / "results")], env=environment(folder), check=True,
                   capture_output=True, timeout=DEADLINE)
    (path,) = (folder / "results").rglob("*.json")
    return json.loads(path.read_text())


def kill_when(folder: Path, seen) -> None:
    """Start the run and kill it as soon as `seen()`; it must not have ended by itself before."""
    process = subprocess.Popen([*RUN, "--results", str(folder / "results")], env=environment(folder),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    while not seen():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() - started < DEADLINE
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def undisturbed(folder) -> dict:
    return finish(folder)


@pytest.fixture
def killed(undisturbed, folder, tmp_path) -> Path:
    """Where the same run is killed: on the same machine, so with the same path of float32 products, which is chosen by
    measuring and kept in a work folder (where there is more than one)."""
    (tmp_path / "work").mkdir()
    if (chosen := folder / "work/float32.json").exists():
        shutil.copy(chosen, tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize("moment", ["work/runs/*.lock", "work/runs/*/checkpoint.pt",
                                    "work/runs/*/.model.*.unfinished"])
def test_a_killed_run_ends_in_the_same_record(undisturbed, killed, moment):
    kill_when(killed, lambda: any(path.exists() for path in killed.glob(moment)))
    assert not list((killed / "results").rglob("*.json")), "killed too late to show anything"
    again = finish(killed)
    assert again["digest"] == undisturbed["digest"]
    assert again["metrics"] == undisturbed["metrics"] and again["curves"] == undisturbed["curves"]
    assert again["cost"]["resumed"] is (moment != "work/runs/*.lock")  # before the lock's folder there is nothing yet
