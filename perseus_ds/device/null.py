"""The device that is not there: it answers, measures nothing and locks nothing."""

from __future__ import annotations

import time
from typing import NoReturn

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Achieved, Capabilities, EventReason, Identity
from perseus_ds.errors import DeviceUnsupportedError

_WHY_NOT = "the null device has no clock"


class NullGpu(Gpu):
    """A real backend for machines without a GPU that we know."""

    def __init__(self, index: int = 0) -> None:
        self._index = index

    def identify(self) -> Identity:
        """Name it as what it is."""
        return Identity("null", f"null-{self._index}", "", "none", self._index)

    def capabilities(self) -> Capabilities:
        """Nothing at all."""
        return Capabilities(
            (), (), can_lock=False, why_not=_WHY_NOT, counter_period_s=None, switch_latency_s=0.0
        )

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        """Refuse.

        Raises:
            DeviceUnsupportedError: always.
        """
        raise DeviceUnsupportedError(f"cannot lock {clock_mhz} MHz: {_WHY_NOT}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked."""

    def achieved(self) -> Achieved:
        """Report clocks of zero."""
        return Achieved(0, 0, EventReason.NONE)

    def energy_j(self) -> float:
        """Refuse: a made-up figure would end in a report.

        Raises:
            DeviceUnsupportedError: always.
        """
        raise DeviceUnsupportedError("the null device has no energy counter")

    def now_s(self) -> float:
        """Read the host's monotonic clock."""
        return time.monotonic()

    def close(self) -> None:
        """Do nothing."""
