"""Durations that never fall with the clock, where errors allow it."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.profile import Point, Profile, smoothed
from perseus_ds.profile.curves import isotonic_fit, monotone
from perseus_ds.schedule import Kind

CLOCKS_MHZ = tuple(range(1410, 1110, -15))
SHARE = 0.005


def capped(seed: int, *, top: float = 1.0) -> Profile:
    """Clocks above 1290 MHz are not held and last alike; ``top`` the highest so much longer."""
    draw, points = np.random.default_rng(seed), {}
    for key in [(stage, kind) for stage in range(2) for kind in (Kind.FORWARD, Kind.BACKWARD)]:
        times = np.array([0.1 * 1290 / min(mhz, 1290) for mhz in CLOCKS_MHZ])
        times[0] *= top
        times *= 1.0 + SHARE * draw.standard_normal(len(times))
        points[key] = tuple(
            Point(mhz, float(time_s), 300.0 * float(time_s), SHARE * float(time_s), 2 * SHARE * 30.0)
            for mhz, time_s in zip(CLOCKS_MHZ, times, strict=True)
        )
    return Profile(points, blocking_power_w=80.0)


def test_what_falls_is_pooled_by_its_weights_and_the_rest_stays() -> None:
    values, weights = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), np.array([1.0, 1.0, 1.0, 2.0, 1.0, 3.0])
    expected = [1.0, 2.25, 2.25, 2.25, 4.25, 4.25]
    np.testing.assert_allclose(isotonic_fit(values, weights), expected)
    both = isotonic_fit(np.column_stack([values, values[::-1]]), weights)
    np.testing.assert_allclose(both[:, 0], expected)
    assert np.all(np.diff(both, axis=0) >= 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_no_clock_seems_faster_than_the_highest_above_a_power_cap(seed: int) -> None:
    found = smoothed(capped(seed))
    for key in found.points:
        times_s = [point.time_s for point in found.of(*key)]
        assert times_s == sorted(times_s)
        assert times_s[0] == pytest.approx(0.1, rel=2 * SHARE)


def test_a_highest_clock_that_surely_is_slower_stays_so() -> None:
    """Nine standard errors of every point: some GPUs dither under their cap, and lose time by it."""
    slow = smoothed(capped(0, top=1.0 + 9.0 * SHARE))
    for key in slow.points:
        first, second = slow.of(*key)[:2]
        assert first.time_s > second.time_s


def test_what_is_surely_slower_is_told_by_the_errors() -> None:
    times_s, errors_s = np.array([1.02, 1.0, 1.1]), np.full(3, 0.01)
    np.testing.assert_allclose(monotone(times_s, errors_s), [1.01, 1.01, 1.1])
    np.testing.assert_array_equal(monotone(times_s, errors_s / 5.0), times_s)
