"""Variation of sizes and durations: whether batches differ, and by how much."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

_ALIKE_WITHIN = 0.02


def differ(sizes: _Numbers) -> bool:
    """Whether samples are of more than one size; one that is not reported (0) states nothing."""
    return bool(len(sizes) > 1 and sizes.min() > 0 and sizes.max() > (1.0 + _ALIKE_WITHIN) * sizes.min())


def variation(sizes: _Numbers, microbatches: _Numbers) -> float:
    """By what share of their mean neighbouring sizes vary (standard deviation); 0 where they are unknown.

    Neighbours are of one iteration: there the number of the microbatch rises. What is alike for a whole
    iteration stretches all of it, and is not counted.
    """
    apart = np.diff(sizes)[np.diff(microbatches) > 0]
    if not differ(sizes) or not len(apart):
        return 0.0
    return float(np.sqrt((apart**2).mean() / 2.0) / sizes.mean())


def spread(values: _Numbers) -> float:
    """How far the middle four fifths of some values lie apart, in parts of their median."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return float((high - low) / middle) if middle > 0 else 0.0


def log_normal(share: _Numbers | float, normal: _Numbers) -> _Numbers:
    """Turn standard normal draws into positive factors of mean 1 with a relative standard deviation."""
    width = np.sqrt(np.log1p(np.square(share)))
    drawn: _Numbers = np.exp(width * normal - width**2 / 2.0)
    return drawn
