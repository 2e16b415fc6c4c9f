"""Clocks asked for from the job's own process, where the driver does not take each of its own list."""

import pytest
from lone_job import DeskGpu

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.runtime.clock_thread import Act, LocalClocks


class NoAlarm:
    """Everything is due at once."""

    def at(self, moment_s: float, act: Act) -> Act:
        raise AssertionError(f"{moment_s} s: {act}")


@pytest.fixture
def desk() -> DeskGpu:
    return DeskGpu()


def asked(desk: DeskGpu, *clocks_mhz: int) -> None:
    clocks = LocalClocks(desk, NoAlarm())
    for clock_mhz in clocks_mhz:
        clocks.ask([DatedClock(desk.now_s(), clock_mhz)])


def test_the_next_higher_clock_stands_for_one_that_is_refused(desk: DeskGpu) -> None:
    desk.refuses_mhz = {900, 1410}
    asked(desk, 705, 900, 705, 1410)
    assert desk.calls == [705, 1200, 705, None]


def test_a_device_that_takes_no_clock_at_all_ends_the_asking(desk: DeskGpu) -> None:
    desk.refuses = DeviceUnsupportedError("locks no clocks")
    with pytest.raises(DeviceUnsupportedError, match="locks"):
        asked(desk, 900)
