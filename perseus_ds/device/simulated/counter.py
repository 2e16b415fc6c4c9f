"""The energy counter of a simulated GPU: late, coarse, sampled and noisy, as real ones are."""

from __future__ import annotations

import math
from random import Random

_PER_J = 1000  # the counter counts millijoules


class EnergyCounter:
    """Watches the true energy for ``window_s`` of every ``period_s`` and extrapolates at each tick.

    The owner calls `observe` exactly at `next_mark_s`, with the true energy so far.
    """

    def __init__(
        self, *, period_s: float, window_s: float, noise: float, start_s: float, random: Random
    ) -> None:
        self._period_s, self._window_s, self._noise, self._random = period_s, window_s, noise, random
        self._phase_s = start_s + random.random() * period_s
        self._ticks = 0
        self._opened_j: float | None = None
        self._value_j = 0.0
        self.next_mark_s = self._phase_s

    def observe(self, energy_j: float) -> None:
        """Open a window at this mark, or close one and tick."""
        if self._opened_j is None:
            self._open(energy_j)
            return
        factor = max(0.0, 1.0 + self._random.gauss(0.0, self._noise))
        self._value_j += (energy_j - self._opened_j) * factor * self._period_s / self._window_s
        self._ticks += 1
        self._opened_j = None
        self.next_mark_s = self._phase_s + self._ticks * self._period_s
        if self._window_s >= self._period_s:
            self._open(energy_j)

    @property
    def reading_j(self) -> float:
        """What a reader sees: whole millijoules."""
        return math.floor(self._value_j * _PER_J) / _PER_J

    def _open(self, energy_j: float) -> None:
        self._opened_j = energy_j
        self.next_mark_s = self._phase_s + self._ticks * self._period_s + self._window_s
