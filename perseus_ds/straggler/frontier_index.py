"""A frontier, for look-up while training runs: which plan fits into how many seconds.

A plan is a number: 3 is the frontier's plan 3, and 3.25 a mixture, a quarter of the way from plan 3 to 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, select
from perseus_ds.plan.select import can_mix
from perseus_ds.schedule import dag_of

_ROUNDED = 1.0 + 1e-12  # a plan's own stretch is the plan again
_MIXTURES = 16  # places between two plans: their mixtures are at most a sixteenth of that too fast
_Floats = NDArray[np.float64]
_Plans = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FrontierIndex:
    """The plans of one PlanSet by what they predict for themselves.

    ``expected_s`` [plans] is the longest path through the measured durations. It lacks the reserve that
    ``PlanSet.iteration_time_s`` contains, so that a measured iteration can be held against it. ``power_w``
    [plans] is mean power over that time, ``default_w`` that of default clocks. ``objective`` and ``fastest``
    are plans by index. ``scatter`` is how much an iteration varies by the profile (relative standard
    deviation; NaN: unknown). ``mixes``: plans may be mixed.
    """

    expected_s: _Floats
    scatter: float
    power_w: _Floats
    default_w: float
    objective: int
    fastest: int
    mixes: bool
    _cheaper: NDArray[np.int64]  # plans, time ascending, of which each costs less than all before

    @classmethod
    def of(cls, plans: PlanSet, objective: Objective) -> FrontierIndex:
        """Time every plan once; an `InfeasibleError`: none meets the objective.

        Cost: (nodes + edges) x plans, as vectors.
        """
        lasts_s = plans.lasts_s(lambda options: options.time_s)  # as measured
        expected_s = dag_of(plans.schedule).longest(lasts_s, plans.fixed_s)
        power_w = plans.effective_energy_j / expected_s + plans.blocking_total_w
        power_w *= 1.0 if plans.power_ratio is None else plans.power_ratio
        order = np.lexsort((plans.effective_energy_j, expected_s))
        least_j = np.minimum.accumulate(plans.effective_energy_j[order])
        return cls(
            expected_s=expected_s,
            scatter=math.nan if plans.scatter_pct is None else plans.scatter_pct / 100.0,
            power_w=power_w,
            default_w=plans.baseline.energy_j / plans.baseline.iteration_time_s,
            objective=select(plans, objective).index,
            fastest=select(plans, Objective()).index,
            mixes=can_mix(plans),
            _cheaper=order[np.r_[True, least_j[1:] < least_j[:-1]]],
        )

    def below(self, power_w: float) -> FrontierIndex:
        """Drop plans faster than the fastest that takes no more mean power; at least the slowest is left."""
        if self.power_w[self.objective] <= power_w:
            return self
        slower = self._slower()
        fits = slower[self.power_w[slower] <= power_w]
        plan = int(fits[0] if len(fits) else self._cheaper[-1])
        floor_s = self.expected_s[plan]
        return replace(
            self,
            objective=plan if floor_s > self.objective_s else self.objective,
            fastest=plan if floor_s > self.fastest_s else self.fastest,
        )

    @property
    def objective_s(self) -> float:
        return float(self.expected_s[self.objective])

    @property
    def fastest_s(self) -> float:
        return float(self.expected_s[self.fastest])

    def within(self, limit_s: float) -> float:
        """Return the plan of least effective energy that takes no longer, or the fastest.

        Cost: microseconds.
        Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
        """
        if limit_s <= self.fastest_s:
            return self.fastest
        place = int(np.searchsorted(self.expected_s[self._cheaper], limit_s, side="right")) - 1
        plan = int(self._cheaper[place])
        if not self.mixes or plan + 1 not in self._cheaper[place + 1 : place + 2]:
            return plan
        early_s, late_s = float(self.expected_s[plan]), float(self.expected_s[plan + 1])
        return plan + math.floor(_MIXTURES * (limit_s - early_s) / (late_s - early_s)) / _MIXTURES

    def predicted_s(self, plans: _Plans) -> _Floats:
        """Return what plans predict for themselves; a mixture takes no longer than the times mixed.

        Shape: both alike.
        """
        first = plans.astype(np.int64)
        second = np.minimum(first + 1, len(self.expected_s) - 1)
        first_s: _Floats = self.expected_s[first]
        return first_s + (plans - first) * (self.expected_s[second] - first_s)

    def at_stretch(self, stretch: _Floats) -> _Plans:
        """Return for each of many replicas the plan that takes so many times longer than the objective's.

        No replica is made faster than the objective's plan, and none runs a plan that costs more than that.

        Shape: [replicas].
        Cost: a search for each, as vectors.
        """
        slower = self._slower()
        limit_s = stretch * self.objective_s * _ROUNDED
        places = np.searchsorted(self.expected_s[slower], limit_s, side="right")
        plans: _Plans = np.r_[self.objective, slower][places].astype(np.float64)
        return plans

    def _slower(self) -> NDArray[np.int64]:
        """Return the plans behind the objective's, each cheaper than the ones before."""
        return self._cheaper[self.expected_s[self._cheaper] > self.objective_s]
