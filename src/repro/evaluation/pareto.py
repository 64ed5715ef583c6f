"""Which of several trade-offs nothing else beats."""

from collections.abc import Iterable, Mapping, Sequence

from repro.evaluation.inputs import numbers


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, by rising cost, of the (cost, loss) points that no other point beats.

    A point is beaten by one that costs at most as much and loses at most as much, and is not equal to it.
    Raises ReproError for points that are no pairs of numbers (nan is none).

    >>> pareto_front([(1, 9.0), (2, 8.0), (2, 8.5), (3, 8.2), (4, 7.0)])
    [0, 1, 4]
    """
    points = list(points) if isinstance(points, Iterable) and not isinstance(points, Mapping) else [points]
    if points:
        numbers(points, "points", (None, 2), finite=False)
    return sorted((k for k, (cost, loss) in enumerate(points) if not any(
        other[0] <= cost and other[1] <= loss and tuple(other) != (cost, loss) for other in points)),
        key=lambda k: points[k])
