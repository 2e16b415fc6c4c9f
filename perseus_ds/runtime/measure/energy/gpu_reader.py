"""One look at a GPU after another: its energy, and now and then its clock and its temperature."""

from __future__ import annotations

from typing import NamedTuple

from perseus_ds.device.gpu import Achieved, Gpu
from perseus_ds.errors import as_perseus_error
from perseus_ds.runtime.measure.energy.energy_source import EnergySource

_READS_PER_CLOCK_READ = 5


class GpuReading(NamedTuple):
    """What one look showed, by the device's time.

    ``anew``: energy counts from another start than before. ``achieved`` and ``temperature_c`` are None where
    they were not read this time. A text is why the temperature cannot be read, now and later. ``reasons`` are
    what is wrong with the counter, ``useless`` is why no energy can be read at all.
    """

    at_s: float
    energy_j: float
    anew: bool
    achieved: Achieved | None = None
    temperature_c: float | str | None = None
    reasons: tuple[str, ...] = ()
    useless: str = ""


class GpuReader:
    """Looks at a GPU when it is asked to."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._source = EnergySource(gpu)
        self._looks = 0
        self._senses = True

    def look(self) -> GpuReading:
        """Look once.

        Raises:
            DeviceError: energy or clock cannot be read.
        """
        restarts = self._source.restarts
        at_s, energy_j = self._source.read()
        self._looks += 1
        reads_clock = self._looks % _READS_PER_CLOCK_READ == 0
        return GpuReading(
            at_s,
            energy_j,
            self._source.restarts > restarts,
            self._gpu.achieved() if reads_clock else None,
            self._temperature_c() if reads_clock and self._senses else None,
            tuple(self._source.reasons()),
            self._source.useless,
        )

    def _temperature_c(self) -> float | str:
        """Read the sensor, whatever its driver does; one that fails is not read again."""
        try:
            read_c = self._gpu.temperature_c()
        except Exception as error:  # noqa: BLE001
            self._senses = False
            return f"it cannot be read: {as_perseus_error(error).message}"
        self._senses = read_c is not None
        return "this GPU shows none" if read_c is None else read_c
