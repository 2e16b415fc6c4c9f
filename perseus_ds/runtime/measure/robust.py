"""A mean that a few hiccups do not move, with its own standard error, and how many values share one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CUT = 0.25
_LEAST_FREEDOM = 0.5


@dataclass(frozen=True, slots=True)
class Estimated:
    """A mean, its standard error, and how many degrees of freedom that error has (0: it is not known)."""

    mean: float
    se: float
    freedom: float


def robust_mean(values: Sequence[float], *, alike: float = 1.0) -> Estimated:
    """Mean of the middle half, with the error of a trimmed mean: the spread with both ends drawn in.

    Of the values ``alike`` count as one, since they share an error (`alike`). Fewer than four that do not
    are simply averaged.

    Source: Tukey and McLaughlin, Sankhya A 25 (1963).
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    cut = int(int(_CUT * count / alike) * alike)
    middle = ordered[cut : count - cut]
    kept = len(middle)
    freedom = kept / alike - 1.0
    if freedom < _LEAST_FREEDOM:
        return Estimated(float(middle.mean()) if kept else 0.0, math.inf, 0)
    drawn_in = np.clip(ordered, middle[0], middle[-1])
    spread = float(((drawn_in - drawn_in.mean()) ** 2).sum())
    return Estimated(float(middle.mean()), math.sqrt(spread / (kept * freedom)), freedom)


def alike(lasts_s: NDArray[np.float64], begins: NDArray[np.bool_], period_s: float | None) -> float:
    """As many measurements count as one; 1 where each is independent.

    A counter that watches a part of its period and takes that for the whole is wrong where the power changes.
    Measurements that begin at the same moment of a period are wrong alike. Half of them are high and half of
    them low where they begin at all moments.

    ``begins`` is true where a measurement does not follow the one before it at once. It then begins at an
    unknown moment of the period.

    The error of a power that steps is a saw-tooth over the moment of the period. The errors of two
    measurements that begin ``x`` periods apart correlate as ``1 - 6 x + 6 x^2``, x between 0 and 1. Errors
    that cancel more than by chance are not counted on.

    Shape: both [measurements], in the order of time.
    Cost: quadratic in the measurements that follow each other.
    """
    if not period_s or not len(lasts_s):
        return 1.0
    shared = 0.0
    for block_s in np.split(lasts_s, np.flatnonzero(begins)[1:]):
        moments = np.concatenate([[0.0], np.cumsum(block_s[:-1])]) / period_s
        apart = np.abs(moments[:, None] - moments) % 1.0
        shared += float((1.0 - 6.0 * apart + 6.0 * apart**2).sum())
    return max(1.0, shared / len(lasts_s))
