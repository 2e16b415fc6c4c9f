"""Whole numbers for seconds and watts: decimal units, as fine as sums along a path leave room for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.solver.problem import Floats, Ints

LONGEST = 2**61
"""Largest sum that may occur: one bit below int64, so that the difference of two such sums fits."""
LARGEST = 10**15
"""Largest single number: below 2**53, so that a measured decimal becomes its whole number exactly."""
SMALLEST = 1000
"""Fewest units that a positive number may be rounded to: a thousandth of it is the worst error."""
DIGITS = 290
"""Largest power of ten, up or down, that a float can hold with room to multiply."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole units per second (or watt): ``10 ** digits``."""

    digits: int

    def whole(self, values: Floats) -> Ints:
        """Round to the nearest unit."""
        return np.rint(np.asarray(values) * self._up / self._down).astype(np.int64)

    def real(self, count: Ints) -> Floats:
        """Return to seconds (or watts)."""
        return np.asarray(np.asarray(count, dtype=np.int64) / self._up * self._down)

    @property
    def _up(self) -> float:
        return 10.0 ** max(self.digits, 0)

    @property
    def _down(self) -> float:
        return 10.0 ** max(-self.digits, 0)


def unit_for(what: str, values: Floats, *, total: float) -> Unit:
    """Choose the finest decimal unit in which every value and their largest possible sum fit.

    Raises:
        SolverError: the values span so much that the small ones would vanish.
    """
    positive = values[values > 0.0]
    if not len(positive):
        return Unit(0)
    largest, smallest = float(positive.max()), float(positive.min())
    room = min(math.log10(LARGEST / largest), math.log10(LONGEST) - math.log10(max(total, largest)))
    digits = math.floor(room)
    if abs(digits) > DIGITS or smallest < SMALLEST * 10.0**-digits:
        raise SolverError(
            f"{what} from {smallest:.3g} to {largest:.3g} with a sum of up to {total:.3g} overflow the"
            f" integer scale: the limit is a sum of {LONGEST / SMALLEST:.1e} times the smallest",
            hint="leave out what is too small to matter",
        )
    return Unit(digits)
