"""One bad input at a time, watched: what it prints, how long it computes, how much memory it takes, where it writes."""

import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner
from writes import written

from repro import cli
from repro.errors import ReproError

SECONDS, BYTES = 2.0, 1_000_000_000  # CPU time and memory that one bad input may take
LONGEST = 1_200  # characters of a line that still counts as clear
PATIENCE = 20.0  # seconds of CPU time after which a case is stopped
_written: list[str] = []


class TooSlow(BaseException):
    """Raised in a case that computes for longer than PATIENCE."""


def _hook(event: str, values: tuple) -> None:
    if path := written(event, values):
        _written.append(path)


@dataclass(frozen=True)
class Case:
    """A bad input: its part of the campaign, a name, and what reads it. `calm`: it may be accepted without a word, as
    a flipped bit in a text can be; it only must not end in anything but one line."""

    part: str
    name: str
    read: Callable[[], str | None]  # what was printed on stderr, or it raises; None: nothing to check
    calm: bool = False


@dataclass(frozen=True)
class Seen:
    """What happened: the fault in words ("" if there is none), the line, and the costs."""

    case: Case
    fault: str
    line: str
    seconds: float
    bytes: int


class Accepted(Exception):
    """Raised where bad input passes as good."""


def command(*words: str) -> str:
    """What `repro WORDS` prints on stderr when it refuses; raises for anything but that."""
    done = CliRunner().invoke(cli.main, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == 0:
        raise Accepted(f"exit code 0 and: {done.stdout[:200]!r}")
    if done.exit_code != 2 or done.stdout:
        raise RuntimeError(f"exit code {done.exit_code} and on stdout: {done.stdout[:200]!r}")
    return done.stderr


def watch(case: Case, allowed: Iterable[Path]) -> Seen:
    """Run a case with the limits of the campaign. allowed: the folders that it may write to."""
    _written.clear()
    cpu, peak = time.process_time(), _peak()
    line, fault = "", ""
    try:
        with _stopped_after(PATIENCE):
            try:
                line = case.read() or ""
                fault = "" if line or case.calm else "accepted"
            except ReproError as error:
                line = f"{error}\n"
    except Accepted as error:
        fault = "" if case.calm else f"accepted: {error}"
    except TooSlow:
        fault = f"still computing after {PATIENCE:.0f} s"
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"
    seconds, taken = time.process_time() - cpu, max(0, _peak() - peak)
    strange = [path for path in _written if not any(Path(path).is_relative_to(one) for one in allowed)]
    if not fault and len(line.splitlines()) > 1:
        fault = f"{len(line.splitlines())} lines"
    elif not fault and len(line) > LONGEST:
        fault = f"a line of {len(line):,} characters"
    elif not fault and seconds > SECONDS:
        fault = f"{seconds:.1f} s of CPU time"
    elif not fault and taken > BYTES:
        fault = f"{taken / 1e9:.1f} GB"
    if strange and not fault:
        fault = f"it writes {strange[0]}"
    return Seen(case, fault, line.strip(), seconds, taken)


@contextmanager
def _stopped_after(seconds: float):
    def stop(*_):
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


sys.addaudithook(_hook)
