"""How far below the longest replica each stays: less where a second saves much."""

from __future__ import annotations

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
