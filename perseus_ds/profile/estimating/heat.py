"""What a GPU took before a window, by which its temperature goes, and how much it leaks for that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perseus_ds.profile.estimating.window import CounterTrace
from perseus_ds.profile.record import Computation, Point

Points = Mapping[Computation, Point]

SETTLES_S = 40.0
"""Time constant of a GPU with its heat sink: assumed."""
MOST_LEAKAGE = 0.1
_TINY = 1e-9


@dataclass(slots=True)
class Heat:
    """Mean power of the past, the latest counting most: in a steady state it is the power itself.

    What was before the first trace is taken to have been like it.

    Units: watts.
    """

    power_w: float | None = None
    until_s: float = -math.inf

    def over(self, trace: CounterTrace, start_s: float) -> float:
        """Go on through a trace; return the mean from a moment on."""
        times_s, energies_j = trace.time_s, trace.energy_j
        seen_w, seen_s = 0.0, 0.0
        if self.power_w is None and len(trace) > 1:
            self.power_w = float((energies_j[-1] - energies_j[0]) / (times_s[-1] - times_s[0]))
        for begin_s, end_s, spent_j in zip(times_s, times_s[1:], np.diff(energies_j), strict=False):
            if begin_s < self.until_s or self.power_w is None:
                continue
            lasts_s = float(end_s - begin_s)
            towards = -math.expm1(-lasts_s / SETTLES_S)
            self.power_w += towards * (float(spent_j) / lasts_s - self.power_w)
            self.until_s = float(end_s)
            if begin_s >= start_s:
                seen_w, seen_s = seen_w + self.power_w * lasts_s, seen_s + lasts_s
        return seen_w / seen_s if seen_s else self.power_w or 0.0


@dataclass(frozen=True, slots=True)
class Leakage:
    """How many watts more a GPU takes for every watt that it took before, with its standard error."""

    share: float
    error: float


def leakage_of(warm: Points, cool: Points, cooler_w: float) -> Leakage:
    """Compare the powers of the same computations at one clock, before and after the GPU has cooled.

    ``cooler_w`` is by how much less it had taken before. What that shows is weighted with what is known of
    such parts (`USUAL`); where nothing was measured a second time that alone is left.
    """
    both = warm.keys() & cool.keys()
    total_s = sum(warm[key].time_s for key in both)
    spared_j = sum(
        warm[key].energy_j - cool[key].energy_j * warm[key].time_s / cool[key].time_s for key in both
    )
    error_j = math.hypot(*(one[key].energy_se_j for key in both for one in (warm, cool)))
    weight = (USUAL.error * cooler_w * total_s / max(error_j, _TINY)) ** 2 if cooler_w > 0.0 else 0.0
    measured = spared_j / (cooler_w * total_s) if weight else 0.0
    share = (USUAL.share + weight * measured) / (1.0 + weight)
    return Leakage(min(max(share, 0.0), MOST_LEAKAGE), USUAL.error / math.sqrt(1.0 + weight))


USUAL = Leakage(0.03, 0.015)
"""0.3 W per K (A100, one public log) and heat sinks of 0.05 to 0.15 K per W."""
