"""Clocks at which computations take a little longer than at the plan's, beside a peer that is slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from perseus_ds.plan import Options


def slower_clocks(options: Iterable[Options], clocks_mhz: Sequence[int], room: float) -> dict[int, int]:
    """For every clock of a plan the lowest at which no computation takes more than ``room`` longer.

    ``options`` are those of this rank's computations. Times between measured clocks are interpolated over the
    clock's inverse, and nothing is asked for below the lowest that was measured.

    Shape: ``clocks_mhz`` the GPU's, in any order. ``room`` is relative: 0.04 is 4 %.
    """
    several = list(options)
    measured = sorted({int(clock) for one in several for clock in one.clock_mhz}, reverse=True)
    found = {}
    for clock in measured:
        lower = [one for one in clocks_mhz if measured[-1] <= one <= clock]
        fits = [one for one in lower if all(_longer(o, clock, one) <= 1.0 + room for o in several)]
        found[clock] = min(fits, default=clock)
    return found


def _longer(options: Options, clock_mhz: int, slower_mhz: int) -> float:
    """How many times longer a computation takes at the slower clock."""
    inverse = 1.0 / options.clock_mhz.astype(np.float64)
    taken_s = np.interp(1.0 / np.array([clock_mhz, slower_mhz]), inverse, options.time_s[: len(inverse)])
    return float(taken_s[1] / taken_s[0])
