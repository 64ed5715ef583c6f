"""Runs in forks of this process, which imports once: each is killed after some CPU time, or at a change of a file."""

import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path

from writes import written

from repro.errors import ReproError
from repro.study import run
from repro.study.settings import RunConfig

PATIENCE = 900.0  # seconds after which a run that nobody killed counts as stuck


class Fork:
    """A started run. `status`: 0, 2 for an error in one line, 1 for a traceback, -9 for a kill; None before its end."""

    def __init__(self, pid: int, log: Path, pipe: int):
        self.pid, self.log, self.pipe = pid, log, pipe  # the pipe closes when the process ends
        self.status, self.seconds = None, 0.0

    def wait(self) -> int:
        """Wait for its end; returns the status and notes the seconds of CPU time that it took."""
        if not select.select([self.pipe], [], [], PATIENCE)[0]:
            os.kill(self.pid, signal.SIGKILL)
        _, status, used = os.wait4(self.pid, 0)
        os.close(self.pipe)
        self.status, self.seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        return self.status

    def kill(self, after: float) -> int:
        """Send SIGKILL as soon as it has had this many seconds of CPU time; returns the status."""
        clock = (~self.pid << 3) | 2  # Linux: the CPU time of another process
        while (left := after - time.clock_gettime(clock)) > 0:
            if select.select([self.pipe], [], [], max(left, 0.001))[0]:
                return self.wait()  # it ended by itself
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    @property
    def said(self) -> str:
        """What it printed."""
        return self.log.read_text().strip()

    def left(self, name: str) -> list[str]:
        """What it wrote down at its end: the "files" that it changed, one entry a change, or its "modules"."""
        return self.log.with_suffix(f".{name}").read_text().splitlines()


def start(config: RunConfig, folder: Path, log: Path, work: str = "work", force: bool = False, at: int = 0) -> Fork:
    """Run `config` in a fork, with its results and its `work` in `folder`. at: kill it before this change of a file."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return Fork(pid, log, ours)
    status = 1
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ |= {"REPRO_WORK": str(folder / work), "REPRO_HOME": str(folder / "home")}
        changed = _changes(at)
        run(config, folder / "results", progress=False, force=force)
        for name, lines in (("files", changed), ("modules", list(sys.modules))):
            log.with_suffix(f".{name}").write_text("\n".join(lines))
        status = 0
    except ReproError as error:
        print(f"repro: error: {error}")
        status = 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _changes(at: int) -> list[str]:
    """The files that this process changes from now on, one entry a change; SIGKILL before number `at`."""
    changed: list[str] = []

    def hook(event: str, values: tuple) -> None:
        if path := written(event, values):
            changed.append(path)
            if len(changed) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return changed
