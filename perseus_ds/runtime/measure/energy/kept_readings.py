"""What is kept of a GPU's readings: rows of a stretch of time, and temperatures while they can be true."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from statistics import fmean
from typing import TypeVar

from perseus_ds.profile.estimating.thermal import Reading

KEPT = 100_000
"""Rows at most, where nobody lets go of any."""
_LEAST_C, _MOST_C = 1.0, 125.0
_MOST_STEP_C = 30.0
"""Between two looks, a quarter of a second apart: a chip follows its power in seconds."""

T = TypeVar("T")


def between(rows: Iterable[tuple[float, T]], start_s: float, end_s: float) -> list[tuple[float, T]]:
    """Rows of a stretch of time, oldest first as they came; a copy, since a thread adds others."""
    kept = list(rows)
    first = bisect_left(kept, start_s, key=itemgetter(0))
    return kept[first : bisect_right(kept, end_s, lo=first, key=itemgetter(0))]


class Temperatures:
    """Keeps a sensor's readings until one cannot be; ``reason`` states why there are none from then on.

    A sensor is never worth an error: measuring goes on without it.
    """

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=KEPT)
        self.reason = ""

    def note(self, at_s: float, read_c: float | str) -> None:
        """Take in a reading, or the reason for its absence."""
        if self.reason:
            return
        if isinstance(read_c, str):
            self._end(read_c)
        elif not _LEAST_C <= read_c <= _MOST_C:
            self._end(f"its sensor reads {read_c:g} degrees C")
        elif self._readings and abs(read_c - self._readings[-1][1]) > _MOST_STEP_C:
            self._end(f"its sensor jumped from {self._readings[-1][1]:g} to {read_c:g} degrees C")
        else:
            self._readings.append((at_s, read_c))

    def mean_c(self, start_s: float, end_s: float) -> float | None:
        """The mean of a stretch of time; None where nothing was read in it."""
        read = [read_c for _, read_c in self.between(start_s, end_s)]
        return fmean(read) if read else None

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """All readings of a stretch of time."""
        return between(self._readings, start_s, end_s)

    def forget(self, before_s: float) -> None:
        """Drop readings before a moment."""
        while self._readings and self._readings[0][0] < before_s:
            self._readings.popleft()

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._readings.clear()
