"""A training killed with SIGKILL and started again ends in the same bits."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

STEPS = 17
MUON = {"optimizer": "muon", "precision": "bf16"}
# name: (seconds between checkpoints, where each start is killed, steps left for the last start, other settings); a
# validation, which also writes a checkpoint, is due every 5 steps.
SCENARIOS = {
    "undisturbed": (0, [None], 17),
    "at the start": (0, ["start", None], 17),
    "in the first step": (0, ["step:1", None], 17),
    "before a step": (0, ["step:9", None], 9),  # 8 steps are saved
    "between step and checkpoint": (0, ["stepped:9", None], 9),
    "while the first checkpoint is half written": (0, ["write:1", None], 17),
    "while a checkpoint is half written": (0, ["write:12", None], 6),
    "before a checkpoint is put in place": (0, ["replace:12", None], 6),
    "after a checkpoint is put in place": (0, ["replaced:12", None], 5),
    "while validating": (0, ["validate:2", None], 8),  # in step 10
    "before the last checkpoint": (0, ["replace:17", None], 1),
    "after the last checkpoint": (0, ["replaced:17", None], 0),
    "again and again": (0, ["step:4", "write:3", "start", "replaced:6", "stepped:2", None], 5),  # 3, 5, 5, 11, 12
    "with checkpoints at validations only": (3600, ["step:9", "stepped:8", None], 7),  # 5, 10
    "without any checkpoint yet": (3600, ["stepped:5", None], 17),
    "undisturbed with Muon": (0, [None], 17, MUON),
    "between the steps of Muon and AdamW": (0, ["stepped:17", None], 9, MUON),  # in step 9
    "with Muon again and again": (0, ["step:4", "stepped:4", "replaced:6", None], 7, MUON),  # 3, 4, 10
    "with Muon and checkpoints at validations only": (3600, ["step:9", "stepped:15", None], 7, MUON),  # 5, 10
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def ended(base):
    plan = {name: (*scenario[:2], settings(name)) for name, scenario in SCENARIOS.items()}
    done = subprocess.run([sys.executable, Path(__file__).with_name("resumable.py"), "plan", base, json.dumps(plan)],
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def settings(name):
    return {} if len(SCENARIOS[name]) == 3 else SCENARIOS[name][3]


def numbers(outcome):
    return {name: value for name, value in outcome.items() if name != "forwards"}


def test_the_undisturbed_training_is_a_real_one(ended):
    result = ended["undisturbed"]["outcome"]["result"]
    assert (result["steps"], result["tokens"]) == (17, 272)
    assert [tokens for tokens, _ in result["curves"]["validation_loss"]] == [80, 160, 240, 272]
    assert len({loss for _, loss in result["curves"]["train_loss"]}) == 4
    assert ended["undisturbed with Muon"]["outcome"]["weights"] != ended["undisturbed"]["outcome"]["weights"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_and_continued_it_ends_in_the_same_bits(ended, name):
    points, left = SCENARIOS[name][1:3]
    undisturbed = "undisturbed with Muon" if settings(name) else "undisturbed"
    assert ended[name]["ends"] == [-signal.SIGKILL] * (len(points) - 1) + [0]
    outcome = ended[name]["outcome"]
    assert numbers(outcome) == numbers(ended[undisturbed]["outcome"])
    assert outcome["forwards"] == left  # it went on from the last checkpoint, not from the beginning


@pytest.mark.parametrize("name", ["while a checkpoint is half written", "before a checkpoint is put in place"])
def test_an_unfinished_file_is_never_taken_for_a_checkpoint(base, ended, name):
    assert ended[name]["outcome"] is not None
    leftovers = {path.name for path in (base / name).iterdir()} - {"checkpoint.pt", "outcome.json"}
    assert all(leftover.startswith(".checkpoint.pt.") for leftover in leftovers)


def test_killed_from_outside_at_any_moment(ended, tmp_path):
    """The same with a fresh interpreter each time and a signal that comes when it comes."""
    command = [sys.executable, Path(__file__).with_name("resumable.py"), "train", tmp_path]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}

    with subprocess.Popen(command, **pipes) as at_once:
        at_once.kill()
    assert at_once.returncode == -signal.SIGKILL

    with subprocess.Popen(command, **pipes) as on_the_way:
        deadline = threading.Timer(600, on_the_way.kill)  # then the next line is empty and the test fails
        deadline.start()
        on_the_way.stdin.write("\n" * 4)  # five steps, and no sixth before more is written
        on_the_way.stdin.flush()
        told = [on_the_way.stdout.readline() for _ in range(5)]
        on_the_way.stdin.write("\n" * 6)  # up to six more, of which some happen
        on_the_way.stdin.flush()
        on_the_way.kill()
        deadline.cancel()
    assert told == ["step\n"] * 5
    assert on_the_way.returncode == -signal.SIGKILL

    last = subprocess.run(command, input="\n" * STEPS, capture_output=True, text=True, env=environment, timeout=900)
    assert last.returncode == 0, last.stderr
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert numbers(outcome) == numbers(ended["undisturbed"]["outcome"])
    assert STEPS - 11 <= outcome["forwards"] <= STEPS - 5
