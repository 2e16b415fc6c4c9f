"""A mean that a few hiccups do not move, with its own standard error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

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

    Of the values ``alike`` count as one, since they share an error (`aliasing`). Fewer than four that do not
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


def added(parts: Iterable[Estimated]) -> Estimated:
    """Add means whose errors may go together: they are added too."""
    known = list(parts)
    return Estimated(
        sum(part.mean for part in known), sum(part.se for part in known), min(part.freedom for part in known)
    )
