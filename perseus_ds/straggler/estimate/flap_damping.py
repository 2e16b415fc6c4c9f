"""How often each replica was slow for a short spell only, and so how long it has to confirm the next one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import CALM, CONFIRMATIONS, MOST_CONFIRMATIONS, SHORT_SPELL

_Replicas = NDArray[np.bool_]


class FlapDamping:
    """Memory of flapping: an answer to a spell that is over at once costs time and saves nothing.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._now = 0
        self._began = np.full(replicas, -CALM, dtype=np.int64)
        self._short = np.zeros(replicas, dtype=np.int64)

    def tick(self) -> None:
        """An iteration passes."""
        self._now += 1

    def confirmations(self) -> NDArray[np.int64]:
        """Slow iterations in a row that are asked for: four times as many per short spell after the first."""
        exponent = np.clip(self._short - 1, 0, 8)
        return np.minimum(CONFIRMATIONS * 4**exponent, MOST_CONFIRMATIONS)

    def remember(self, slower: _Replicas, faster: _Replicas) -> None:
        """Some replicas turned slow in this iteration, some turned fast again."""
        lasted = self._now - self._began
        self._short[faster & (lasted < SHORT_SPELL)] += 1
        self._short[slower & (lasted >= CALM)] = 0
        self._began[slower] = self._now
