"""A GPU behind its vendor's library: what all of them are read once for, asked for and let go of alike."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Capabilities, Identity
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ValueRefusedError

T = TypeVar("T")


class LibraryGpu(Gpu):
    """Who inherits starts the library, finds the GPU and reads who it is and what it can do."""

    _identity: Identity
    _capabilities: Capabilities
    _open = False
    _refused_mhz: frozenset[int] = frozenset()

    def identify(self) -> Identity:
        """Name it by UUID and PCI bus id; the index is the library's."""
        return self._identity

    def capabilities(self) -> Capabilities:
        """Clocks as the driver lists them; latencies as published until calibration."""
        return self._capabilities

    def refused_mhz(self) -> frozenset[int]:
        """The clocks that `_lock` was refused."""
        return self._refused_mhz

    def now_s(self) -> float:
        """Read the host's monotonic clock."""
        return time.monotonic()

    def close(self) -> None:
        """Let go of the library. The clock stays as it is: restoring is the guard's work."""
        if self._open:
            self._open = False
            with contextlib.suppress(DeviceError):  # there is nothing that could be done about it
                self._ask(self._shut_down, name="stop the library")

    def _lock(self, clock_mhz: int, call: Callable[[], object], *, name: str) -> None:
        """Make the call that stores a clock of the grid."""
        if clock_mhz not in self._capabilities.clocks_mhz:
            name, grid = self._identity.name, self._capabilities.grid
            raise DeviceUnsupportedError(f"{clock_mhz} MHz is not a clock of {name}: it has {grid}")
        try:
            self._ask(call, name=name)
        except ValueRefusedError:
            self._refused_mhz |= {clock_mhz}
            raise

    @abstractmethod
    def _shut_down(self) -> None:
        """Let go of the library once."""

    @abstractmethod
    def _ask(self, call: Callable[[], T], *, name: str) -> T:
        """Make one call of the library; its error becomes ours."""

    def _optional(self, call: Callable[[], T]) -> T | None:
        """Make one call that not every GPU answers."""
        try:
            return self._ask(call, name="ask")
        except DeviceUnsupportedError:
            return None
