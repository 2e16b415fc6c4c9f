"""Clocks that do not hold under load are in no profile."""

import pytest

from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.errors import UnmeasurableError
from perseus_ds.profile import Point
from perseus_ds.runtime.pooling import Pooled
from perseus_ds.runtime.window import held_alone, held_clocks, same_clock
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


def test_two_windows_of_one_clock_are_alike_where_both_reached_it() -> None:
    warm = window(1965, 1965, 1965)
    assert same_clock(warm, window(1965, 1950, None))
    assert not same_clock(warm, window(1965, 1965, 1005))
    assert not same_clock(window(1965, 1005, 1965), warm)


def looks(*clocks_mhz: int, reasons: EventReason = EventReason.NONE) -> list[Achieved]:
    return [Achieved(mhz, reasons) for mhz in clocks_mhz]


@pytest.mark.parametrize("seen_mhz", [(1000, 1005), (1410, 1410)], ids=["below what was held", "above"])
def test_a_clock_that_no_look_finds_is_somebody_elses(seen_mhz: tuple[int, ...]) -> None:
    with pytest.raises(UnmeasurableError, match="somebody else"):
        held_alone(1260, looks(*seen_mhz), held_mhz=1410)


def test_a_reason_an_idle_look_or_a_clock_that_was_never_held_accuses_nobody() -> None:
    assert held_alone(1260, looks(1000, reasons=EventReason.SW_POWER_CAP), held_mhz=1410) == 1410
    assert held_alone(1260, looks(210, 1260, 210), held_mhz=1410) == 1410
    assert held_alone(1965, looks(1580, 1590), held_mhz=0) == 0
    assert held_alone(1260, looks(1260, 1245), held_mhz=0) == 1260
    assert held_alone(0, looks(1410), held_mhz=900) == 900
