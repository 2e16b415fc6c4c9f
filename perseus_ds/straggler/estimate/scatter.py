"""How much one iteration of a replica varies: as the profile predicts, then as iterations show."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import PROFILE_COUNTS, WINDOW

_MEMORY = 16 * WINDOW  # observations of each replica


class Scatter:
    """Relative standard deviation of one iteration, common to all replicas; infinite until it is known.

    ``first`` is the profile's; it counts as ``PROFILE_COUNTS`` observations, because it knows nothing of what
    is alike in all computations of an iteration. NaN: the profile does not state it, so that half a window of
    iterations has to.
    """

    def __init__(self, first: float) -> None:
        known = math.isfinite(first)
        self._variance = first**2 if known else 0.0
        self._weight = float(PROFILE_COUNTS) if known else 0.0

    @property
    def known(self) -> bool:
        """Whether anything is known of it."""
        return self._weight > 0.0

    @property
    def deviation(self) -> float:
        """The estimate and its standard error: rather too much than too little."""
        if not self.known:
            return math.inf
        return math.sqrt(self._variance) * (1.0 + math.sqrt(0.5 / self._weight))

    def learn(self, square: NDArray[np.float64], count: NDArray[np.int64], *, fresh: int) -> None:
        """Take in each replica's mean square deviation from its level over its last ``count`` iterations.

        ``fresh`` of them were not learned from before.

        Shape: both [replicas].
        """
        use = count > 1
        if not use.any() or not (self.known or count.max() >= WINDOW // 2):
            return
        freedom = count[use] - 1.0
        seen = float((square[use] * count[use]).sum() / freedom.sum())
        share = np.minimum(1.0, fresh / count[use]) if self.known else 1.0
        weight = float((freedom * share).sum())
        self._variance += (seen - self._variance) * weight / (self._weight + weight)
        self._weight = min(self._weight + weight, float(_MEMORY * len(count)))
