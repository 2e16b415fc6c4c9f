"""What was decided: who is slow, where all meet, and what every replica aims at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Cause(Enum):
    """Why a replica is the one that others wait for."""

    MEASURED = "measured"
    TOLD = "told"
    CAPPED = "capped"
    STRUCTURAL = "structural"

    @property
    def text(self) -> str:
        """For a log line."""
        return {
            Cause.MEASURED: "slower than its plan",
            Cause.TOLD: "announced from outside",
            Cause.CAPPED: "held back by a power or thermal cap",
            Cause.STRUCTURAL: "its own frontier is longer",
        }[self]


@dataclass(frozen=True, slots=True)
class Straggler:
    """One slow replica; ``slowdown`` is 1.2 where it takes 20 % longer than its peers would."""

    replica: int
    slowdown: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class Aim:
    """What one replica's plan may take.

    ``limit_s`` is in seconds as its own plans predict them; None means its objective's plan.
    """

    limit_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The same on all ranks after the same rounds.

    ``meeting_s`` is the iteration time T' that the job cannot beat, as measured; None where nobody waits.
    ``limit_s`` [replicas] is every replica's aim (NaN: its objective's plan), ``changed`` whether one of
    them differs from the verdict before. ``unfounded`` lists replicas that are announced as slow and
    measure as fast as their peers.
    """

    meeting_s: float | None
    stragglers: tuple[Straggler, ...]
    limit_s: NDArray[np.float64]
    waiting: tuple[int, ...]
    unfounded: tuple[int, ...]
    changed: bool

    def aim(self, replica: int) -> Aim:
        """Return what one replica aims at."""
        limit_s = float(self.limit_s[replica])
        return Aim(None if np.isnan(limit_s) else limit_s)
