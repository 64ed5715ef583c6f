"""Which of several trade-offs nothing else beats."""

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, by rising cost, of the (cost, loss) points that no other point beats.

    A point is beaten by one that costs at most as much and loses at most as much, and is not equal to it.

    >>> pareto_front([(1, 9.0), (2, 8.0), (2, 8.5), (3, 8.2), (4, 7.0)])
    [0, 1, 4]
    """
    return sorted((k for k, (cost, loss) in enumerate(points) if not any(
        other[0] <= cost and other[1] <= loss and tuple(other) != (cost, loss) for other in points)),
        key=lambda k: points[k])
