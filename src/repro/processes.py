"""Coordination of the processes of one `torchrun`. A process started alone counts as the first and only one."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from repro.errors import ReproError

Made = TypeVar("Made")
PATIENCE = timedelta(days=7)  # the first process may have to wait for another command to make what this one needs


def count() -> int:
    """The number of processes, over all nodes."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_first() -> bool:
    """Whether this is the process that writes files, shows progress and prints."""
    return os.environ.get("RANK", "0") == "0"


def join(cpu: bool = False) -> None:
    """Connect to the other processes, over the GPUs if there are any (unless `cpu`); then "cuda" is `cuda:LOCAL_RANK`.

    Raises ReproError if this process does not find the others: each would silently train on its own.
    """
    if count() == 1:
        return
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=cpu or not torch.cuda.is_available(), timeout=PATIENCE)
    if state.num_processes != count():
        raise ReproError(f"this is one of {count()} processes (WORLD_SIZE), but it found {state.num_processes}; start "
                         "them with torchrun or accelerate launch.")


def first(make: Callable[[], Made]) -> Made:
    """The result of `make()` on the first process, or its exception, returned or raised in all processes: each must
    call this, and waits here."""
    if count() == 1:
        return make()
    from torch.distributed import broadcast_object_list

    join()
    outcome = [None, None]
    if is_first():
        try:
            outcome[0] = make()
        except Exception as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def leave() -> None:
    """Disconnect from the other processes; the last call before a process ends."""
    if "RANK" in os.environ:
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()
