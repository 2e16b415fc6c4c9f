"""Points of a profile on their curves: errors shrink to what is left of them, and what is no error stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.profile import Point, Profile, smoothed
from perseus_ds.schedule import Kind

CLOCKS_MHZ = tuple(range(1410, 690, -45))
KEYS = [(stage, kind) for stage in range(4) for kind in (Kind.FORWARD, Kind.BACKWARD)]
SHARE = 0.006
"""Standard error of a mean duration, as a share of it."""


def true_s(clock_mhz: int, capped_mhz: int = 1410) -> float:
    """A twentieth does not follow the clock; above ``capped_mhz`` a power cap holds it."""
    return 0.4 * (0.05 + 0.95 * 1410 / min(clock_mhz, capped_mhz))


def true_w(clock_mhz: int) -> float:
    return 80.0 + 300.0 * (clock_mhz / 1410) ** 2.4


def drawn(seed: int, *, share: float = SHARE, capped_mhz: int = 1410) -> Profile:
    """What a profile of twelve executions at each clock says: powers are known much better than durations."""
    draw = np.random.default_rng(seed)

    def point(clock_mhz: int) -> Point:
        time_s = true_s(clock_mhz, capped_mhz) * (1.0 + share * draw.standard_normal())
        power_w = true_w(clock_mhz) * (1.0 + 0.2 * share * draw.standard_normal())
        energy_j, both = time_s * power_w, share * (1.0 + 0.2**2) ** 0.5
        return Point(clock_mhz, time_s, energy_j, share * time_s, both * energy_j, 12)

    return Profile({key: tuple(map(point, CLOCKS_MHZ)) for key in KEYS}, blocking_power_w=80.0)


def off(profile: Profile, capped_mhz: int = 1410) -> np.ndarray:
    """By what share durations are off.

    Shape: [computations, clocks].
    """
    truth_s = np.array([true_s(clock_mhz, capped_mhz) for clock_mhz in CLOCKS_MHZ])
    return np.array([[one.time_s for one in profile.of(*key)] for key in KEYS]) / truth_s - 1.0


@pytest.mark.thorough
def test_errors_of_single_clocks_are_averaged_out_and_those_that_are_left_are_stated() -> None:
    ratio = []
    for seed in range(10):
        raw = drawn(seed)
        found = smoothed(raw)
        assert off(found).std() < 0.5 * off(raw).std()
        ratio.append(off(found) / [[one.time_se_s / one.time_s for one in found.of(*key)] for key in KEYS])
    assert 0.6 < np.std(ratio) < 1.15, "stages that are alike state a little more than is left"


def test_energies_go_with_their_durations() -> None:
    """What lasts less by chance took less energy by the same chance."""
    raw = drawn(3)
    found = smoothed(raw)
    truth_j = np.array([true_s(clock_mhz) * true_w(clock_mhz) for clock_mhz in CLOCKS_MHZ])

    def wrong(profile: Profile) -> float:
        joules = np.array([[one.energy_j for one in profile.of(*key)] for key in KEYS])
        return float((joules / truth_j - 1.0).std())

    assert wrong(found) < 0.5 * wrong(raw)
    first = found.of(0, Kind.FORWARD)[0]
    assert 0.0 < first.energy_se_j < raw.of(0, Kind.FORWARD)[0].energy_se_j


def test_a_kink_that_is_larger_than_errors_stays() -> None:
    """Above 1230 MHz a power cap holds the clock, and lower clocks cost time at once."""
    raw = drawn(5, share=0.0005, capped_mhz=1230)
    assert np.abs(off(smoothed(raw), 1230)).max() < 0.002


@pytest.mark.parametrize("clocks", [1, 2])
def test_what_two_clocks_say_is_taken_as_it_is(clocks: int) -> None:
    raw = drawn(7)
    few = replace(raw, points={key: own[:clocks] for key, own in raw.points.items()})
    for key in KEYS:
        for one, other in zip(few.of(*key), smoothed(few).of(*key), strict=True):
            assert (other.time_s, other.energy_j) == pytest.approx((one.time_s, one.energy_j))
            assert other.time_se_s == pytest.approx(one.time_se_s, rel=1e-3)


def test_points_that_state_no_errors_are_taken_as_they_are() -> None:
    raw = drawn(9)
    sure = {key: tuple(replace(one, time_se_s=0.0) for one in own) for key, own in raw.points.items()}
    assert smoothed(replace(raw, points=sure)).points == sure
