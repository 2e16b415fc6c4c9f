"""Straggler control: one observation of all replicas in, one decision out, alike on every rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.estimate import (
    CONFIRMATIONS,
    FALSE_ALARM,
    LEAST_SCATTER,
    REVIEW_EVERY,
    SlowdownEstimate,
)

# docs/stragglers.md states what each number buys.
MAX_COST_PCT = 0.2  # time that answers may cost over the last 1 000 iterations, by default
LEAST_SLACK, LEAST_SLACK_KEPT = 0.01, 0.005  # relative slack from which waiting pays, below which it ends
EXCESS = 0.0027  # how much longer than T' an iteration may become on average, since waiting replicas vary
_LEAST_MARGIN = 0.001  # that waiting replicas stay below T' in any case
_LEAST_MOVE = 0.002  # relative change of a limit that is worth another plan
_REVIEW_EVERY_MOST, _REVIEW_EVERY_WHILE_CALM = 8, 16  # iterations, while somebody waits and while nobody does
# Standard errors that a replica must be slower than its peers:
_PROVED_SIGMAS = 1.0  # after a proof that it became slower
_SURE_SIGMAS = 4.0  # beyond what an answer pays for, if it was slow from the first iteration on
_KEPT_SIGMAS = 2.0  # to be slow still
_NOISE_SIGMAS = 5.0  # of slack above the noise

_Replicas = NDArray[np.float64]


class Cause(Enum):
    """Reason why others wait for a replica."""

    MEASURED = "measured"
    ANNOUNCED = "announced"
    CAPPED = "capped"
    FLAPPING = "flapping"

    @property
    def text(self) -> str:
        return {
            Cause.MEASURED: "slower than its plan",
            Cause.ANNOUNCED: "announced from outside",
            Cause.CAPPED: "held back by a power or thermal cap",
            Cause.FLAPPING: "slow again and again, never for long: nobody waits for it",
        }[self]


@dataclass(frozen=True, slots=True)
class Straggler:
    """A slow replica; ``slowdown`` is 1.2 where it takes 20 % longer than its peers would.

    ``doubt`` is the probability that noise alone makes some replica of the job look so; 0 where nothing is
    concluded from measurements.
    """

    replica: int
    slowdown: float
    cause: Cause
    doubt: float = 0.0


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


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaStatus:
    """An iteration of every replica, as all ranks know it: alike everywhere, so that all decide alike.

    ``own_s`` is how long the replica's first stage took without its wait for other replicas, from release to
    release, never a time of day. (Every stage is released by its own reduction. A later stage of a replica
    that waits is released early and then waits for its first activation. No mark separates that wait from its
    own time.) What is not finite and above 0 is unknown (default clocks, an audit, an evaluation came
    between). ``capped`` is whether a device of the replica reported a power or thermal cap. ``announced`` is
    a slowdown announced from outside; below 1 it announces nothing.

    Shape: vectors [replicas].
    """

    own_s: _Replicas
    capped: NDArray[np.bool_]
    announced: _Replicas

    @classmethod
    def unknown(cls, replicas: int) -> ReplicaStatus:
        return cls(np.full(replicas, np.nan), np.zeros(replicas, dtype=np.bool_), np.ones(replicas))


HORIZON = 1000
"""Iterations over which the cost of answers is bounded."""

_PLANNED = 0.9  # of the bound: what noise adds is not known before


class SlowdownBudget:
    """Time that the job lost because replicas ran slower than their objective's plan, in iterations.

    Answers cost time when the straggler recovers, because the others run on for ``reaction_delay`` iterations
    until they know. They also cost time while it lasts, because waiting replicas vary. Both are kept within
    ``max_pct`` of the last 1 000 iterations. What may be lost at the recovery is set aside before an answer
    is given. Once all is ``exhausted``, no answer is given until half of it is forgotten.
    """

    def __init__(self, *, max_pct: float, reaction_delay: int) -> None:
        self._most = _PLANNED * max_pct / 100.0 * HORIZON
        self._reaction_delay = reaction_delay
        self._history = np.zeros(HORIZON)
        self._place = 0
        self.lost = 0.0
        self.exhausted = False

    @property
    def cost_pct(self) -> float:
        return 100.0 * self.lost / HORIZON

    @property
    def room(self) -> float:
        """Return how much slower, relatively, an iteration may be made without room for more being lost."""
        return 0.0 if self.exhausted else (self._most - self.lost) / self._reaction_delay

    def observe(self, own_s: _Replicas, planned_s: _Replicas, objective_s: _Replicas) -> None:
        """Take in one iteration, and what each plan that ran and each objective's plan predict.

        What is lost is against every replica at its objective's plan, as it would have kept it.
        """
        known, lost = np.isfinite(own_s) & (own_s > 0.0), 0.0
        slowed = known & np.isfinite(planned_s) & (planned_s > objective_s * (1.0 + 1e-9))
        if slowed.any():
            needed_s = own_s.copy()
            needed_s[slowed] *= objective_s[slowed] / planned_s[slowed]
            lost = float(own_s[known].max() / needed_s[known].max() - 1.0)
        if lost or self.lost:
            self.lost = max(0.0, self.lost + lost - float(self._history[self._place]))
        self._history[self._place] = lost
        self._place = (self._place + 1) % HORIZON
        self.exhausted = self.lost >= self._most / 2 if self.exhausted else self.lost >= self._most


_SIGMAS = np.linspace(0.0, 6.0, 241)
_LATE = np.array([NormalDist().pdf(x) - x * NormalDist().cdf(-x) for x in _SIGMAS])


def sigmas_below(late: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return how many sigmas below 0 a normal number's mean is whose part above 0 is ``late`` on average."""
    found: NDArray[np.float64] = np.interp(np.negative(late), -_LATE, _SIGMAS)
    return found


_SHRUNK_BY = 4.0  # iterations that a replica's own pace is worth before any was seen


class StragglerController:
    """Judge every replica by its own plan's prediction, and answer.

    A replica that was slowed on purpose keeps its promise and so is no straggler. What it would need at full
    speed is what its fastest plan predicts times how it keeps its promises. Nothing that is decided here
    feeds back into the time at which all meet.

    ``objective_s`` and ``fastest_s`` are what each replica's plans predict (``FrontierIndex``). ``scatter``
    is how much an iteration varies by the profile (NaN: unknown, and nobody is judged until it is seen).
    Answers cost ``max_cost_pct`` of the last 1 000 iterations at most, where a recovery is answered
    ``reaction_delay`` iterations late (``SlowdownBudget``).

    Shape: vectors [replicas].
    """

    def __init__(
        self,
        objective_s: _Replicas,
        fastest_s: _Replicas,
        *,
        scatter: float = math.nan,
        max_cost_pct: float = MAX_COST_PCT,
        reaction_delay: int = 2,
    ) -> None:
        replicas = len(objective_s)
        self._objective_s, self._fastest_s = objective_s, fastest_s
        self._estimate = SlowdownEstimate(replicas, scatter)
        self._level_sigmas = NormalDist().inv_cdf(1.0 - FALSE_ALARM / replicas**2)
        self.budget = SlowdownBudget(max_pct=max_cost_pct, reaction_delay=reaction_delay)
        self._slow = self._capped = np.zeros(replicas, dtype=np.bool_)
        self._announced = np.ones(replicas)
        self._limits_s = np.full(replicas, np.nan)
        self._usual, self._usual_of = 1.0, 0
        self._paces = np.ones(replicas)
        self._review_every = REVIEW_EVERY
        self._decision = StragglerDecision(None, (), self._limits_s, (), (), changed=False)
        self._restricted = False

    def restrict(self, objective_s: _Replicas, fastest_s: _Replicas) -> None:
        """Go on with other plans where nobody waits and at full speed: a power cap has changed.

        What is known of each replica's pace stays: it is by the plan that was run.
        """
        self._objective_s, self._fastest_s, self._restricted = objective_s, fastest_s, True

    def observe(
        self,
        status: ReplicaStatus,
        planned_s: _Replicas,
        *,
        load: _Replicas | None = None,
        costs: bool = True,
    ) -> StragglerDecision:
        """Take in one iteration; return what holds from now on.

        ``planned_s`` is what the plan that each replica ran predicts for itself at the usual load; what is
        not finite and above 0 is unknown. ``load`` is how many times the usual work each had. Not ``costs``:
        it was run by plans that are not to be chosen any more, which is no answer's cost.
        """
        own_s = status.own_s
        if costs and self._announced.max() <= 1.0:  # what was told is believed, whatever it costs
            self.budget.observe(own_s, planned_s, self._objective_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = own_s / (planned_s if load is None else planned_s * load)
        self._capped = status.capped
        moved = self._estimate.observe(ratio, awaited=self._slow, review_every=self._review_every)
        announced = np.maximum(np.where(np.isfinite(status.announced), status.announced, 1.0), 1.0)
        told = not np.array_equal(announced, self._announced)
        if moved or told or self._restricted or self.budget.exhausted != self._decision.ended:
            self._announced, self._restricted = announced, False
            self._decision = self._decide()
            if self._decision.sync_time_s is None and not self._slow.any():
                self._review_every = _REVIEW_EVERY_WHILE_CALM
            else:  # medians are due again soon after a change, else in good time
                later = min(2 * self._review_every, _REVIEW_EVERY_MOST)
                self._review_every = REVIEW_EVERY if self._decision.changed else later
        elif self._decision.changed:
            self._decision = replace(self._decision, changed=False)
        return self._decision

    @property
    def slow(self) -> NDArray[np.bool_]:
        """The replicas that are slow, or announced to be [replicas]."""
        slow: NDArray[np.bool_] = self._slow | (self._announced > 1.0)
        return slow

    @property
    def pace(self) -> _Replicas:
        """Measured by planned duration of each replica [replicas], of few iterations in part."""
        shrunk = self._estimate.count / (self._estimate.count + _SHRUNK_BY)
        pace: _Replicas = self._usual + (self._paces - self._usual) * np.where(self.slow, 1.0, shrunk)
        return pace

    def longest_allowed_s(self, least_s: _Replicas) -> float:
        """Return how long an iteration may be made for those who wait, should the stragglers recover.

        ``least_s`` is what each replica needs as planned, in seconds (NaN: unknown). What was
        announced may cost anything.

        Shape: [replicas].
        """
        if (self._announced > 1.0).any():
            return math.inf
        recovered = np.minimum(self._paces, self._usual) if self._slow.any() else self._paces
        longest_s = float(np.max(recovered * least_s, where=np.isfinite(least_s), initial=0.0))
        return longest_s * (1.0 + self.budget.room)

    def _decide(self) -> StragglerDecision:
        pace, self._usual = self._pace()
        before, self._slow = self._slow, self._measured_slow(pace / self._usual - 1.0)
        if (by_level := self._slow & ~before & ~self._estimate.alarm).any():
            self._estimate.restart_window(by_level)
        flapping = self._estimate.flapping & ~self._slow
        pace = np.where(flapping, np.minimum(pace, self._usual), pace)
        announced = (self._announced > 1.0) & ~self._slow
        pace = np.where(announced, np.maximum(pace, self._announced * self._usual), pace)
        at_full_speed = self._slow | announced
        least_s = np.where(at_full_speed, self._fastest_s, self._objective_s)
        unconstrained_s = pace * least_s
        if self._slow.any():
            slow = self._slow.nonzero()[0]
            unconstrained_s[slow] *= 1.0 + self._estimate.recovery_trend(slow)
        self._paces = pace
        last = int(unconstrained_s.argmax())
        recovered_s = np.where(at_full_speed, self._usual * self._fastest_s, unconstrained_s).max()
        max_s = np.inf if announced.any() else float(recovered_s) * (1.0 + self.budget.room)
        self._limits_s = self._new_limits_s(unconstrained_s, least_s, last, max_s)
        waiting = np.isfinite(self._limits_s).nonzero()[0]
        faster = at_full_speed & (self._fastest_s < self._objective_s)
        limit_s = np.where(
            np.isfinite(self._limits_s), self._limits_s, np.where(faster, self._fastest_s, np.nan)
        )
        stragglers = [self._straggler(int(one), announced) for one in at_full_speed.nonzero()[0]]
        for one in (flapping & ~announced).nonzero()[0].tolist():
            slowdown = max(1.0, float(self._estimate.spell_level[one] / self._usual))
            stragglers.append(Straggler(one, slowdown, Cause.FLAPPING, FALSE_ALARM))
        if len(waiting) and not at_full_speed[last]:  # less slow than is named by itself
            usual_s = unconstrained_s[_lower_quartile_of(unconstrained_s, len(unconstrained_s))]
            stragglers.append(Straggler(last, float(unconstrained_s[last] / usual_s), Cause.MEASURED))
        return StragglerDecision(
            sync_time_s=float(unconstrained_s[last]) if len(waiting) else None,
            stragglers=tuple(sorted(stragglers, key=lambda one: -unconstrained_s[one.replica])),
            limit_s=limit_s,
            waiting=tuple(waiting.tolist()),
            unconfirmed=tuple((announced & self._estimate.has_samples).nonzero()[0].tolist()),
            changed=limit_s.tobytes() != self._decision.limit_s.tobytes(),
            ended=self.budget.exhausted,
        )

    def _new_limits_s(
        self, unconstrained_s: _Replicas, least_s: _Replicas, last: int, max_s: float
    ) -> _Replicas:
        """Return how slow each replica may plan, in its own planned seconds; NaN where it has no slack.

        ``unconstrained_s`` is what each needs as measured when nobody slows it down, ``least_s`` what that
        plan predicts. ``last`` is whom all others can wait for, ``max_s`` how long an iteration may be made,
        as measured, for what answers may cost. A limit is moved only when it differs by more than the noise.

        Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
        """
        held_s, scatter, error = self._limits_s, self._estimate.scatter, self._estimate.error
        # The others, and the last itself, vary. That they end after it costs on average the expected excess
        # of one normal number above another. The sum of these stays within what is accepted.
        apart = np.hypot(np.hypot(scatter, scatter[last]), error[last])
        with np.errstate(divide="ignore"):
            accepted = EXCESS / (max(1, len(unconstrained_s) - 1) * apart)
        margin = np.maximum(_LEAST_MARGIN, sigmas_below(accepted) * apart)
        error, most_s = np.hypot(error, error[last]), max_s / self._paces
        limit_s = unconstrained_s[last] * (1.0 - np.where(np.isfinite(apart), margin, np.inf)) / self._paces
        limit_s, held = np.minimum(limit_s, most_s), np.isfinite(held_s)
        enough = np.where(
            held,
            np.maximum(LEAST_SLACK_KEPT, _KEPT_SIGMAS * error),
            np.maximum(LEAST_SLACK + _KEPT_SIGMAS * error, _NOISE_SIGMAS * error),
        )
        known = held | (self._estimate.count >= CONFIRMATIONS)
        has_slack = (limit_s / least_s - 1.0 > enough) & known
        has_slack[last] = False
        near = np.abs(limit_s / held_s - 1.0) < np.maximum(_LEAST_MOVE, 1.5 * error)
        keep = near & (held_s <= most_s * (1.0 + _LEAST_MOVE))
        return np.where(has_slack, np.where(keep, held_s, limit_s), np.nan)

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
        self._estimate.alarm &= slowness >= _PROVED_SIGMAS * error
        new = np.maximum(LEAST_SLACK + _SURE_SIGMAS * error, self._level_sigmas * error)
        kept = np.maximum(LEAST_SLACK_KEPT, _KEPT_SIGMAS * error)
        proved = np.maximum(np.where(self._slow, LEAST_SLACK_KEPT, LEAST_SLACK), _PROVED_SIGMAS * error)
        slow: NDArray[np.bool_] = slowness > np.where(
            self._estimate.alarm, proved, np.where(self._slow, kept, new)
        )
        # a median over short spells and pauses proves nothing that lasts
        return slow & (self._estimate.alarm | self._slow | ~self._estimate.flapping)

    def _straggler(self, replica: int, announced: NDArray[np.bool_]) -> Straggler:
        slowdown = float(self._paces[replica] / self._usual)
        if announced[replica]:
            return Straggler(replica, slowdown, Cause.ANNOUNCED)
        cause = Cause.CAPPED if self._capped[replica] else Cause.MEASURED
        if self._estimate.alarm[replica]:
            return Straggler(replica, slowdown, cause, FALSE_ALARM)
        error = math.hypot(self._estimate.error[replica], self._estimate.error[self._usual_of])
        sigmas = (slowdown - 1.0) / max(error, LEAST_SCATTER / 10.0)
        return Straggler(replica, slowdown, cause, min(1.0, len(self._slow) ** 2 * NormalDist().cdf(-sigmas)))


def _lower_quartile_of(levels: _Replicas, known: int) -> int:
    """Return the replica whose level a quarter of the known ones do not exceed: of few the fastest."""
    place = (known - 1) // 4
    return int(np.argpartition(levels, place)[place])
