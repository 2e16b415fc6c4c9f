"""What was measured again stands; the rest of its curve goes with it, with larger errors."""

from dataclasses import replace

import pytest

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.drift.renewal import renewed
from perseus_ds.schedule import Kind

FORWARD, BACKWARD = (0, Kind.FORWARD), (0, Kind.BACKWARD)
CLOCKS_MHZ = (1400, 1200, 1000, 800)


def point(clock_mhz: int, times: float = 1.0, joules: float = 1.0) -> Point:
    time_s = times * 1400.0 / clock_mhz
    return Point(clock_mhz, time_s, joules * 300.0, 0.001 * time_s, 0.3, 20, time_sd_s=0.01 * time_s)


PROFILE = Profile({key: tuple(map(point, CLOCKS_MHZ)) for key in (FORWARD, BACKWARD)}, blocking_power_w=80.0)


def test_only_what_was_measured_again_changes() -> None:
    new, ratios = renewed(PROFILE, {FORWARD: [point(1400, 1.03, 1.05)]})
    assert new.points[BACKWARD] == PROFILE.points[BACKWARD]
    assert new.of(*FORWARD)[0] == point(1400, 1.03, 1.05)
    assert list(ratios) == [FORWARD]
    assert (ratios[FORWARD].time, ratios[FORWARD].energy) == pytest.approx((1.03, 1.05))
    assert ratios[FORWARD].certain


def test_points_between_move_by_what_lies_between_and_those_beyond_as_the_last() -> None:
    new, _ = renewed(PROFILE, {FORWARD: [point(1400, 1.02), point(1000, 1.06)]})
    times = [one.time_s / old.time_s for one, old in zip(new.of(*FORWARD), PROFILE.of(*FORWARD), strict=True)]
    assert times == pytest.approx([1.02, 1.04, 1.06, 1.06])


def test_what_was_not_measured_is_less_sure_than_before() -> None:
    new, _ = renewed(PROFILE, {FORWARD: [point(1400, 1.03)]})
    for one, old in zip(new.of(*FORWARD)[1:], PROFILE.of(*FORWARD)[1:], strict=True):
        assert one.time_se_s / one.time_s == pytest.approx(3**0.5 * old.time_se_s / old.time_s)
        assert one.energy_se_j > old.energy_se_j


def test_what_lies_within_the_errors_is_not_certain() -> None:
    _, ratios = renewed(PROFILE, {FORWARD: [point(1400, 1.004, 0.996)]})
    assert not ratios[FORWARD].certain


def test_a_clock_that_the_profile_has_not_is_refused() -> None:
    with pytest.raises(IncompleteProfileError, match="stage 0 forward"):
        renewed(PROFILE, {FORWARD: [point(1300)]})


def test_a_clock_that_was_only_predicted_is_compared_and_then_kept() -> None:
    known = replace(PROFILE, points={FORWARD: (*PROFILE.points[FORWARD], point(1300))})
    new, ratios = renewed(PROFILE, {FORWARD: [point(1300, 1.05)]}, predicted=known)
    assert ratios[FORWARD].time == pytest.approx(1.05)
    assert 1300 in {one.clock_mhz for one in new.points[FORWARD]}
