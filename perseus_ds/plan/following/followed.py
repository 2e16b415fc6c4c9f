"""What one iteration's own plan asks of the ranks of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.plan.playing.clock_requests import RankClocks


@dataclass(frozen=True, slots=True)
class Followed:
    """The plan of one iteration, whose loads were known.

    ``time_s`` is what it takes as predicted. ``ends_s`` is when each of the first rank's computations is
    over, ``energy_j`` what the computations of a pipeline use beyond the power of waiting.

    Shape: ``clocks`` [ranks].
    """

    time_s: float
    energy_j: float
    ends_s: Sequence[float]
    clocks: tuple[RankClocks, ...]
