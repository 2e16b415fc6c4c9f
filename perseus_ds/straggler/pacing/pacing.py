"""Pace replicas to the longest of an iteration, correct that within it, learn how well it is predicted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.pacing.outlook import Room, stretches
from perseus_ds.straggler.pacing.paced_iteration import PacedIteration
from perseus_ds.straggler.pacing.progress_marks import ProgressMarks
from perseus_ds.straggler.tuning import EXCESS_PACED, LEAST_RECOVERY, RECOVERY_SIGMAS

_Replicas = NDArray[np.float64]
_BEYOND = 1.96  # standard errors that one of twenty predictions is off by
_USUALLY = 0.05
_STEP = 0.7  # of the scale's logarithm where all of an iteration's predictions are off by more
_LEAST, _MOST = 0.1, 1e3


class Pacing:
    """Answers the reports of all replicas at the marks of an iteration; alike on all ranks.

    The margin is what the prediction's error asks for. It comes from the profile at first, and is then
    learned for each mark from how far predictions were off. Where they are off by too much it takes all
    slack: who knows too little slows nobody. ``log_worth`` states what a second is worth (`Room`).
    """

    def __init__(self, marks: ProgressMarks, log_worth: Callable[[_Replicas], _Replicas]) -> None:
        self._marks, self._log_worth = marks, log_worth
        self._errors = [PredictionError() for _ in marks.share]

    def recovered(self, paced: PacedIteration) -> NDArray[np.bool_]:
        """Replicas too far ahead at the last reported mark to be as slow as they were taken to be.

        Nobody waits for it longer than at the pace that it had since the iteration began. One that is slower
        than it was taken to be is believed when the iteration is over.

        Shape: [replicas].
        """
        mark, told = len(paced.told) - 1, paced.told[-1]
        if mark == 0:
            return np.zeros(len(paced.pace), dtype=np.bool_)
        error = paced.told[0].error * self._errors[0].scale / math.sqrt(self._marks.share[mark])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = told.elapsed_s / (paced.passed_s * paced.pace)
            faster = (ratio > 0.0) & (ratio < 1.0 - np.maximum(LEAST_RECOVERY, RECOVERY_SIGMAS * error))
        paced.awaited = np.where(faster, paced.pace * ratio, paced.awaited)
        return faster

    def stretches(self, paced: PacedIteration) -> _Replicas:
        """Answer the last reported mark.

        Shape: [replicas], 1 where there is no slack.
        """
        mark, final, told = len(paced.told) - 1, len(self._errors) - 1, paced.told[-1]
        scale = self._errors[mark].scale
        later = (
            self._errors[final].scale / scale * math.sqrt(self._marks.left(final) / self._marks.left(mark))
        )
        ends_s = told.elapsed_s + told.left_s * paced.awaited
        awaited_s = float(np.max(ends_s, where=np.isfinite(ends_s), initial=0.0))
        most_s, until = min(paced.most_s, awaited_s), self._marks.until(mark)
        room = Room(EXCESS_PACED, self._log_worth, min(1.0, later), until, most_s)
        return stretches(replace(told, left_s=told.left_s * paced.pace, error=told.error * scale), room)

    def learn(self, paced: PacedIteration, own_s: _Replicas, *, slow: NDArray[np.bool_]) -> None:
        """Hold what was predicted against what the iteration took; what is not finite is unknown.

        Of ``slow`` replicas nothing is learned: loads have no part in their slowness.

        Shape: [replicas].
        """
        for mark, measured_s in enumerate(paced.measured_left_s(own_s)):
            told = paced.told[mark]
            with np.errstate(divide="ignore", invalid="ignore"):
                residual = measured_s / (told.left_s * paced.pace) - 1.0
            self._errors[mark].learn(np.where(slow, np.nan, residual), told.error)


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
