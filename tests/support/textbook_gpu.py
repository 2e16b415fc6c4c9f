"""A profile from the usual formulas: time falls with the clock, power rises with it and voltage squared."""

from collections.abc import Sequence

from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind

HIGHEST_MHZ = 1410
_CLOCKS_MHZ = range(HIGHEST_MHZ, 700, -45)
_FLAT_VOLTAGE_MHZ = 1020.0
_LOWEST_VOLTAGE = 0.73  # of that at the highest clock
_STATIC_W, _DYNAMIC_W, _BLOCKING_W = 90.0, 210.0, 70.0
_BOUND_BY_MEMORY = 0.15
_SECONDS = {Kind.FORWARD: 0.05, Kind.BACKWARD: 0.1}


def textbook_profile(weights: Sequence[float], *, variation: float | None = None) -> Profile:
    """Return the profile of a pipeline whose stages have work in these proportions.

    Invented, after an A100: 0.05 s per forward and 0.1 s per backward of weight 1 at 1410 MHz. Power is 300 W
    there, 70 W while waiting. Voltage is flat up to about 1020 MHz. Every computation varies by ``variation``
    (relative standard deviation; None: nobody looked).
    """
    points = {
        (stage, kind): tuple(_point(clock_mhz, weight * seconds, variation) for clock_mhz in _CLOCKS_MHZ)
        for stage, weight in enumerate(weights)
        for kind, seconds in _SECONDS.items()
    }
    return Profile(points, blocking_power_w=_BLOCKING_W)


def _point(clock_mhz: int, seconds: float, variation: float | None) -> Point:
    time_s = seconds * (_BOUND_BY_MEMORY + (1.0 - _BOUND_BY_MEMORY) * HIGHEST_MHZ / clock_mhz)
    above = max(0.0, clock_mhz - _FLAT_VOLTAGE_MHZ) / (HIGHEST_MHZ - _FLAT_VOLTAGE_MHZ)
    voltage = _LOWEST_VOLTAGE + (1.0 - _LOWEST_VOLTAGE) * above
    power_w = _STATIC_W + _DYNAMIC_W * clock_mhz / HIGHEST_MHZ * voltage**2
    deviation_s = None if variation is None else variation * time_s
    return Point(clock_mhz, time_s, power_w * time_s, time_sd_s=deviation_s)
