"""Whether a replica has left its level for good: cumulative sums of what iterations exceed it by.

Source: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954); run lengths after D. Siegmund,
Sequential Analysis (1985): ``(exp(2kb) - 2kb - 1) / 2k^2`` iterations between false alarms, where b is the
threshold plus 1.166.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import CONFIRMATIONS, FALSE_ALARM, MOST_SIGMAS

_Replicas = NDArray[np.bool_]

_ALLOWANCES = np.array([[2.0], [1.0], [0.5]])
"""Half the shift that a sum finds soonest, in standard deviations: large shifts first."""

_BEGUN = 3  # iterations

_IN_A_ROW = 1.0  # standard deviations above which iterations count as in a row


def threshold(allowance: float, replicas: int) -> float:
    """Sum above which a shift is proved, but never by one iteration alone.

    All replicas together are wrong once in 1 / FALSE_ALARM iterations. Simulated, the three sums
    together keep that once the mean and the scatter are learned, but not in a job's first 200 iterations
    (``scripts/bench/straggler/noisy.py``).
    """
    run = replicas * 2.0 * allowance**2 / FALSE_ALARM
    return max(math.log(run) / (2.0 * allowance) - 1.166, MOST_SIGMAS - allowance)


class Excursions:
    """One direction: how far, and for how many iterations, each replica has been beyond its level.

    One iteration alone counts for ``MOST_SIGMAS`` at most, so that no hiccup proves anything.

    Shape: [sums, replicas], and [replicas] of iterations in a row.
    """

    def __init__(self, replicas: int) -> None:
        self._sum = np.zeros((len(_ALLOWANCES), replicas))
        self._length = np.zeros((len(_ALLOWANCES), replicas), dtype=np.int64)
        self._row = np.zeros(replicas, dtype=np.int64)
        self._proof = np.array([[threshold(float(one), replicas)] for one in _ALLOWANCES[:, 0]])

    def observe(self, sigmas: NDArray[np.float64], known: _Replicas) -> bool:
        """Take in one iteration's deviations; return whether somebody may have left his level."""
        step = np.minimum(sigmas, MOST_SIGMAS) - _ALLOWANCES
        if not known.all():
            step[:, ~known] = 0.0
        self._sum += step
        np.maximum(self._sum, 0.0, out=self._sum)
        self._length += known
        self._length *= self._sum > 0.0
        self._row += known
        self._row *= (sigmas > _IN_A_ROW) | ~known
        return bool((self._sum > self._proof).any())

    def alone(self, in_a_row: NDArray[np.int64]) -> _Replicas:
        """The replicas that have left their level while a quarter of all have not.

        ``in_a_row`` iterations are asked of those that flap.

        Shape: both [replicas].
        """
        place = (self._sum.shape[1] - 1) // 4
        common = np.partition(self._sum, place, axis=1)[:, place : place + 1]
        proved = (self._sum - common > self._proof).any(axis=0)
        steady: _Replicas = proved & ((in_a_row <= CONFIRMATIONS) | (self._row >= in_a_row))
        return steady

    def together(self) -> bool:
        """Whether three quarters of all have left their levels: nobody is slow where all are."""
        far = int((self._sum > self._proof).any(axis=0).sum())
        return 4 * far >= 3 * self._sum.shape[1]

    def lasted(self) -> NDArray[np.int64]:
        """For how many iterations each has been beyond its level: by the sum that proves it soonest."""
        soonest = np.argmax(self._sum / self._proof, axis=0)
        lasted: NDArray[np.int64] = np.maximum(self._length[soonest, np.arange(len(soonest))], 1)
        return lasted

    def begun(self) -> _Replicas:
        """Who may be leaving his level."""
        far: _Replicas = (self._sum[-1] > self._proof[-1] / 4.0) & (self._length[-1] >= _BEGUN)
        return far

    def forget(self, who: _Replicas) -> None:
        """Begin anew for some replicas."""
        self._sum[:, who] = 0.0
        self._length[:, who] = 0
        self._row[who] = 0
