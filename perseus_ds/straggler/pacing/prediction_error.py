"""How far predictions of what is left of an iteration were off, by what was reported of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_BEYOND = 1.96  # standard errors that one of twenty predictions is off by
_USUALLY = 0.05
_STEP = 0.7  # of the scale's logarithm where all of an iteration's predictions are off by more
_LEAST, _MOST = 0.1, 1e3


class PredictionError:
    """A scale for reported errors, such that one prediction in twenty is off by more than 1.96 of them.

    The quantile is followed step by step, each of a bounded length, so that no single iteration, however far
    off, moves it far. It rises nineteen times faster than it falls.

    Source: H. Robbins and S. Monro, A stochastic approximation method (1951), for a quantile.
    """

    def __init__(self) -> None:
        self.scale = 1.0

    def learn(self, residual: NDArray[np.float64], told: NDArray[np.float64]) -> None:
        """Take in the predictions of one iteration: measured by predicted, less 1; what is not known is left.

        Shape: both [replicas].
        """
        known = np.isfinite(residual) & np.isfinite(told) & (told > 0.0)
        if not known.any():
            return
        beyond = float((np.abs(residual[known]) > _BEYOND * self.scale * told[known]).mean())
        moved = self.scale * math.exp(_STEP * (beyond - _USUALLY))
        self.scale = min(max(moved, _LEAST), _MOST)
