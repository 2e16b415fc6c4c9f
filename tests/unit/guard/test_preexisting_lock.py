"""A clock that looks locked, and gets a warning."""

import pytest

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, apparent_lock_mhz

ABLE = Capabilities(
    (1410, 1395, 900, 210), (1593,), can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.01
)


def seen(*clocks_mhz: int, reasons: EventReason = EventReason.NONE) -> list[Achieved]:
    return [Achieved(clock_mhz, 1593, reasons) for clock_mhz in clocks_mhz]


def test_a_steady_clock_below_the_maximum_is_a_lock() -> None:
    assert apparent_lock_mhz(seen(900, 900, 900), ABLE) == 900


@pytest.mark.parametrize(
    "samples",
    [
        seen(1410, 1410, 1410),
        seen(900, 1395, 900),
        seen(905, 905, 905),
        seen(210, 210, 210),
        seen(900, 900, reasons=EventReason.GPU_IDLE),
        seen(900, 900, reasons=EventReason.SW_POWER_CAP),
        [],
    ],
    ids=["maximum", "unsteady", "off the grid", "lowest", "idle", "capped", "nothing seen"],
)
def test_anything_less_clear_is_free(samples: list[Achieved]) -> None:
    assert apparent_lock_mhz(samples, ABLE) is None
