"""The Pareto front by its definition."""

import random

from repro.evaluation import pareto_front


def test_by_hand():
    points = [(1, 5), (2, 5), (2, 3), (3, 4), (4, 1), (1, 6), (4, 1)]
    assert pareto_front(points) == [0, 2, 4, 6]  # equal points do not beat each other
    assert pareto_front([]) == []


def test_every_point_off_the_front_is_beaten_by_one_on_it_and_none_on_it_is():
    rng = random.Random(0)
    for _ in range(50):
        points = [(rng.randrange(8), rng.randrange(8)) for _ in range(rng.randrange(1, 12))]
        front = pareto_front(points)
        for k, (cost, loss) in enumerate(points):
            beaten = any((c < cost and x <= loss) or (c <= cost and x < loss) for c, x in points)
            assert beaten == (k not in front)
        assert [points[k] for k in front] == sorted(points[k] for k in front)
