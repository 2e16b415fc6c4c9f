"""By how much longer than profiled durations are planned, for the profile's own errors.

An error of a profile is alike in all microbatches, and a plan prefers clocks that are too good by chance. So
what a clock costs in time against the highest one is taken as somewhat more than it seems.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import Computation, Profile, drawn_shares, time_factor

SURENESS = 0.5
"""Standard deviations of what a clock costs in time that are planned beyond its mean.

Found on profiles with errors: 0.5 % of an entry then cost 0.05 % of an
iteration on average, 2 % cost 0.12 %. More would cost energy.
"""
_DRAWS = 400


def margins_s(known: Profile) -> Mapping[Computation, NDArray[np.float64]]:
    """Return what the durations of all computations are planned longer; nothing of those without errors.

    Shape: [clocks] each, highest clock first, for which it is 0.
    """
    random = np.random.default_rng(0)
    found = {}
    for key in known.points:
        factor = time_factor(known, key)
        if factor.any():
            time_s = np.array([point.time_s for point in known.of(*key)])
            found[key] = _margin_s(time_s, factor, random)
    return found


def _margin_s(
    time_s: NDArray[np.float64], factor: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:
    """By how much more than it seems a clock may cost against the highest one, in all draws of the errors."""
    normal = random.standard_normal((len(time_s), _DRAWS))
    drawn_s = time_s[:, None] * drawn_shares(time_s, factor, normal)
    more_s = (drawn_s - drawn_s[0]) - (time_s - time_s[0])[:, None]
    return np.asarray(np.maximum(more_s.mean(axis=1) + SURENESS * more_s.std(axis=1), 0.0))
