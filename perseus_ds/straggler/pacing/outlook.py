"""What every replica has behind and before it at one moment of an iteration, and which of them have slack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_Replicas = NDArray[np.float64]
_SIGMAS = np.linspace(0.0, 6.0, 241)
_LOG_CHANCE = np.array([-np.log(2.0 * NormalDist().cdf(-x)) for x in _SIGMAS])
"""By how much the logarithm of a normal number's chance to exceed so many deviations is below that of 0."""
_STEP = 0.1  # of a logarithm
_PRICES = int(_LOG_CHANCE[-1] / _STEP)
_WORTHS = 64
_STEPS = np.minimum(np.add.outer(np.arange(_PRICES), np.arange(_WORTHS)) * _STEP, _LOG_CHANCE[-1])
_SIGMAS_AT = np.interp(_STEPS, _LOG_CHANCE, _SIGMAS)
_LATE_AT = np.vectorize(lambda x: NormalDist().pdf(x) - x * NormalDist().cdf(-x))(_SIGMAS_AT)
"""How many deviations replicas stay below, and what they exceed the longest by on average, in deviations.

Shape: [prices, worths], each a step of a logarithm from the next one.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """One moment of an iteration, as reported by all replicas.

    ``elapsed_s`` is measured since the iteration began. ``left_s`` is what is still to do if the objective's
    plan is run from here on, ``error`` the relative standard error of ``left_s``. What is negative or not
    finite is unknown, and an ``error`` of 0 or less as well: nothing is known so well. ``by_load`` is who
    predicts it from what the iteration works on.

    Shape: vectors [replicas].
    """

    elapsed_s: _Replicas
    left_s: _Replicas
    error: _Replicas
    by_load: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """The replicas of which enough is known."""
        with np.errstate(invalid="ignore"):
            known: NDArray[np.bool_] = (
                np.isfinite(self.elapsed_s + self.left_s + self.error)
                & (self.elapsed_s >= 0.0)
                & (self.left_s > 0.0)
                & (self.error > 0.0)
            )
        return known

    def cleaned(self) -> Outlook:
        """Return the same with what is unknown not a number."""
        known = self.known
        if known.all():
            return self
        nan = np.nan
        return Outlook(
            np.where(known, self.elapsed_s, nan),
            np.where(known, self.left_s, nan),
            np.where(known, self.error, nan),
            self.by_load,
        )


@dataclass(frozen=True, slots=True)
class Room:
    """How far slowing may go.

    ``excess`` is how much longer iterations may become on average because predictions err, all replicas
    together, relatively. ``last_error`` is the error of what is left at the iteration's last mark, by that of
    what is left now. ``until`` is the share of what is left now that is over when the next mark is answered.
    ``most_s`` is how long an iteration may be made at all. ``log_worth`` is what a second less costs each
    replica that may take so many times longer than its objective's plan.
    """

    excess: float
    log_worth: Callable[[_Replicas], _Replicas]
    last_error: float = 1.0
    until: float = 1.0
    most_s: float = np.inf


def stretches(outlook: Outlook, room: Room) -> _Replicas:
    """Return how many times longer than at the objective's plan each replica may take for what is left.

    All aim at the end of the longest, less the margin that will be needed after the last mark. Until the next
    mark no replica becomes so slow that it could not end in time at the objective's plan from there on. The
    margin that is needed now is subtracted. Replicas of which nothing is known are not slowed. The longest of
    the others can only be earlier than that of all, so that the others still are. ``outlook`` is cleaned.

    Errors of single computations add up as squares, so that of more work grows as the root.

    Shape: all [replicas]; 1 where there is no slack.
    Cost: two dozen vector operations.
    """
    everyone = np.isfinite(outlook.error)
    slowed, slack = np.ones(len(everyone)), np.ones(len(everyone))
    if np.count_nonzero(everyone) < 2:  # noqa: PLR2004  # the longest, and one that waits for it
        return slowed
    known = slice(None) if everyone.all() else np.flatnonzero(everyone)
    elapsed_s, left_s = outlook.elapsed_s[known], outlook.left_s[known]
    end_s, error_s = elapsed_s + left_s, outlook.error[known] * np.sqrt(left_s * left_s.mean())
    last = int(end_s.argmax())
    longest_s = min(float(end_s[last]), room.most_s)
    slack[known] = (longest_s - elapsed_s) / left_s
    apart_s = np.hypot(error_s, error_s[last])
    apart_s[last] = 0.0
    margin_s = margins_s(apart_s, room.log_worth(slack)[known], room.excess * longest_s)
    aim = slack[known] - room.last_error * margin_s / left_s
    way_out = 1.0 + (longest_s - margin_s - end_s) / (room.until * left_s)
    stretch = np.maximum(1.0, np.minimum(aim, way_out))
    stretch[last] = 1.0
    slowed[known] = stretch
    return slowed


def margins_s(apart_s: _Replicas, log_worth: _Replicas, late_s: float) -> _Replicas:
    """How far below the longest each replica aims, so that together they are late by ``late_s`` on average.

    A margin is z standard deviations, which are ``apart_s``. A normal number exceeds z with the chance P(z),
    and by L(z) on average. The sum of L(z) apart is given. That of worth z apart is least where P(z) is in
    proportion to the worth of a second, so one price for all is sought.

    Shape: vectors [replicas].
    Cost: some vector operations, and a table of some hundred by 64 places.
    """
    worth = np.minimum((log_worth.max() - log_worth) / _STEP + 0.5, _WORTHS - 1.0).astype(np.int64)
    late_at_s = _LATE_AT @ np.bincount(worth, weights=apart_s, minlength=_WORTHS)
    price = min(int(np.searchsorted(-late_at_s, -late_s)), _PRICES - 1)
    margin_s: _Replicas = _SIGMAS_AT[price][worth] * apart_s
    return margin_s
