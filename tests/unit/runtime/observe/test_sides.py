"""A saving compares batches of one size, whatever batches fell on either side."""

from collections import deque

import numpy as np
import pytest

from perseus_ds.runtime.accounting import Sample, Side, Total, at_one_size

RANDOM = np.random.default_rng(5)


def side(sizes: list[float], *, energy: float, time: float = 1.0) -> Side:
    """Two ranks; time grows a little slower than the batch, energy in proportion."""
    ranks = []
    for _ in range(2):
        samples = deque(
            Sample(i, 1, time * (0.1 + 0.9 * size), energy * size * RANDOM.normal(1.0, 0.002), size)
            for i, size in enumerate(sizes)
        )
        ranks.append(Total(len(sizes), samples))
    found = Side.of(ranks)
    assert found is not None
    return found


def test_larger_batches_on_one_side_do_not_look_like_a_loss() -> None:
    baseline = side([0.8, 1.0, 1.2] * 4, energy=1000.0)
    planned = side([1.0, 1.2, 1.4] * 8, energy=800.0, time=1.01)
    raw = [one.measured() for one in (baseline, planned)]
    assert raw[1].energy_j / raw[0].energy_j > 0.9
    before, after = (one.measured() for one in at_one_size([baseline, planned]))
    assert after.energy_j / before.energy_j == pytest.approx(0.8, abs=0.005)
    assert after.iteration_time_s / before.iteration_time_s == pytest.approx(1.01, abs=0.005)


def test_batches_of_one_size_and_untold_ones_are_left_as_they_are() -> None:
    for sizes in ([1.0] * 6, [0.0] * 6):
        sides = [side(sizes, energy=1000.0), side(sizes, energy=800.0)]
        assert at_one_size(sides) == sides


def test_both_sides_are_brought_to_the_mean_of_all_sizes() -> None:
    """Sizes 1 and 3, four samples each: both sides stand at 2, where time and energy are twice those of 1."""

    def of(size: float, energy_j: float) -> Side:
        samples = deque(
            Sample(i, 1, n * 1.0, n * energy_j, n) for i, n in enumerate([0.9 * size, 1.1 * size] * 2)
        )
        found = Side.of([Total(4, samples)])
        assert found is not None
        return found

    before, after = (side.measured() for side in at_one_size([of(1.0, 100.0), of(3.0, 80.0)]))
    assert (before.iteration_time_s, after.iteration_time_s) == pytest.approx((2.0, 2.0))
    assert (before.energy_j, after.energy_j) == pytest.approx((200.0, 160.0))


def test_a_job_takes_as_long_as_the_replica_with_the_longest_batch() -> None:
    """Both sides train as much in all, but where the plan runs one replica has most of it."""
    random = np.random.default_rng(3)

    def of(share: float, time: float) -> Side:
        ranks: list[list[Sample]] = [[], []]
        for i in range(12):
            whole, uneven = random.uniform(1.8, 2.2), share * random.uniform(0.95, 1.05)
            sizes = whole * uneven, whole * (1.0 - uneven)
            for row, size in zip(ranks, sizes, strict=True):
                row.append(Sample(i, 1, time * max(sizes), 100.0 * size, size))
        found = Side.of([Total(12, deque(row)) for row in ranks])
        assert found is not None
        return found

    raw = [of(0.55, 1.0), of(0.7, 1.01)]
    assert raw[1].measured().iteration_time_s / raw[0].measured().iteration_time_s > 1.2
    before, after = (one.measured() for one in at_one_size(raw))
    assert after.iteration_time_s / before.iteration_time_s == pytest.approx(1.01, abs=0.005)
    assert after.energy_j / before.energy_j == pytest.approx(1.0, abs=0.02)


def test_ranks_that_joined_short_iterations_differently_are_held_against_each_other_where_both_begin() -> (
    None
):
    """Rank 0 joins three at a time; rank 1 joined four once and three then: they begin together twice."""
    thirds = deque(Sample(first, 3, 1.0, 100.0) for first in (0, 3, 6, 20, 23))
    others = deque(Sample(first, count, 1.1, 50.0) for first, count in ((0, 4), (4, 3), (7, 3), (20, 3)))
    found = Side.of([Total(15, thirds), Total(13, others)])
    assert found is not None
    measured = found.measured()
    assert (measured.iteration_time_s, measured.energy_j, measured.iterations) == (1.1, 150.0, 13)
    assert len(found.time_s) == 2
    assert Side.of([Total(15, thirds), Total()]) is None
