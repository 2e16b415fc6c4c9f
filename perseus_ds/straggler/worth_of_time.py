"""What a second is worth to a replica that may take longer: the energy that its frontier saves by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.hull import hull_of
from perseus_ds.solver.problem import OptionTable

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
        hull = hull_of(OptionTable(time_s, cost_j))
        if not len(hull.price_w):
            return cls(0.0, np.zeros(1))
        at_s = np.linspace(time_s[0], time_s[-1], _PLACES)
        place = np.searchsorted(hull.duration_s[:-1], at_s, side="right") - 1
        log_w = np.log(hull.price_w)[np.maximum(place, 0)]
        return cls((_PLACES - 1) / float(time_s[-1] / time_s[0] - 1.0), log_w)

    def log_w(self, stretch: Floats) -> Floats:
        """Return it for many; the same for all where no plan is slower.

        Shape: that of ``stretch``.
        Cost: a look-up for each, as vectors.
        """
        place = np.clip((stretch - 1.0) * self._per_step, 0.0, len(self._log_w) - 1.0)
        log_w: Floats = self._log_w[place.astype(np.int64)]
        return log_w
