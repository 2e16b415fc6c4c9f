"""What all ranks know of one iteration: the same numbers everywhere, so that all decide alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaStatus:
    """Every replica in one iteration: its slowest rank's own time, caps, announcements.

    An ``own_s`` that is not finite is unknown; an ``announced`` below 1 announces nothing.

    Shape: vectors [replicas].
    """

    own_s: NDArray[np.float64]
    capped: NDArray[np.bool_]
    announced: NDArray[np.float64]

    @classmethod
    def unknown(cls, replicas: int) -> ReplicaStatus:
        """Return an iteration of which nothing was reported."""
        return cls(np.full(replicas, np.nan), np.zeros(replicas, dtype=np.bool_), np.ones(replicas))


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaObservation:
    """One iteration of every replica.

    ``own_s`` is how long the replica's first stage took without its wait for other replicas. ``planned_s`` is
    what the plan that it ran predicts for itself. Both are in seconds from release to release, never times of
    day. (Every stage is released by its own reduction. A later stage of a replica that waits is released
    early and then waits for its first activation. No mark separates that wait from its own time.) What is not
    finite and above 0 is unknown (default clocks, an audit, an evaluation came between). ``announced`` is a
    slowdown announced from outside, 1 where none is; ``capped`` whether a device of the replica reported a
    power or thermal cap. ``load`` is how many times the usual work it had: both times are at the usual load.

    Shape: vectors [replicas].
    """

    own_s: NDArray[np.float64]
    planned_s: NDArray[np.float64]
    announced: NDArray[np.float64]
    capped: NDArray[np.bool_]
    load: NDArray[np.float64] | None = None
