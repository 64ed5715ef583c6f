"""Two processes under torchrun do what one process does with the same batches."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("two_processes.py")
KINDS = ["plain", "named", "recurrent", "recomputed", "truncated", "muon", "continued"]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of the two processes left, in order of rank."""
    folder = tmp_path_factory.mktemp("two")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                           SCRIPT, folder], env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"process{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone():
    """The same script's training in this process only."""
    spec = importlib.util.spec_from_file_location("two_processes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {kind: module.trained("recurrent" if kind == "continued" else kind) for kind in KINDS}


def test_two_processes_ran(processes):
    assert [left["process"][:2] for left in processes] == [(0, 2), (1, 2)]
    assert processes[0]["process"][2] != processes[1]["process"][2]


def test_what_the_first_makes_or_raises_all_have(processes):
    assert [left["told"] for left in processes] == 2 * [processes[0]["process"][2]]
    assert all(left["raised"] and left["parted"] for left in processes)


@pytest.mark.parametrize("kind", KINDS)
def test_each_process_reads_its_half_of_every_batch(processes, alone, kind):
    steps = 3 if kind == "continued" else 8
    expected = alone[kind]["read"][-steps:]
    assert [batch.shape for batch in expected] == [(4, 13)] * steps
    for rank, left in enumerate(processes):
        assert len(left[kind]["read"]) == steps
        for mine, whole in zip(left[kind]["read"], expected, strict=True):
            assert torch.equal(mine, whole[2 * rank:2 * rank + 2])


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_those_of_one_process(processes, alone, kind):
    assert not torch.equal(alone["plain"]["weights"]["model.transformer.wte.weight"],
                           alone["recurrent"]["weights"]["model.transformer.wte.weight"])
    for name, expected in alone[kind]["weights"].items():
        first, second = (left[kind]["weights"][name] for left in processes)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, expected, rtol=1e-6, atol=1e-6 * expected.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
def test_the_curves_are_those_of_one_process(processes, alone, kind):
    expected = alone[kind]["result"]
    assert (expected["steps"], expected["tokens"]) == (8, 384)
    for left in processes:
        found = left[kind]["result"]
        assert (found["steps"], found["tokens"], found["stopped_early"]) == (8, 384, False)
        for curve, points in expected["curves"].items():
            assert [tokens for tokens, _ in found["curves"][curve]] == [192, 384]
            assert [y for _, y in found["curves"][curve]] == pytest.approx([y for _, y in points], rel=1e-7)
        assert found["best"] == pytest.approx(expected["best"], rel=1e-7)


def test_a_process_that_does_not_see_the_checkpoint_stops(processes):
    assert "apart" not in processes[0]
    assert "the first process continues after step 8, but this one after step 0" in processes[1]["apart"]


def test_a_batch_that_does_not_divide_is_refused_by_both(processes):
    for left in processes:
        assert "batch of 3 examples does not divide among 2 processes" in left["refused"]
