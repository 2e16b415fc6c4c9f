"""Whether something holds a device below the clocks that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from perseus_ds.device import Achieved, AskedClocks
from perseus_ds.device.conflict import is_held


def is_capped(looks: Sequence[tuple[float, Achieved]], asked: AskedClocks, *, settle_s: float) -> bool:
    """Whether the median look stands below the clock that was asked for, once that has had time to settle.

    Reasons prove nothing here. SW_POWER_CAP is the normal state of a loaded GPU at clocks that it holds, and
    a GPU at its ceiling may give none. What the device chooses by itself is no cap.
    """
    held = []
    for time_s, achieved in looks:
        clock_mhz = asked.steady_mhz(time_s - settle_s, time_s)
        if clock_mhz is not None:
            held.append(is_held(clock_mhz, achieved.clock_mhz))
    return bool(held) and not median(held)
