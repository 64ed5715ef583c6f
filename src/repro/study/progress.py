"""Progress bars with the time left: a bar in a terminal, an updated line in a notebook, a line per minute in a log."""

import sys
import time
from collections.abc import Callable
from typing import Any

from repro.book import in_notebook
from repro.processes import is_first


class TimeIsUp(Exception):
    """Stops a run at a step because its time is up. Training writes a checkpoint first; an evaluation writes none."""


class Progress:
    """Bars of one command; `progress(total, description, unit)` opens one. Use it in a `with` statement.

    until: called at every step; if it returns True, the time is up and the step raises TimeIsUp.
    """

    def __init__(self, show: bool = True, until: Callable[[], bool] | None = None):
        self.until = until
        show = show and is_first()
        self.display: Any = None
        if show and in_notebook():
            self.display = _Notebook()
        elif show:
            self.display = _terminal() if sys.stderr.isatty() else _Log()

    def __call__(self, total: float, description: str, unit: str = "") -> "Bar":
        return Bar(self.display, total, description, unit, self.until)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.display:
            self.display.stop()


class Bar:
    """One bar. `advance(n, **info)` moves it by `n` units and shows `info`, such as loss=3.2, next to it.

    The first step starts the clock and does not count toward the speed, because it may be slow or part of an earlier
    run.
    """

    def __init__(self, display: Any, total: float, description: str, unit: str,
                 until: Callable[[], bool] | None = None):
        self.until = until
        self.display, self.total, self.description, self.unit = display, total, description, unit
        self.done, self.first, self.started = 0.0, 0.0, 0.0
        if display:
            display.start()
            self.task = display.add_task(description, total=total, info="")

    @property
    def time_is_up(self) -> bool:
        """Whether the next `advance` raises TimeIsUp, so that a checkpoint should be written now."""
        return self.until is not None and self.until()

    def advance(self, n: float = 1, **info: Any) -> None:
        """Move by `n` units. Raises TimeIsUp when the run's time is up."""
        if self.done == 0:
            self.first, self.started = n, time.monotonic()
        self.done += n
        if self.display:
            rate = (self.done - self.first) / max(time.monotonic() - self.started, 1e-9)
            shown = [f"{rate:,.0f} {self.unit}/s"] if self.unit and rate else []
            shown += [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                      for key, value in info.items()]
            self.display.update(self.task, advance=n, info=" · ".join(shown))
        if self.time_is_up:
            raise TimeIsUp

    def close(self) -> None:
        """Remove the bar."""
        if self.display:
            self.display.remove_task(self.task)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _terminal() -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn("left"), progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[info]}"), console=Console(stderr=True), transient=True)


class _Log:
    """The part of rich's interface that Bar uses, writing a line to stderr every `every` seconds."""

    every = 60.0

    def __init__(self) -> None:
        self.bars: dict[int, list] = {}  # task -> [description, total, done, after the first step, started]
        self.shown_at = time.monotonic()

    def start(self) -> None:
        """Nothing to prepare."""

    def stop(self) -> None:
        """Nothing to remove."""

    def write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def add_task(self, description: str, total: float, info: str) -> int:
        task = len(self.bars)
        self.bars[task] = [description, total, 0.0, 0.0, 0.0]
        return task

    def update(self, task: int, advance: float, info: str) -> None:
        bar = self.bars[task]
        now = time.monotonic()
        if bar[2] == 0:
            bar[3:] = advance, now
        bar[2] += advance
        if now - self.shown_at > self.every:
            self.shown_at = now
            description, total, done, first, started = bar
            left = f", {(now - started) * (total - done) / (done - first):,.0f} s left" if done > first else ""
            self.write(" · ".join(filter(None, [f"{description} {done / max(total, 1e-9):.0%}{left}", info])))

    def remove_task(self, task: int) -> None:
        """Does nothing: lines already written stay."""


class _Notebook(_Log):
    """One line in the output of a cell, updated in place and cleared when the work is done."""

    every = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = None
        self.shown_at = 0.0  # so that the first line is written immediately

    def start(self) -> None:
        from IPython.display import display

        self.handle = self.handle or display(_Line(""), display_id=True)

    def stop(self) -> None:
        if self.handle:
            self.write("")

    def write(self, line: str) -> None:
        self.handle.update(_Line(line))

    def remove_task(self, task: int) -> None:
        self.write("")


class _Line(str):
    def __repr__(self) -> str:
        return str(self)
