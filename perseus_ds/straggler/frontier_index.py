"""Frontiers, for look-up while training runs: which plan fits into how many seconds, of all replicas."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, select
from perseus_ds.schedule import dag_of
from perseus_ds.straggler.controller import StragglerDecision

_ROUNDED = 1.0 + 1e-12  # a plan's own stretch is the plan again
_Floats = NDArray[np.float64]
_Plans = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FrontierIndex:
    """The plans of one PlanSet by what they predict for themselves.

    ``expected_s`` [plans] is the longest path through the measured durations. It lacks the reserve that
    ``PlanSet.iteration_time_s`` contains, so that a measured iteration can be held against it. ``power_w``
    [plans] is mean power over that time, ``default_w`` that of default clocks. ``objective`` and ``fastest``
    are plans by index. ``scatter`` is how much an iteration varies by the profile (relative standard
    deviation; NaN: unknown).
    """

    expected_s: NDArray[np.float64]
    scatter: float
    baseline_s: float
    power_w: NDArray[np.float64]
    default_w: float
    objective: int
    fastest: int
    _times_s: Sequence[float]
    _best: Sequence[int]
    _slower_s: NDArray[np.float64]
    _slower: NDArray[np.int64]

    @classmethod
    def of(cls, plans: PlanSet, objective: Objective) -> FrontierIndex:
        """Time every plan once.

        Raises:
            InfeasibleError: no plan meets the objective.
        Cost: (nodes + edges) x plans, as vectors.
        """
        run_s = _longest_path_s(plans)
        expected_s = run_s[:-1]
        cheaper = _ever_cheaper(expected_s, plans.effective_energy_j)
        chosen = select(plans, objective).index
        slower = [index for index in cheaper if expected_s[index] > expected_s[chosen]]
        blocking_w, baseline = plans.blocking_total_w, plans.baseline
        power_w = plans.effective_energy_j / expected_s + blocking_w
        power_w *= 1.0 if plans.power_ratio is None else plans.power_ratio
        return cls(
            expected_s=expected_s,
            scatter=math.nan if plans.scatter_pct is None else plans.scatter_pct / 100.0,
            baseline_s=float(run_s[-1]),
            power_w=power_w,
            default_w=baseline.energy_j / baseline.iteration_time_s,
            objective=chosen,
            fastest=select(plans, Objective()).index,
            _times_s=[float(expected_s[index]) for index in cheaper],
            _best=cheaper,
            _slower_s=expected_s[slower],
            _slower=np.array([chosen, *slower], dtype=np.int64),
        )

    def below(self, power_w: float) -> FrontierIndex:
        """Return the same frontier without plans faster than the fastest that takes no more mean power.

        Where all take more, the slowest plan is left.
        """
        if self.power_w[self.objective] <= power_w:
            return self
        slower = self._slower[1:].tolist()
        plan = next((one for one in slower if self.power_w[one] <= power_w), self._best[-1])
        floor_s = self.expected_s[plan]
        objective = plan if floor_s > self.objective_s else self.objective
        fastest = plan if floor_s > self.fastest_s else self.fastest
        if (objective, fastest) == (self.objective, self.fastest):
            return self
        slower = [index for index in self._best if self.expected_s[index] > self.expected_s[objective]]
        kept = np.array([objective, *slower], dtype=np.int64)
        return replace(
            self,
            objective=objective,
            fastest=fastest,
            _slower_s=self.expected_s[slower],
            _slower=kept,
        )

    @property
    def objective_s(self) -> float:
        """Return what the objective's plan predicts."""
        return float(self.expected_s[self.objective])

    @property
    def fastest_s(self) -> float:
        """Return what the plan that loses no time predicts."""
        return float(self.expected_s[self.fastest])

    def within(self, limit_s: float) -> int:
        """Return the plan of least effective energy that takes no longer, or the fastest.

        Cost: microseconds.
        Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
        """
        if limit_s <= self.fastest_s:
            return self.fastest
        return self._best[bisect_right(self._times_s, limit_s) - 1]

    def stretched(self, stretch: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return for each of many replicas the plan that takes so many times longer than the objective's.

        No replica is made faster than the objective's plan, and none runs a plan that costs more than that.

        Shape: [replicas].
        Cost: a search for each, as vectors.
        """
        limit_s = stretch * self.objective_s * _ROUNDED
        places = np.searchsorted(self._slower_s, limit_s, side="right")
        plans: NDArray[np.int64] = self._slower[places]
        return plans


def _ever_cheaper(time_s: NDArray[np.float64], cost_j: NDArray[np.float64]) -> list[int]:
    """Plans, time ascending, of which each costs less than all before."""
    order = np.lexsort((cost_j, time_s))
    least = np.minimum.accumulate(cost_j[order])
    return [int(index) for index in order[np.r_[True, least[1:] < least[:-1]]]]


def _longest_path_s(plans: PlanSet) -> NDArray[np.float64]:
    """Every plan's iteration time with the durations as measured; the last is all at the highest clock."""
    dag, longest_s = dag_of(plans.schedule), np.zeros(len(plans) + 1)
    column = {instruction: place for place, instruction in enumerate(plans.computations())}

    def lasts_s(node: int) -> NDArray[np.float64] | float:
        instruction = dag.nodes[node]
        key = (instruction.stage, instruction.kind)
        if instruction not in column:
            return plans.fixed_s[key]
        time_s = plans.options[key].time_s
        return np.append(plans.blended(column[instruction], time_s), time_s[0])

    for _, _, end_s in dag.in_turn(lasts_s, plans.fixed_s):
        longest_s = np.maximum(longest_s, end_s)
    return longest_s


class Frontiers:
    """Plans of every replica by its own frontier, all at once; replicas with the same GPUs share one.

    Shape: ``objective`` and ``objective_s`` [replicas].
    """

    def __init__(self, indexes: Sequence[FrontierIndex]) -> None:
        self._indexes = indexes
        who: dict[int, list[int]] = {}
        for replica, index in enumerate(indexes):
            who.setdefault(id(index), []).append(replica)
        self._groups = [(indexes[replicas[0]], np.array(replicas)) for replicas in who.values()]
        self.objective: _Plans = np.array([index.objective for index in indexes])
        self.objective_s: _Floats = np.array([index.objective_s for index in indexes])

    def expected_s(self, plans: _Plans) -> _Floats:
        """Return what each replica's plan predicts for itself.

        Shape: [replicas].
        """
        if len(self._groups) == 1:
            return self._indexes[0].expected_s[plans]
        expected_s = np.empty(len(plans))
        for index, replicas in self._groups:
            expected_s[replicas] = index.expected_s[plans[replicas]]
        return expected_s

    def decided(self, decision: StragglerDecision) -> _Plans:
        """Return what each replica runs by a decision."""
        plans = self.objective.copy()
        for replica in np.flatnonzero(np.isfinite(decision.limit_s)).tolist():
            plans[replica] = self._indexes[replica].within(float(decision.limit_s[replica]))
        return plans

    def stretched(self, stretch: NDArray[np.float64]) -> _Plans:
        """Return each replica's plan that takes at most so many times longer than its objective's.

        Shape: [replicas].
        """
        if len(self._groups) == 1:
            return self._indexes[0].stretched(stretch)
        plans = self.objective.copy()
        for index, replicas in self._groups:
            plans[replicas] = index.stretched(stretch[replicas])
        return plans
