"""Durations as they may really be: drawn by the errors of a profile, curve by curve.

A point is off alike wherever it is run, and the points of one curve are off together. Used by whoever plans.
"""

from __future__ import annotations

import numpy as np

from perseus_ds.profile.curves.monotone import never_falling
from perseus_ds.profile.curves.regression import Floats
from perseus_ds.profile.record import Computation, Point, Profile

LEAST_SHARE = 0.1
"""A drawn duration keeps at least that share."""


def time_factor(known: Profile, key: Computation, variation: float = 0.0) -> Floats:
    """What normal numbers are multiplied by for the errors of a computation's times, as shares of them.

    Points that were drawn to a curve are off together; others each by itself. Those that state no error are
    off as executions vary by ``variation``.

    Shape: [points, points], highest clock first.
    """
    if key in known.errors:
        return known.errors[key].time
    return np.diag([_error(point, variation) for point in known.of(*key)])


def drawn_shares(time_s: Floats, factor: Floats, normal: Floats) -> Floats:
    """By what share durations are longer in each draw; those that never fall with the clock stay so.

    Shape: ``time_s`` [points], highest clock first; ``factor`` [points, points]; ``normal`` and the result
    [points, draws].
    """
    off = np.maximum(1.0 + factor @ normal, LEAST_SHARE)
    errors_s = time_s * np.sqrt((factor**2).sum(axis=1))
    if np.any(np.diff(time_s) < 0.0) or not errors_s.all():
        return off
    return never_falling(time_s[:, None] * off, errors_s**-2.0) / time_s[:, None]


def _error(point: Point, variation: float) -> float:
    return point.time_se_s / point.time_s or variation / float(np.sqrt(point.samples))
