"""A process that is killed at a certain change of a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

HOOK = """
import os, signal, sys
seen = []
def hook(name, values):
    if name == {event!r}:
        seen.append(name)
        if len(seen) == {number}:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_kill(folder: Path, code: str, event: str, number: int = 1) -> set[str]:
    """What is in the folder after `code` was killed right before the n-th audited `event` since `watch()`."""
    code = f"{HOOK.format(event=event, number=number)}watch = lambda: sys.addaudithook(hook)\n{code}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return set(os.listdir(folder))
