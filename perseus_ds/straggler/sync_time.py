"""Where all meet: T' from what every replica needs at full speed, and who can wait how slowly."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import (
    EXCESS,
    KEPT_SIGMAS,
    LEAST_MARGIN,
    LEAST_MOVE,
    LEAST_SLACK,
    LEAST_SLACK_KEPT,
    NOISE_SIGMAS,
)


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaDemand:
    """What every replica needs when nobody slows it down.

    ``free_s`` is measured seconds, ``error`` its relative standard error, ``scatter`` that of one iteration.
    ``least_s`` is the planned seconds of its plan where it does not wait, ``pace`` measured seconds per
    planned second. ``known`` is whether enough is known of it to slow it down; ``last`` is the replica that
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


def limits_s(
    demand: ReplicaDemand, held_s: NDArray[np.float64], *, most_s: float = np.inf
) -> NDArray[np.float64]:
    """Return how slow each replica may plan, in its own planned seconds; NaN where it has no slack.

    ``held_s`` are the limits so far: one is moved only when the new one differs by more than the noise.
    ``most_s`` is how long an iteration may be made, as measured, for what answers may cost.

    Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
    """
    last = demand.last
    error = np.hypot(demand.error, demand.error[last])
    most = most_s / demand.pace
    limit_s = np.minimum(demand.free_s[last] * (1.0 - margin(demand)) / demand.pace, most)
    slack = limit_s / demand.least_s - 1.0
    held = np.isfinite(held_s)
    enough = np.where(
        held,
        np.maximum(LEAST_SLACK_KEPT, KEPT_SIGMAS * error),
        np.maximum(LEAST_SLACK + KEPT_SIGMAS * error, NOISE_SIGMAS * error),
    )
    keep = (
        held
        & (held_s <= most * (1.0 + LEAST_MOVE))
        & (np.abs(limit_s / held_s - 1.0) < np.maximum(LEAST_MOVE, 1.5 * error))
    )
    has_slack = (slack > enough) & (held | demand.known)
    has_slack[last] = False
    return np.where(has_slack, np.where(keep, held_s, limit_s), np.nan)


def margin(demand: ReplicaDemand) -> NDArray[np.float64]:
    """How far below T' each replica stays, as a fraction.

    Each of the others, and the last itself, vary. That they end after it costs on average the expected excess
    of one normal number above another. The sum of these stays within what is accepted.
    """
    last = demand.last
    apart = np.hypot(np.hypot(demand.scatter, demand.scatter[last]), demand.error[last])
    with np.errstate(divide="ignore"):
        accepted = EXCESS / (max(1, len(demand.free_s) - 1) * apart)
    kept: NDArray[np.float64] = np.maximum(LEAST_MARGIN, sigmas_below(accepted) * apart)
    return np.where(np.isfinite(apart), kept, np.inf)


_SIGMAS = np.linspace(0.0, 6.0, 241)
_LATE = np.array([NormalDist().pdf(x) - x * NormalDist().cdf(-x) for x in _SIGMAS])


def sigmas_below(late: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """How far below 0 a normal number's mean is whose part above 0 is ``late`` on average.

    Units: standard deviations.
    """
    found: NDArray[np.float64] = np.interp(np.negative(late), -_LATE, _SIGMAS)
    return found
