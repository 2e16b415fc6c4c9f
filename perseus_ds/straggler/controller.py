"""The watch over all replicas: one round after another, one verdict each, alike on every rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.capping import Capping, promise_band
from perseus_ds.straggler.decision import Cause, Straggler, Verdict
from perseus_ds.straggler.observation import Round
from perseus_ds.straggler.slowdown_estimate import Levels
from perseus_ds.straggler.sync_time import Need, limits_s, margin
from perseus_ds.straggler.tuning import (
    CONFIRMATIONS,
    LEAST_MOVE,
    LEAST_SLACK,
    LEAST_SLACK_KEPT,
    NOISE_SIGMAS,
    REVIEW_EVERY,
    REVIEW_EVERY_MOST,
    REVIEW_EVERY_WHILE_CALM,
)

_Replicas = NDArray[np.float64]


class Vigil:
    """Judge every replica by its own plan's prediction, and answer.

    A replica that was slowed on purpose keeps its promise and so is no straggler. What it would need at
    full speed is what its fastest plan predicts times how it keeps its promises: nothing that is decided
    here feeds back into the time at which all meet.

    ``objective_s`` and ``fastest_s`` are what each replica's plans predict (``Menu``).

    Shape: vectors [replicas].
    """

    def __init__(self, objective_s: _Replicas, fastest_s: _Replicas) -> None:
        replicas = len(objective_s)
        self._objective_s = np.asarray(objective_s, dtype=np.float64)
        self._fastest_s = np.asarray(fastest_s, dtype=np.float64)
        self._levels = Levels(replicas)
        self._capping = Capping()
        self._slow = np.zeros(replicas, dtype=np.bool_)
        self._anyone_slow = False
        self._told = np.ones(replicas)
        self._told_bytes = b""
        self._waits_s = np.full(replicas, np.nan)
        self._usual = 1.0
        self._review_every = REVIEW_EVERY
        self._verdict = Verdict(None, (), self._waits_s, (), (), changed=False)

    def hear(self, heard: Round) -> Verdict:
        """Take in one iteration; return what holds from now on.

        Cost: linear in replicas; a few vector operations while nothing happens.
        """
        ratio = self._heeding_caps(heard, _ratio(heard))
        moved = self._levels.hear(ratio, impatient=self._slow, review_every=self._review_every)
        told = heard.told.tobytes()
        if moved or self._capping.turned or told != self._told_bytes:
            self._told_bytes = told
            self._told = np.where(np.isfinite(heard.told), np.maximum(heard.told, 1.0), 1.0)
            self._verdict = self._judged()
            self._review_every = self._patience()
        elif self._verdict.changed:
            self._verdict = replace(self._verdict, changed=False)
        return self._verdict

    def _patience(self) -> int:
        """After how many iterations the medians are due again: soon after a change, else in good time."""
        if self._verdict.meeting_s is None:
            return REVIEW_EVERY_WHILE_CALM
        return REVIEW_EVERY if self._verdict.changed else min(2 * self._review_every, REVIEW_EVERY_MOST)

    def _heeding_caps(self, heard: Round, ratio: _Replicas) -> _Replicas:
        if not self._capping.busy and not (self._anyone_slow and heard.capped.any()):
            return ratio
        return self._capping.hear(
            heard,
            ratio,
            fastest_s=self._fastest_s,
            slow=self._slow,
            settled=self._levels.sure,
            band=promise_band(self._usual, self._levels.scatter),
        )

    def _judged(self) -> Verdict:
        pace, self._usual = self._pace()
        self._slow = self._measured_slow(pace / self._usual - 1.0)
        self._anyone_slow = bool(self._slow.any())
        announced = (self._told > 1.0) & ~self._slow
        pace = np.where(announced, np.maximum(pace, self._told * self._usual), pace)
        hurries = self._slow | announced
        least_s = np.where(hurries, self._fastest_s, self._objective_s)
        free_s = pace * least_s
        if self._anyone_slow:
            slow = self._slow.nonzero()[0]
            free_s[slow] *= 1.0 + self._levels.sinking(slow)
        known = self._levels.count >= CONFIRMATIONS
        last = int(free_s.argmax())
        need = Need(free_s, self._levels.error, self._levels.scatter, least_s, pace, known, last)
        self._waits_s = limits_s(need, self._waits_s)
        waiting = np.isfinite(self._waits_s).nonzero()[0]
        return self._verdict_on(need, hurries, announced, waiting)

    def _verdict_on(
        self, need: Need, hurries: NDArray[np.bool_], announced: NDArray[np.bool_], waiting: NDArray[np.intp]
    ) -> Verdict:
        limit_s = np.where(hurries & (self._fastest_s < self._objective_s), self._fastest_s, np.nan)
        limit_s = np.where(np.isfinite(self._waits_s), self._waits_s, limit_s)
        for replica in self._capping.locked():
            limit_s[replica] = self._locked_s(need, replica)
        return Verdict(
            meeting_s=float(need.free_s[need.last]) if len(waiting) else None,
            stragglers=self._stragglers(need, hurries, announced, anyone_waits=len(waiting) > 0),
            limit_s=limit_s,
            waiting=tuple(waiting.tolist()),
            unfounded=tuple((announced & self._levels.sure).nonzero()[0].tolist()),
            changed=limit_s.tobytes() != self._verdict.limit_s.tobytes(),
        )

    def _locked_s(self, need: Need, replica: int) -> float:
        """Its own best plan within T': at a clock that it holds, it keeps its promises as all do.

        Held until it moves by more than the noise, as every limit is.
        """
        limit_s = float(need.free_s[need.last] * (1.0 - margin(need)[replica]) / self._usual)
        held_s = float(self._verdict.limit_s[replica])
        near = abs(limit_s / held_s - 1.0) < max(LEAST_MOVE, 1.5 * float(need.error[replica]))
        return held_s if near else limit_s

    def _pace(self) -> tuple[_Replicas, float]:
        """Measured by planned duration of each replica, and what is usual among them.

        One iteration alone makes nobody slow.
        """
        level = self._levels.level
        known = np.isfinite(level)
        usual = _lower_quartile(level[known]) if known.any() else 1.0
        pace = np.where(known, level, usual)
        fresh = (self._levels.count < CONFIRMATIONS) & ~self._slow
        return np.where(fresh, np.minimum(pace, usual), pace), usual

    def _measured_slow(self, slowness: _Replicas) -> NDArray[np.bool_]:
        error = self._levels.error
        from_s = np.where(
            self._slow,
            np.maximum(LEAST_SLACK_KEPT, 2.0 * error),
            np.maximum(LEAST_SLACK, NOISE_SIGMAS * error),
        )
        return slowness > from_s

    def _stragglers(
        self,
        need: Need,
        hurries: NDArray[np.bool_],
        announced: NDArray[np.bool_],
        *,
        anyone_waits: bool,
    ) -> tuple[Straggler, ...]:
        found = [self._straggler(need, int(r), announced) for r in hurries.nonzero()[0]]
        if anyone_waits and not hurries[need.last]:
            slowdown = float(need.free_s[need.last]) / _lower_quartile(need.free_s)
            found.append(Straggler(need.last, slowdown, Cause.STRUCTURAL))
        return tuple(sorted(found, key=lambda one: -need.free_s[one.replica]))

    def _straggler(self, need: Need, replica: int, announced: NDArray[np.bool_]) -> Straggler:
        cause = Cause.TOLD if announced[replica] else Cause.MEASURED
        if self._capping.capped(replica):
            cause = Cause.CAPPED
        return Straggler(replica, float(need.pace[replica] / self._usual), cause)


def _ratio(heard: Round) -> _Replicas:
    """Measured by planned duration; not finite or not above 0 where either is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return heard.own_s / heard.planned_s


def _lower_quartile(levels: _Replicas) -> float:
    """What a quarter of all do not exceed: with few replicas the fastest."""
    place = (len(levels) - 1) // 4
    return float(np.partition(levels, place)[place])
