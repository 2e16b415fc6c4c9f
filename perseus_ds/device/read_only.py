"""A GPU whose clock could be set, and is not to be: read here, and the reason given where one asks."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.read_through import ReadThroughGpu
from perseus_ds.errors import DevicePermissionError


class ReadOnlyGpu(ReadThroughGpu):
    """Everything but the clock."""

    def __init__(self, reader: Gpu, why_not: str) -> None:
        super().__init__(reader, replace(reader.capabilities(), can_lock=False, why_not=why_not))
        self._why_not = why_not

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        """Refuse.

        Raises:
            DevicePermissionError: always, with the reason.
        """
        raise DevicePermissionError(f"{clock_mhz} MHz is not set: {self._why_not}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked through this."""
