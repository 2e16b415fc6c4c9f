"""Stragglers held back by a power or thermal cap: locked below the throttle point, and tried again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.observation import ReplicaObservation
from perseus_ds.straggler.tuning import (
    CONFIRMATIONS,
    LEAST_JUMP,
    NOISE_SIGMAS,
    PROBE_AFTER,
    PROBE_AFTER_MOST,
    PROBE_ROUNDS,
)

_AT_FULL_SPEED = 1.0 + 1e-9


@dataclass(slots=True)
class _Lock:
    """One capped replica: how long its own plan is kept until full speed is tried, and how far that is."""

    patience: int
    rounds_left: int
    tries_left: int = 0
    late: int = 0


class Capping:
    """Which stragglers run their own best plan instead of full speed.

    A device at its cap runs slower than it is asked to and uses more energy than one locked at the clock
    that it reaches. At the locked plan nothing shows whether the cap is gone, so full speed is tried for
    two iterations: after 16, then every 32.
    """

    def __init__(self) -> None:
        self.turned = False
        self._locks: dict[int, _Lock] = {}

    @property
    def busy(self) -> bool:
        """Whether somebody is capped."""
        return bool(self._locks)

    def locked(self) -> list[int]:
        """Replicas that run their own best plan now."""
        return [replica for replica, lock in self._locks.items() if not lock.tries_left]

    def capped(self, replica: int) -> bool:
        """Whether a cap is what makes it slow."""
        return replica in self._locks

    def observe(
        self,
        observed: ReplicaObservation,
        ratio: NDArray[np.float64],
        *,
        fastest_s: NDArray[np.float64],
        slow: NDArray[np.bool_],
        settled: NDArray[np.bool_],
        band: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Move on by one iteration; return the ratios without those that prove nothing of full speed.

        ``settled`` marks replicas of which enough is known to state how slow they are. ``band`` is the ratio
        above which a locked replica breaks its promise.
        """
        self.turned = False
        for one in map(int, np.flatnonzero(slow & settled & observed.capped)):
            if one not in self._locks:
                self._locks[one] = _Lock(PROBE_AFTER, PROBE_AFTER)
                self.turned = True
        if not self._locks:
            return ratio
        at_full_speed = observed.planned_s <= fastest_s * _AT_FULL_SPEED
        for replica, lock in list(self._locks.items()):
            if not slow[replica]:
                del self._locks[replica]
                self.turned = True
            elif np.isfinite(ratio[replica]):
                late = bool(ratio[replica] > band[replica])
                self.turned |= _step(lock, at_full_speed=bool(at_full_speed[replica]), late=late)
        masked = [replica for replica in self._locks if not at_full_speed[replica]]
        ratio = ratio.copy()
        ratio[masked] = np.nan
        return ratio


def promise_band(usual: float, scatter: NDArray[np.float64]) -> NDArray[np.float64]:
    """Measured by planned duration from which a replica is late beyond the noise."""
    return usual * (1.0 + np.maximum(LEAST_JUMP, NOISE_SIGMAS * scatter))


def _step(lock: _Lock, *, at_full_speed: bool, late: bool) -> bool:
    """One known iteration of a capped replica; return whether its budget changes."""
    if lock.tries_left:
        lock.tries_left -= at_full_speed
        return not lock.tries_left
    lock.rounds_left -= 1
    lock.late = lock.late + 1 if late and not at_full_speed else 0
    if lock.rounds_left > 0 and lock.late < CONFIRMATIONS:
        return False
    lock.patience = min(2 * lock.patience, PROBE_AFTER_MOST)
    lock.rounds_left, lock.tries_left, lock.late = lock.patience, PROBE_ROUNDS, 0
    return True
