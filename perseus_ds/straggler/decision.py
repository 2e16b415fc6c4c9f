"""The decision: which replicas are slow, where all meet, and how long each replica may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Cause(Enum):
    """Why a replica is the one that others wait for."""

    MEASURED = "measured"
    ANNOUNCED = "announced"
    CAPPED = "capped"
    STRUCTURAL = "structural"

    @property
    def text(self) -> str:
        """For a log line."""
        return {
            Cause.MEASURED: "slower than its plan",
            Cause.ANNOUNCED: "announced from outside",
            Cause.CAPPED: "held back by a power or thermal cap",
            Cause.STRUCTURAL: "its own frontier is longer",
        }[self]


@dataclass(frozen=True, slots=True)
class Straggler:
    """One slow replica; ``slowdown`` is 1.2 where it takes 20 % longer than its peers would.

    ``doubt`` is the probability that noise alone makes some replica of the job look so; 0 where nothing is
    concluded from measurements.
    """

    replica: int
    slowdown: float
    cause: Cause
    doubt: float = 0.0


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """What one replica's plan may take.

    ``limit_s`` is in seconds as its own plans predict them; None means its objective's plan.
    """

    limit_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StragglerDecision:
    """The same on all ranks after the same observations.

    ``sync_time_s`` is the iteration time T' that the job cannot beat, as measured; None where nobody waits.
    ``limit_s`` [replicas] is every replica's budget (NaN: its objective's plan), ``changed`` whether one of
    them differs from the decision before. ``unconfirmed`` lists replicas that are announced as slow and
    measure as fast as their peers. ``ended``: answers have cost what they may, and none is given.
    """

    sync_time_s: float | None
    stragglers: tuple[Straggler, ...]
    limit_s: NDArray[np.float64]
    waiting: tuple[int, ...]
    unconfirmed: tuple[int, ...]
    changed: bool
    ended: bool = False

    def budget(self, replica: int) -> TimeBudget:
        """Return what one replica's plan may take."""
        limit_s = float(self.limit_s[replica])
        return TimeBudget(None if np.isnan(limit_s) else limit_s)
