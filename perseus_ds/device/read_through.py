"""A GPU that is read through one device and set by other means."""

from __future__ import annotations

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.operator_settings import OperatorSettings
from perseus_ds.device.record import Achieved, Capabilities, Identity
from perseus_ds.errors import DeviceUnsupportedError


class ReadThroughGpu(Gpu):
    """Everything but the clock comes from ``reader``; who inherits sets clocks and may narrow the grid."""

    def __init__(self, reader: Gpu, able: Capabilities) -> None:
        self._reader = reader
        self._capabilities = able
        self._clocks_mhz = frozenset(able.clocks_mhz)

    def identify(self) -> Identity:
        """As the reader states."""
        return self._reader.identify()

    def capabilities(self) -> Capabilities:
        """As they were given."""
        return self._capabilities

    def achieved(self) -> Achieved:
        """As the reader states."""
        return self._reader.achieved()

    def energy_j(self) -> float:
        """As the reader states."""
        return self._reader.energy_j()

    def power_w(self) -> float | None:
        """As the reader states."""
        return self._reader.power_w()

    def temperature_c(self) -> float | None:
        """As the reader states."""
        return self._reader.temperature_c()

    def now_s(self) -> float:
        """As the reader's."""
        return self._reader.now_s()

    def operator_settings(self) -> OperatorSettings | None:
        """As the reader states."""
        return self._reader.operator_settings()

    def load_pct(self) -> int | None:
        """As the reader states."""
        return self._reader.load_pct()

    def opened_elsewhere(self) -> tuple[str, str] | None:
        """As the reader is."""
        return self._reader.opened_elsewhere()

    def busy(self) -> str | None:
        """As the reader states."""
        return self._reader.busy()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _check_clock(self, clock_mhz: int) -> None:
        """Refuse a clock that is not on the grid.

        Raises:
            DeviceUnsupportedError: naming the grid.
        """
        if clock_mhz not in self._clocks_mhz:
            name, grid = self.identify().name, self._capabilities.grid
            raise DeviceUnsupportedError(f"{clock_mhz} MHz is not a clock of {name}: it has {grid}")
