"""Processes of one torchrun; two of them together, with DDP and FSDP2, are in
tests/training/test_distributed.py.
"""

import types

import pytest

from repro import processes
from repro.errors import ReproError


def test_a_process_alone_is_the_first_and_waits_for_nobody(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert (processes.count(), processes.is_first(), processes.first(lambda: 7)) == (1, True, 7)
    processes.join()
    processes.leave()


def test_only_rank_0_is_the_first(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        assert (processes.count(), processes.is_first()) == (3, rank == 0)


def test_a_process_that_does_not_find_the_others_stops(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.PartialState", lambda **how: types.SimpleNamespace(num_processes=1))
    for meet in (processes.join, lambda: processes.first(lambda: 7)):
        with pytest.raises(ReproError, match="one of 2 processes .* found 1"):
            meet()
