"""Each replica paced to the longest of the same iteration, by how long that is predicted to take."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import EXCESS_PACED

_Replicas = NDArray[np.float64]
_SIGMAS = np.linspace(0.0, 6.0, 241)
_LATE_AT = np.vectorize(lambda x: NormalDist().pdf(x) - x * NormalDist().cdf(-x))(_SIGMAS)
"""What a normal number exceeds so many deviations by on average, in deviations."""
_BEYOND = 1.96  # standard errors that one of fifty predictions may be off by
_USUALLY = 0.02
_STEP = 0.7  # of the scale's logarithm where all of an iteration's predictions are off by more
_LEAST, _MOST = 0.1, 1e3


class Pacing:
    """Answers the predictions of all replicas at the begin of an iteration; alike on all ranks.

    The margin is what the predictions' relative standard ``error`` asks for. It comes from the profile at
    first, and is then learned from how far predictions were off. Where they are off by too much it takes all
    slack: nobody is slowed by what is not known well. A NaN error slows nobody.

    The error is scaled such that one prediction in fifty is off by more than 1.96 of it (of normal errors it
    would be one in twenty): few replicas learn from few numbers, which repeat. That quantile is followed step
    by step, each of a bounded length, so that no single iteration moves it far. It rises 49 times faster than
    it falls.

    Source: H. Robbins and S. Monro, A stochastic approximation method (1951), for a quantile.
    """

    def __init__(self, error: float) -> None:
        self.error, self._scale = error, 1.0

    def stretches(self, predicted_s: _Replicas, *, most_s: float = np.inf) -> _Replicas:
        """Return how many times longer than at the objective's plan each replica may take.

        All aim at the end of the longest, or at ``most_s`` where that is earlier, less a margin. Replicas
        whose prediction is unknown (NaN) are not slowed. The longest of the others can only be earlier than
        that of all, so that the others still are.

        Errors of single computations add up as squares, so that of more work grows as the root.

        Shape: both [replicas]; 1 where there is no slack.
        Cost: a dozen vector operations.
        """
        known = np.isfinite(predicted_s)
        slowed, error = np.ones(len(predicted_s)), self.error * self._scale
        if np.count_nonzero(known) < 2 or not error > 0.0:  # noqa: PLR2004  # the longest, and one that waits
            return slowed
        ends_s = predicted_s[known]
        last = int(ends_s.argmax())
        longest_s = min(float(ends_s[last]), most_s)
        error_s = error * np.sqrt(ends_s * ends_s.mean())
        apart_s = np.hypot(error_s, error_s[last])
        apart_s[last] = 0.0
        stretch = np.maximum(1.0, (longest_s - margins_s(apart_s, EXCESS_PACED * longest_s)) / ends_s)
        stretch[last] = 1.0
        slowed[known] = stretch
        return slowed

    def learn(self, residual: _Replicas) -> None:
        """Take in how far the predictions of one iteration were off: measured by predicted, less 1.

        Shape: [replicas], NaN where that is unknown.
        """
        known = residual[np.isfinite(residual)]
        if not len(known) or not self.error > 0.0:
            return
        beyond = float((np.abs(known) > _BEYOND * self._scale * self.error).mean())
        self._scale = min(max(self._scale * math.exp(_STEP * (beyond - _USUALLY)), _LEAST), _MOST)


def margins_s(apart_s: _Replicas, late_s: float) -> _Replicas:
    """How far below the longest each replica aims, so that together they are late by ``late_s`` on average.

    A margin is z standard deviations, which are ``apart_s``, the same z for all: a normal number exceeds it
    by L(z) deviations on average.

    Shape: [replicas].
    """
    whole_s = float(apart_s.sum())
    if whole_s <= 0.0:
        return np.zeros(len(apart_s))
    margin_s: _Replicas = np.interp(late_s / whole_s, _LATE_AT[::-1], _SIGMAS[::-1]) * apart_s
    return margin_s
