"""How many neighbouring measurements share one error: a counter may look at the same moments of each.

A counter that watches a part of its period and takes that for the whole is wrong where the power changes.
Measurements that begin at the same moment of a period are wrong alike. Half of them are high and half of them
low where they begin at all moments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def alike(lasts_s: NDArray[np.float64], begins: NDArray[np.bool_], period_s: float | None) -> float:
    """As many measurements count as one; 1 where each is independent.

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
