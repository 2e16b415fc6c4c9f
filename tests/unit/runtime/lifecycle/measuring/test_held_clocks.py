"""Clocks that do not hold under load are in no profile."""

from perseus_ds.profile import Point
from perseus_ds.runtime.lifecycle.measuring.profiling import held_clocks
from perseus_ds.runtime.measure.pooling import Pooled
from perseus_ds.schedule import Kind

CLOCKS_MHZ = (1965, 1800, 1560, 1400)


def window(clock_mhz: int, *seen_mhz: int | None) -> Pooled:
    kinds = (Kind.FORWARD, Kind.BACKWARD)
    points = {
        (0, kind): Point(clock_mhz, 0.1, 40.0, 0.0, 0.0, 10, achieved_mhz=one)
        for kind, one in zip(kinds, seen_mhz, strict=True)
    }
    return Pooled(points, {}, 80.0)


def test_what_falls_under_load_is_dropped_but_for_the_highest() -> None:
    """A B200 at 1965 MHz runs at 1580 after 5 ms of load, with no reason given."""
    seen = [(1580, 1575), (1590, 1580), (1560, 1545), (1400, 1400)]
    windows = [window(clock, *mhz) for clock, mhz in zip(CLOCKS_MHZ, seen, strict=True)]
    assert held_clocks(CLOCKS_MHZ, windows) == {1965, 1560, 1400}


def test_one_computation_that_loses_it_is_enough_and_nobody_looking_is_not() -> None:
    windows = [window(1965, 1965, 1965), window(1800, 1800, 1600), window(1560, None, 1560)]
    assert held_clocks(CLOCKS_MHZ, windows) == {1965, 1560}
