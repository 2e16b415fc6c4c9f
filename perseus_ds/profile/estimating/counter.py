"""An energy counter that moves in steps, read as a continuous quantity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import IncompleteProfileError


class CounterTrace:
    """The moments at which a counter was seen to change, with the value it changed to.

    A data-centre GPU's counter moves about every 100 ms: between two changes energy is interpolated,
    and no single instruction is ever read off it.

    Units: seconds on the device's time base; joules.
    Source: arXiv 2312.02741 (update periods); shared by every estimate of energy here.
    """

    def __init__(self, time_s: Sequence[float], energy_j: Sequence[float]) -> None:
        self.time_s: NDArray[np.float64] = np.asarray(time_s, np.float64)
        self.energy_j: NDArray[np.float64] = np.asarray(energy_j, np.float64)

    def __len__(self) -> int:
        return len(self.time_s)

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether the counter moved before ``start_s`` and after ``end_s``."""
        return len(self) > 1 and bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def energy_between(self, start_s: float, end_s: float) -> float:
        """Joules used from ``start_s`` to ``end_s``.

        Raises:
            IncompleteProfileError: the counter was not watched over all of it.
        """
        if not self.covers(start_s, end_s):
            raise IncompleteProfileError(
                f"the energy counter moved {len(self)} times and not on both sides of the "
                f"{end_s - start_s:.3g} s measured",
                hint="measure for longer than the counter's period",
            )
        start_j, end_j = np.interp([start_s, end_s], self.time_s, self.energy_j)
        return float(end_j - start_j)
