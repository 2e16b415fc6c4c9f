"""The clocks of a sweep, and what an iteration loses at each."""

import pytest

from perseus_ds.profile import Point, Sweep
from perseus_ds.schedule import Kind

KEYS = (0, Kind.FORWARD), (0, Kind.BACKWARD)


def test_a_sweep_goes_on_for_as_long_as_clocks_are_chosen() -> None:
    sweep = Sweep((1000,))
    for clock_mhz in (700, 850):
        sweep.record({key: Point(sweep.clock_mhz, 1.0, 9.0) for key in KEYS})
        assert sweep.finished
        sweep.go_on(clock_mhz)
        assert (sweep.finished, sweep.clock_mhz) == (False, clock_mhz)
    assert [point.clock_mhz for point in sweep.points[KEYS[0]]] == [1000, 700]


def test_an_iteration_is_slower_by_what_was_seen_and_never_by_more_than_its_clock() -> None:
    sweep = Sweep((1000, 800))
    assert sweep.slower(500) == 2.0, "nothing was seen yet"
    for factors in ((1.0, 1.0), (1.1, 1.2)):
        sweep.record(
            {key: Point(sweep.clock_mhz, 2.0 * one, 9.0) for key, one in zip(KEYS, factors, strict=True)}
        )
    assert sweep.slower(800) == pytest.approx(1.2), "the slower of both"
    assert sweep.slower(500) == pytest.approx(1.0 + 0.8), "0.2 of 0.25 there"
