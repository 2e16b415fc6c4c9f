"""Straggler control: one observation of all replicas in, one decision out, alike on every rank."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.answer_cost import AnswerCost
from perseus_ds.straggler.decision import Cause, Straggler, StragglerDecision
from perseus_ds.straggler.estimate.slowdown_estimate import SlowdownEstimate
from perseus_ds.straggler.observation import ReplicaObservation
from perseus_ds.straggler.sync_time import ReplicaDemand, limits_s
from perseus_ds.straggler.tuning import (
    CONFIRMATIONS,
    FALSE_ALARM,
    KEPT_SIGMAS,
    LEAST_SCATTER,
    LEAST_SLACK,
    LEAST_SLACK_KEPT,
    MAX_COST_PCT,
    PROVED_SIGMAS,
    REVIEW_EVERY,
    REVIEW_EVERY_MOST,
    REVIEW_EVERY_WHILE_CALM,
    SURE_SIGMAS,
)

_Replicas = NDArray[np.float64]

_SHRUNK_BY = 4.0  # iterations that a replica's own pace is worth before any was seen


class StragglerController:
    """Judge every replica by its own plan's prediction, and answer.

    A replica that was slowed on purpose keeps its promise and so is no straggler. What it would need at full
    speed is what its fastest plan predicts times how it keeps its promises. Nothing that is decided here
    feeds back into the time at which all meet.

    ``objective_s`` and ``fastest_s`` are what each replica's plans predict (``FrontierIndex``). ``scatter``
    is how much an iteration varies by the profile (NaN: unknown, and nobody is judged until it is seen).
    Answers cost ``max_cost_pct`` of the last 1 000 iterations at most, where a recovery is answered
    ``exposed`` iterations late (``AnswerCost``).

    Shape: vectors [replicas].
    """

    def __init__(
        self,
        objective_s: _Replicas,
        fastest_s: _Replicas,
        *,
        scatter: float = math.nan,
        max_cost_pct: float = MAX_COST_PCT,
        exposed: int = 2,
    ) -> None:
        replicas = len(objective_s)
        self._objective_s = np.asarray(objective_s, dtype=np.float64)
        self._fastest_s = np.asarray(fastest_s, dtype=np.float64)
        self._estimate = SlowdownEstimate(replicas, scatter)
        self._level_sigmas = NormalDist().inv_cdf(1.0 - FALSE_ALARM / replicas**2)
        self._cost = AnswerCost(self._objective_s, max_pct=max_cost_pct, exposed=exposed)
        self._slow = np.zeros(replicas, dtype=np.bool_)
        self._anyone_slow = False
        self._announced = np.ones(replicas)
        self._announced_bytes = b""
        self._limits_s = np.full(replicas, np.nan)
        self._usual, self._usual_of = 1.0, 0
        self._paces = np.ones(replicas)
        self._review_every = REVIEW_EVERY
        self._decision = StragglerDecision(None, (), self._limits_s, (), (), changed=False)
        self._restricted = False
        self._capped = np.zeros(replicas, dtype=np.bool_)

    def restrict(self, objective_s: _Replicas, fastest_s: _Replicas) -> None:
        """Go on with other plans where nobody waits and at full speed: a power cap has changed.

        What is known of each replica's pace stays: it is by the plan that was run.
        """
        self._objective_s, self._fastest_s = objective_s, fastest_s
        self._cost.expect(objective_s)
        self._restricted = True

    def observe(self, observed: ReplicaObservation, *, costs: bool = True) -> StragglerDecision:
        """Take in one iteration; return what holds from now on.

        Not ``costs``: it was run by plans that are not to be chosen any more, which is no answer's cost.

        Cost: linear in replicas; a few vector operations while nothing happens.
        """
        if costs and self._announced.max() <= 1.0:  # what was told is believed, whatever it costs
            self._cost.observe(observed.own_s, observed.planned_s, load=observed.load)
        self._capped = observed.capped
        moved = self._estimate.observe(
            _ratio(observed), impatient=self._slow, review_every=self._review_every
        )
        announced = observed.announced.tobytes()
        anew, self._restricted = self._restricted, False
        if moved or anew or self._cost.spent != self._decision.ended or announced != self._announced_bytes:
            self._announced_bytes = announced
            self._announced = np.where(
                np.isfinite(observed.announced), np.maximum(observed.announced, 1.0), 1.0
            )
            self._decision = self._judged()
            self._review_every = self._patience()
        elif self._decision.changed:
            self._decision = replace(self._decision, changed=False)
        return self._decision

    @property
    def cost_pct(self) -> float:
        """What answers have cost over the last 1 000 iterations."""
        return self._cost.pct

    @property
    def slow(self) -> NDArray[np.bool_]:
        """The replicas that are slow, or announced to be.

        Shape: [replicas].
        """
        slow: NDArray[np.bool_] = self._slow | (self._announced > 1.0)
        return slow

    @property
    def may_slow(self) -> bool:
        """Whether answers may cost any more time."""
        return not self._cost.spent

    @property
    def pace(self) -> _Replicas:
        """Measured by planned duration of each replica, as far as that is known: of few iterations, in part.

        Shape: [replicas].
        """
        shrunk = self._estimate.count / (self._estimate.count + _SHRUNK_BY)
        trusted = np.where(self.slow, 1.0, shrunk)
        pace: _Replicas = self._usual + (self._paces - self._usual) * trusted
        return pace

    def longest_allowed_s(self, least_s: _Replicas) -> float:
        """How long an iteration may be made for those who wait, should the stragglers recover.

        ``least_s`` is what each replica needs as planned, in seconds (NaN: unknown). What was
        announced may cost anything.

        Shape: [replicas].
        """
        if (self._announced > 1.0).any():
            return math.inf
        recovered = np.minimum(self._paces, self._usual) if self._anyone_slow else self._paces
        longest_s = float(np.max(recovered * least_s, where=np.isfinite(least_s), initial=0.0))
        return longest_s * (1.0 + self._cost.slower_by)

    def _patience(self) -> int:
        """After how many iterations the medians are due again: soon after a change, else in good time."""
        if self._decision.sync_time_s is None:
            return REVIEW_EVERY_WHILE_CALM
        return REVIEW_EVERY if self._decision.changed else min(2 * self._review_every, REVIEW_EVERY_MOST)

    def _judged(self) -> StragglerDecision:
        pace, self._usual = self._pace()
        before, self._slow = self._slow, self._measured_slow(pace / self._usual - 1.0)
        by_level = self._slow & ~before & ~self._estimate.proved
        if by_level.any():
            self._estimate.settle(by_level)
        self._anyone_slow = bool(self._slow.any())
        announced = (self._announced > 1.0) & ~self._slow
        pace = np.where(announced, np.maximum(pace, self._announced * self._usual), pace)
        at_full_speed = self._slow | announced
        least_s = np.where(at_full_speed, self._fastest_s, self._objective_s)
        free_s = pace * least_s
        if self._anyone_slow:
            slow = self._slow.nonzero()[0]
            free_s[slow] *= 1.0 + self._estimate.sinking(slow)
        self._paces = pace
        known = self._estimate.count >= CONFIRMATIONS
        last = int(free_s.argmax())
        demand = ReplicaDemand(
            free_s, self._estimate.error, self._estimate.scatter, least_s, pace, known, last
        )
        recovered_s = np.where(at_full_speed, self._usual * self._fastest_s, free_s).max()
        most_s = np.inf if announced.any() else float(recovered_s) * (1.0 + self._cost.slower_by)
        self._limits_s = limits_s(demand, self._limits_s, most_s=most_s)
        waiting = np.isfinite(self._limits_s).nonzero()[0]
        return self._decision_on(demand, at_full_speed, announced, waiting)

    def _decision_on(
        self,
        demand: ReplicaDemand,
        at_full_speed: NDArray[np.bool_],
        announced: NDArray[np.bool_],
        waiting: NDArray[np.intp],
    ) -> StragglerDecision:
        limit_s = np.where(at_full_speed & (self._fastest_s < self._objective_s), self._fastest_s, np.nan)
        limit_s = np.where(np.isfinite(self._limits_s), self._limits_s, limit_s)
        return StragglerDecision(
            sync_time_s=float(demand.free_s[demand.last]) if len(waiting) else None,
            stragglers=self._stragglers(demand, at_full_speed, announced, anyone_waits=len(waiting) > 0),
            limit_s=limit_s,
            waiting=tuple(waiting.tolist()),
            unconfirmed=tuple((announced & self._estimate.sure).nonzero()[0].tolist()),
            changed=limit_s.tobytes() != self._decision.limit_s.tobytes(),
            ended=self._cost.spent,
        )

    def _pace(self) -> tuple[_Replicas, float]:
        """Measured by planned duration of each replica, and what is usual among them.

        One iteration alone makes nobody slow.
        """
        level = self._estimate.level
        known = np.isfinite(level)
        usual = 1.0
        if known.any():
            self._usual_of = _lower_quartile_of(np.where(known, level, np.inf), int(known.sum()))
            usual = float(level[self._usual_of])
        pace = np.where(known, level, usual)
        fresh = (self._estimate.count < CONFIRMATIONS) & ~self._slow
        return np.where(fresh, np.minimum(pace, usual), pace), usual

    def _measured_slow(self, slowness: _Replicas) -> NDArray[np.bool_]:
        error = np.hypot(self._estimate.error, self._estimate.error[self._usual_of])
        self._estimate.dismiss(slowness < PROVED_SIGMAS * error)
        new = np.maximum(LEAST_SLACK + SURE_SIGMAS * error, self._level_sigmas * error)
        kept = np.maximum(LEAST_SLACK_KEPT, KEPT_SIGMAS * error)
        proved = np.maximum(np.where(self._slow, LEAST_SLACK_KEPT, LEAST_SLACK), PROVED_SIGMAS * error)
        least = np.where(self._estimate.proved, proved, np.where(self._slow, kept, new))
        slow: NDArray[np.bool_] = slowness > least
        return slow

    def _stragglers(
        self,
        demand: ReplicaDemand,
        at_full_speed: NDArray[np.bool_],
        announced: NDArray[np.bool_],
        *,
        anyone_waits: bool,
    ) -> tuple[Straggler, ...]:
        found = [self._straggler(demand, int(r), announced) for r in at_full_speed.nonzero()[0]]
        if anyone_waits and not at_full_speed[demand.last]:
            usual_s = demand.free_s[_lower_quartile_of(demand.free_s, len(demand.free_s))]
            slowdown = float(demand.free_s[demand.last] / usual_s)
            found.append(Straggler(demand.last, slowdown, Cause.STRUCTURAL))
        return tuple(sorted(found, key=lambda one: -demand.free_s[one.replica]))

    def _straggler(self, demand: ReplicaDemand, replica: int, announced: NDArray[np.bool_]) -> Straggler:
        cause = Cause.CAPPED if self._capped[replica] else Cause.MEASURED
        if announced[replica]:
            cause = Cause.ANNOUNCED
        slowdown = float(demand.pace[replica] / self._usual)
        doubt = 0.0 if cause is Cause.ANNOUNCED else self._doubt(replica, slowdown)
        return Straggler(replica, slowdown, cause, doubt)

    def _doubt(self, replica: int, slowdown: float) -> float:
        """Probability of noise that looks so: of that proof, or of such a level by any of all replicas."""
        if self._estimate.proved[replica]:
            return FALSE_ALARM
        error = math.hypot(self._estimate.error[replica], self._estimate.error[self._usual_of])
        sigmas = (slowdown - 1.0) / max(error, LEAST_SCATTER / 10.0)
        return min(1.0, len(self._slow) ** 2 * NormalDist().cdf(-sigmas))


def _ratio(observed: ReplicaObservation) -> _Replicas:
    """Measured by planned duration; not finite or not above 0 where either is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return observed.own_s / observed.planned_s


def _lower_quartile_of(levels: _Replicas, known: int) -> int:
    """Whose level a quarter of the known ones do not exceed: with few replicas the fastest one's."""
    place = (known - 1) // 4
    return int(np.argpartition(levels, place)[place])
