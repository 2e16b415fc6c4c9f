"""What a second is worth to a replica that may take longer: the energy that its frontier saves by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PLACES = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class WorthOfTime:
    """Logarithm of the watts that one more second saves, by how many times longer a replica may take.

    It is the slope of the plans' lower convex hull, in a table of equal steps from 1 to the slowest plan.
    """

    _per_step: float
    _log_w: Floats

    @classmethod
    def of(cls, time_s: Floats, cost_j: Floats) -> WorthOfTime:
        """Take it from plans, time ascending, of which the first takes 1.

        Cost: linear in plans, interpreted.
        """
        hull = [0]
        for place in range(1, len(time_s)):
            while len(hull) > 1 and _above(time_s, cost_j, hull[-2], hull[-1], place):
                hull.pop()
            hull.append(place)
        saved_w = -np.diff(cost_j[hull]) / np.diff(time_s[hull])
        if not (saved_w > 0.0).any():
            return cls(0.0, np.zeros(1))
        from_s, saved_w = time_s[hull[:-1]][saved_w > 0.0], saved_w[saved_w > 0.0]
        at_s = np.linspace(time_s[0], time_s[-1], _PLACES)
        log_w = np.log(saved_w)[np.maximum(np.searchsorted(from_s, at_s, side="right") - 1, 0)]
        return cls((_PLACES - 1) / float(time_s[-1] / time_s[0] - 1.0), log_w)

    def log_w(self, stretch: Floats) -> Floats:
        """Return it for many; the same for all where no plan is slower.

        Shape: that of ``stretch``.
        Cost: a look-up for each, as vectors.
        """
        place = np.clip((stretch - 1.0) * self._per_step, 0.0, len(self._log_w) - 1.0)
        log_w: Floats = self._log_w[place.astype(np.int64)]
        return log_w


def _above(time_s: Floats, cost_j: Floats, before: int, middle: int, after: int) -> bool:
    """Whether a plan lies on or above the line between two others."""
    share = (time_s[middle] - time_s[before]) / (time_s[after] - time_s[before])
    return bool(cost_j[middle] >= cost_j[before] + share * (cost_j[after] - cost_j[before]))
