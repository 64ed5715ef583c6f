"""The Pareto front of several trade-offs."""

from collections.abc import Sequence

from repro.errors import is_series
from repro.evaluation.inputs import numbers


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, by increasing cost, of the (cost, loss) points that no other point beats.

    A point is beaten by another that has at most its cost and at most its loss, and is not equal to it.
    Raises ReproError for points that are not pairs of numbers (NaN is not a number).

    >>> pareto_front([(1, 9.0), (2, 8.0), (2, 8.5), (3, 8.2), (4, 7.0)])
    [0, 1, 4]
    """
    points = list(points) if is_series(points) else [points]
    if points:
        numbers(points, "points", (None, 2), finite=False)
    return sorted((k for k, (cost, loss) in enumerate(points) if not any(
        other[0] <= cost and other[1] <= loss and tuple(other) != (cost, loss) for other in points)),
        key=lambda k: points[k])
