"""Whether a series has left its level for good: two cumulative sums, and the level and noise that it learns.

Source: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

ALLOWANCE = 0.6
"""Of every deviation, in noises: what is less than that for ever is no drift."""
LEAST_NOISE = 0.02
"""What a number of one iteration is taken to vary by at least."""
LEAST = ALLOWANCE * LEAST_NOISE
"""Steps under 1.2 % are never found, however quiet a GPU is."""
LEARNING = 32
"""Numbers that a level is learned from before anything is judged by it."""

_PROOF = 11.0
"""The sum that proves a drift: two false alarms in ten million numbers of 2 % noise (learned levels)."""
_LEAST_OF_MANY = 0.01
_MOST_NOISES = 4.0
_SHARE = (_MOST_NOISES - ALLOWANCE) / _PROOF  # of a proof that one number counts for: three hiccups are none
_LONG = 512
_LEAVING = 1.0 / 3.0
_KEPT = 64


@dataclass(slots=True)
class TwoSidedCusum:
    """Two sums of deviations, in noises, beyond an allowance: one for each direction; 1 is a proof.

    The larger the allowance, the smaller the sum that is as seldom reached by chance: their product counts.
    """

    up: float = 0.0
    down: float = 0.0
    rising: int = 0
    falling: int = 0

    def observe(self, deviation: float, allowance: float = ALLOWANCE, *, error: float = 0.0) -> bool:
        """Take in one number; return whether either sum is a proof. ``error`` is that of the level."""
        proof = _PROOF * ALLOWANCE / allowance
        most = allowance + _SHARE * proof
        bounded = min(max(deviation, -most), most)
        self.up, self.down = (
            max(0.0, self.up + (bounded - allowance - error) / proof),
            max(0.0, self.down + (-bounded - allowance - error) / proof),
        )
        self.rising = self.rising + 1 if self.up else 0
        self.falling = self.falling + 1 if self.down else 0
        return max(self.up, self.down) > 1.0

    @property
    def lasted(self) -> int:
        """For how many numbers the larger sum has grown."""
        return self.rising if self.up >= self.down else self.falling


@dataclass(slots=True)
class CusumLevel:
    """A positive series against the mean that it had before: ``drifted`` once that is no longer its mean.

    The mean and the noise follow the series until a sum begins to grow, over ``_LONG`` numbers at most. What
    creeps on for longer than that is drift as well. ``recent`` are the last deviations, in parts of the mean,
    ``seen`` is how many there were. A number is the mean of ``per`` iterations, and varies less for it.
    """

    per: int = 1
    mean: float = 0.0
    count: int = 0
    drifted: bool = False
    sums: TwoSidedCusum = field(default_factory=TwoSidedCusum)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    seen: int = 0
    _squares: float = 0.0

    @property
    def noise(self) -> float:
        """Standard deviation of one number, in parts of the mean; it is taken to have some at least."""
        least = max(LEAST_NOISE / math.sqrt(self.per), _LEAST_OF_MANY)
        return max(least, math.sqrt(self._squares / max(1, self.count - 1)))

    def observe(self, value: float) -> bool:
        """Take in the next number; return whether the level has been left, now or before."""
        if not self.count:
            self.mean = value
        deviation, error = value / self.mean - 1.0, 1.0 / math.sqrt(max(1, self.count))
        self.recent.append(deviation)
        self.seen += 1
        if self.count >= LEARNING:
            noise = self.noise
            allowance = max(ALLOWANCE, LEAST / noise)
            noises = deviation / noise / math.hypot(1.0, error)
            self.drifted = self.sums.observe(noises, allowance, error=error) or self.drifted
        if self.count < LEARNING or (self.count < _LONG and max(self.sums.up, self.sums.down) < _LEAVING):
            self._learn(deviation)
        return self.drifted

    def _learn(self, deviation: float) -> None:
        self.count += 1
        most = _MOST_NOISES * self.noise
        bounded = min(max(deviation, -most), most)
        self.mean *= 1.0 + bounded / self.count
        self._squares += bounded**2 * (self.count - 1) / self.count
