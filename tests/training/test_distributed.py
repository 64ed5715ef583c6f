"""Two processes under torchrun do what one process does with the same batches: with DDP in `train`, and with FSDP2."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT, SHARDS = (Path(__file__).with_name(name) for name in ("two_processes.py", "two_shards.py"))
KINDS = ["plain", "named", "recurrent", "recomputed", "truncated", "muon", "continued"]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of the two processes left, in order of rank."""
    return left_by_two(SCRIPT, tmp_path_factory.mktemp("two"))


def left_by_two(script, folder):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                           script, folder], env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"process{rank}.pt", weights_only=True) for rank in (0, 1)]


def imported(script):
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def alone():
    """The same script's training in this process only."""
    trained = imported(SCRIPT).trained
    return {kind: trained("recurrent" if kind == "continued" else kind) for kind in KINDS}


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


def test_split_by_fsdp_our_models_train_as_in_one_process(tmp_path):
    """In single precision; each process holds half of the weights, and of the gradients and moments with them."""
    script, halves = imported(SHARDS), left_by_two(SHARDS, tmp_path)
    for kind in script.KINDS:
        alone = script.trained(kind)
        start = script.objective(kind)[0].state_dict()
        assert max((alone["weights"][name] - weight).abs().max() for name, weight in start.items()) > 5e-3
        assert (alone["held"], alone["split"]) == (1, False)
        assert sum(left[kind]["held"] for left in halves) == pytest.approx(1)
        for left in halves:
            assert left[kind]["split"] and left[kind]["held"] == pytest.approx(0.5, abs=0.01)
            assert left[kind]["losses"] == pytest.approx(alone["losses"], rel=1e-6)
            assert left[kind]["weights"].keys() == alone["weights"].keys()
            for name, weight in alone["weights"].items():
                torch.testing.assert_close(left[kind]["weights"][name], weight, rtol=1e-5, atol=1e-6, msg=name)
