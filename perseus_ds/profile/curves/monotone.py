"""Durations that never fall with the clock: what a curve is brought to, and every draw of its errors.

Above a power cap all clocks last alike. Of many that are off one seems faster than the highest, and a plan
would fill the time that this seems to gain. Used by `profile.curves.smoothing`.
"""

from __future__ import annotations

import numpy as np

from perseus_ds.profile.curves.regression import Floats

SURE = 3.0
"""Standard errors that make it no chance that a higher clock is slower."""


def never_falling(values: Floats, weights: Floats) -> Floats:
    """Return the nearest values of which none is less than one before it: weighted least squares.

    Shape: ``values`` [points] or [points, draws]; ``weights`` [points]; as ``values``.
    Source: the max-min formula of isotonic regression, Robertson, Wright, Dykstra 1988, theorem 1.4.4.
    """
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    found = np.full_like(values, -np.inf)
    for first in range(len(values)):
        means = np.cumsum((weights * values)[first:], axis=0) / np.cumsum(weights[first:], axis=0)
        found[first:] = np.maximum(found[first:], np.minimum.accumulate(means[::-1], axis=0)[::-1])
    return found


def monotone(times_s: Floats, errors_s: Floats) -> Floats:
    """Durations of a curve, highest clock first, without what seems faster at a lower clock by chance.

    A curve that surely is slower at a higher clock stays what it is.

    Shape: all [points].
    """
    found = never_falling(times_s, errors_s**-2.0)
    return times_s if np.any(np.abs(found - times_s) > SURE * errors_s) else found
