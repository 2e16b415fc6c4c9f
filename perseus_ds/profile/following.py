"""Which transfers last as their sender's clock lets them: copies by kernels do, copy engines do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_LEAST_WINDOWS = 3
_LEAST_SHARE = 0.02
_CERTAIN = 3.0  # standard errors


def follows_clock(clocks_mhz: Sequence[int], durations_s: Sequence[float]) -> float:
    """What share of a duration at the highest clock is in inverse proportion to the clock.

    A line over the inverse of the clock through what all windows saw; 0 where it does not rise for certain.

    Shape: both [windows].
    """
    if len(set(clocks_mhz)) < _LEAST_WINDOWS or min(durations_s) <= 0.0:
        return 0.0
    slower = max(clocks_mhz) / np.array(clocks_mhz, np.float64)
    lasts_s = np.array(durations_s)
    about = slower - slower.mean()
    rise_s = float(about @ lasts_s / (about @ about))
    still_s = float(lasts_s.mean() - rise_s * slower.mean())
    off_s = lasts_s - still_s - rise_s * slower
    error_s = float(np.sqrt(off_s @ off_s / (len(slower) - 2) / (about @ about)))
    share = min(1.0, rise_s / (still_s + rise_s)) if still_s + rise_s > 0.0 else 0.0
    return share if rise_s > _CERTAIN * error_s and share >= _LEAST_SHARE else 0.0


def lasts_times(share: float, *, clock_mhz: float, highest_mhz: float) -> float:
    """How many times as long it lasts at a clock as at the highest."""
    return 1.0 + share * (highest_mhz / clock_mhz - 1.0)
