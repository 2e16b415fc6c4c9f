"""What a GPU's temperature sensor reads, for as long as it can be true."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from perseus_ds.device import Gpu
from perseus_ds.errors import as_perseus_error
from perseus_ds.profile.estimating.thermal import Reading

_KEPT = 100_000
_LEAST_C, _MOST_C = 1.0, 125.0
_MOST_STEP_C = 30.0
"""Between two looks, a quarter of a second apart: a chip follows its power in seconds."""


class Temperatures:
    """Keeps readings until one cannot be; ``reason`` states why there are none from then on.

    A sensor is never worth an error: measuring goes on without it.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._readings: deque[Reading] = deque(maxlen=_KEPT)
        self.reason = ""

    def look(self, now_s: float) -> None:
        """Read once more."""
        if self.reason:
            return
        try:
            read_c = self._gpu.temperature_c()
        except Exception as error:  # noqa: BLE001  # whatever a sensor's driver does
            self._end(f"it cannot be read: {as_perseus_error(error).message}")
            return
        if read_c is None:
            self._end("this GPU shows none")
        elif not _LEAST_C <= read_c <= _MOST_C:
            self._end(f"its sensor reads {read_c:g} degrees C")
        elif self._readings and abs(read_c - self._readings[-1][1]) > _MOST_STEP_C:
            self._end(f"its sensor jumped from {self._readings[-1][1]:g} to {read_c:g} degrees C")
        else:
            self._readings.append((now_s, read_c))

    def mean_c(self, start_s: float, end_s: float) -> float | None:
        """The mean of a stretch of time; None where nothing was read in it."""
        read = [read_c for _, read_c in self.between(start_s, end_s)]
        return fmean(read) if read else None

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """All readings of a stretch of time."""
        return [one for one in list(self._readings) if start_s <= one[0] <= end_s]

    def forget(self, before_s: float) -> None:
        """Drop readings before a moment."""
        while self._readings and self._readings[0][0] < before_s:
            self._readings.popleft()

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._readings.clear()
