"""A curve that grows in a notebook while a model trains."""

import os
import time
from collections.abc import Mapping

from repro.book import in_notebook
from repro.plotting.curves import paint, points_of
from repro.plotting.style import Drawing, canvas, house, named


class LiveCurve:
    """One figure that is redrawn while `train` runs and stays, finished, as the output of its cell.

        with LiveCurve(bounds={"one window": 2.9}) as live:
            train(objective, sequences, settings, progress=live.line("recurrent"))

    labels: of the axes. bounds: name -> height of horizontal lines. look_for: what to see in the figure, the beginning
    of its caption. every: training steps averaged into one point. refresh: seconds between redraws. The figure is drawn
    only once, at the end, outside a notebook, with REPRO_QUIET set, and when nbval runs the notebook. After the `with`
    statement, `.figure` is the figure and `.curves` the points.

    >>> with LiveCurve(bounds={"best possible": 2.0}, every=1) as live:
    ...     live.line("model").advance(8, loss=2.5)
    >>> live.curves
    {'model': [[8.0, 2.5]]}
    """

    def __init__(self, labels: tuple[str, str] = ("tokens", "nats per token"),
                 bounds: Mapping[str, float] | None = None, title: str = "", every: int = 10, refresh: float = 1.5,
                 look_for: str = ""):
        self.labels, self.bounds, self.title = labels, dict(bounds or {}), title
        self.every, self.refresh, self.look_for = every, refresh, look_for
        self.curves: dict[str, list[list[float]]] = {}
        self.handle, self.drawn_at = None, time.monotonic()
        self.quiet = "REPRO_QUIET" in os.environ or "PYTEST_VERSION" in os.environ  # nbval's kernels inherit it

    def line(self, name: str) -> "Line":
        """A new curve, with the `advance` that the trainer calls at every step. Raises ReproError for a name in use."""
        named([*self.curves.items(), *self.bounds.items(), (name, [])])
        self.curves[name] = []
        return Line(self, self.curves[name])

    @property
    def figure(self) -> Drawing:
        """The figure in its current state."""
        with house():
            names = ", ".join([*self.curves, *self.bounds])
            figure, axis = canvas(3.2, alt=f"{self.labels[1]} against {self.labels[0]}: {names}.")
            figure.values = points_of(self.curves, self.labels, self.bounds)
            paint(axis, self.curves, self.labels, self.bounds)
            axis.set_title(self.title)
        return figure.look_for(self.look_for) if self.look_for else figure

    def draw(self, finished: bool = False) -> None:
        """Show the figure in the notebook, if there is one and a redraw is due."""
        if not finished and (self.quiet or time.monotonic() - self.drawn_at < self.refresh):
            return
        if in_notebook():
            if self.handle is None:
                from IPython.display import display

                self.handle = display(self.figure, display_id=True)
            else:
                self.handle.update(self.figure)
        self.drawn_at = time.monotonic()

    def __enter__(self) -> "LiveCurve":
        return self

    def __exit__(self, *error: object) -> None:
        self.draw(finished=True)


class Line:
    """One curve of a LiveCurve: `advance(n, loss=...)` moves it n tokens forward."""

    def __init__(self, live: LiveCurve, points: list[list[float]]):
        self.live, self.points, self.at, self.recent = live, points, 0.0, []

    def advance(self, n: float = 1, **info: float) -> None:
        """Move by `n` on the horizontal axis; a `loss` is averaged into the next point of the curve."""
        self.at += n
        if "loss" in info:
            self.recent.append(info["loss"])
        if len(self.recent) >= self.live.every:
            self.points.append([self.at, sum(self.recent) / len(self.recent)])
            self.recent.clear()
            self.live.draw()
