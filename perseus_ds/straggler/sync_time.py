"""Where all meet: T' from what every replica needs at full speed, and who can wait how slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import (
    EXCESS,
    LEAST_MARGIN,
    LEAST_MOVE,
    LEAST_SLACK,
    LEAST_SLACK_KEPT,
    NOISE_SIGMAS,
)


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaDemand:
    """What every replica needs when nobody slows it down.

    ``free_s`` is measured seconds, ``error`` its relative standard error, ``scatter`` that of one
    iteration, ``least_s`` the planned seconds of its plan where it does not wait, ``pace`` measured seconds
    per planned second; ``known`` whether enough is known of it to slow it down; ``last`` the replica that
    all others can wait for.

    Shape: vectors [replicas].
    """

    free_s: NDArray[np.float64]
    error: NDArray[np.float64]
    scatter: NDArray[np.float64]
    least_s: NDArray[np.float64]
    pace: NDArray[np.float64]
    known: NDArray[np.bool_]
    last: int


def limits_s(demand: ReplicaDemand, held_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how slow each replica may plan, in its own planned seconds; NaN where it has no slack.

    ``held_s`` are the limits so far: one is moved only when the new one differs by more than the noise.

    Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
    """
    last = demand.last
    error = np.hypot(demand.error, demand.error[last])
    limit_s = demand.free_s[last] * (1.0 - margin(demand)) / demand.pace
    slack = limit_s / demand.least_s - 1.0
    held = np.isfinite(held_s)
    enough = np.where(
        held, np.maximum(LEAST_SLACK_KEPT, 2.0 * error), np.maximum(LEAST_SLACK, NOISE_SIGMAS * error)
    )
    keep = held & (np.abs(limit_s / held_s - 1.0) < np.maximum(LEAST_MOVE, 1.5 * error))
    has_slack = (slack > enough) & (held | demand.known)
    has_slack[last] = False
    return np.where(has_slack, np.where(keep, held_s, limit_s), np.nan)


def margin(demand: ReplicaDemand) -> NDArray[np.float64]:
    """How far below T' each replica stays, as a fraction.

    The slowest of n normal iterations is on average ``sqrt(2 ln n) - 0.55`` standard deviations late (within
    0.1 from 2 to 1000): so much is kept, less the excess that is accepted on average.
    """
    slowest = math.sqrt(2.0 * math.log(max(2, len(demand.free_s)))) - 0.55
    late = slowest * np.hypot(demand.scatter, demand.error[demand.last])
    kept: NDArray[np.float64] = np.maximum(LEAST_MARGIN, late - EXCESS)
    return kept
