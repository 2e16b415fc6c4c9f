"""All replicas of a job on paper: the same iterations at default clocks, at the plan, and by their loads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.plan import FrequencyPlan
from perseus_ds.plan.following.kept import load_problem, scatter_of
from perseus_ds.plan.playing.clock_requests import RankClocks
from perseus_ds.plan.playing.pipeline import PaperPipeline
from perseus_ds.profile import Profile
from perseus_ds.profile.loads.seen_loads import SeenLoads
from perseus_ds.schedule import Load
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.observation import ReplicaStatus
from perseus_ds.straggler.pacing.forecast import Forecast
from perseus_ds.straggler.pacing.outlook import Outlook
from perseus_ds.straggler.replica_plans import ReplicaPlans

PLAYED = 4
"""Replicas of an iteration that are run: more are drawn from what these were late by."""
_LEAST_FACTOR = 0.5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """One iteration at default clocks, at the objective's plan, and by its loads.

    ``energy_j`` is that of one replica's GPUs on average.

    Shape: ``time_s`` [3]; ``energy_j`` [3, ranks].
    """

    time_s: Floats
    energy_j: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _JobSide:
    """One iteration one way; ``energy_j`` of a replica on average.

    Shape: ``own_s`` [replicas that were run], ``energy_j`` [ranks].
    """

    own_s: Floats
    job_s: float
    energy_j: Floats


class PaperJob:
    """Replicas that `ReplicaPlans` paces at the begin of each iteration, each by a plan of that iteration.

    Marks within iterations, which correct, are left out. Of many replicas a few are run, the longest among
    them.
    """

    def __init__(
        self, plan: FrequencyPlan, profile: Profile, objective: Objective, change: ClockChange, replicas: int
    ) -> None:
        self._plan, self._replicas = plan, replicas
        self._problem = load_problem(plan.of, profile, plan.index, change=change)
        self._scatter = scatter_of(self._problem, profile)
        self._forecast = Forecast(plan.of, plan.index, profile)
        index = FrontierIndex.of(plan.of, objective)
        marks = self._forecast.marks.first()
        self._plans = ReplicaPlans([index] * replicas, marks=marks) if replicas > 1 else None
        self._error = float(self._forecast.usual.error[0])
        self._random = np.random.default_rng(0)
        dag = self._problem.problem.dag
        played = range(min(replicas, PLAYED))
        self._pipelines = [[PaperPipeline(plan, profile, change, dag) for _ in played] for _ in range(2)]
        self._compare: list[list[float]] = [[], [], []]
        self._told = 0

    def solving_s(self, loads: tuple[Load, ...]) -> float:
        """CPU time of solving one iteration of the replicas that are run."""
        begun_s = time.process_time()
        self._problem.within(self._problem.solve(self._problem.factors(loads)), 0.0)
        return (time.process_time() - begun_s) * len(self._pipelines[0])

    def iterate(self, seen: SeenLoads, n: int) -> Sides:
        """Run iteration ``n`` three ways, all with the same loads and scatter."""
        loads = self._drawn(seen, n)
        usual_s = np.array([self._forecast.of(one).left_s[0] for one in loads])
        stretch = self._stretches(usual_s, n)
        order = np.argsort(-usual_s)
        played = [int(order[0]), *self._random.permutation(order[1:])[: PLAYED - 1].tolist()]
        factors = [self._problem.factors(loads[replica]) for replica in played]
        clocks = [
            self._problem.within(self._problem.solve(factor), stretch[replica] * usual_s[replica]).clocks
            for replica, factor in zip(played, factors, strict=True)
        ]
        true = [factor * self._off() for factor in factors]
        sides = [
            self._at_default(true),
            self._run(1, true, [None] * len(played)),
            self._run(2, true, clocks),
        ]
        self._observe(played, usual_s * stretch, sides[2].own_s)
        return Sides(np.array([one.job_s for one in sides]), np.array([one.energy_j for one in sides]))

    def _drawn(self, seen: SeenLoads, n: int) -> list[tuple[Load, ...]]:
        """Loads of all replicas: of one iteration as far as it had as many, else of any."""
        together = list(seen[n % len(seen)])
        while len(together) < self._replicas:
            other = seen[self._random.integers(len(seen))]
            together.append(other[self._random.integers(len(other))])
        return together[: self._replicas]

    def _off(self) -> Floats:
        """What loads leave open: how many times longer each computation takes."""
        normal = self._random.standard_normal(len(self._scatter))
        off: Floats = np.maximum(_LEAST_FACTOR, 1.0 + self._scatter * normal)
        return off

    def _stretches(self, usual_s: Floats, n: int) -> Floats:
        """How many times longer than at the objective's plan each replica may take."""
        if self._plans is None:
            return np.ones(1)
        self._plans.will_run(n)
        everyone = np.ones(self._replicas)
        self._plans.told(n, Outlook(0.0 * everyone, usual_s, self._error * everyone, everyone > 0.0))
        self._told = n
        return np.array(self._plans.stretch)

    def _observe(self, played: Sequence[int], planned_s: Floats, own_s: Floats) -> None:
        """Learn from what was run; the others take what was planned."""
        if self._plans is None:
            return
        took_s = planned_s.copy()
        took_s[played] = own_s
        everyone = np.ones(self._replicas)
        self._plans.observe(self._told, ReplicaStatus(took_s, everyone < 1.0, everyone))

    def _at_default(self, factors: Sequence[Floats]) -> _JobSide:
        """Everything at its highest clock; what waits takes the power of waiting there."""
        plans, problem = self._plan.of, self._problem
        waiting_w, ranks = plans.baseline.blocking_power_w, problem.problem.ranks
        lasts_s = [problem.at_highest_s(factor) for factor in factors]
        own_s = np.array([problem.lasts_s(one) for one in lasts_s])
        job_s = self._job_s(0, own_s)
        columns = [problem.problem.columns[own.start : own.stop] for own in ranks]
        energy_j = [
            [
                waiting_w * job_s + float((factor * problem.highest_j - waiting_w * one)[own].sum())
                for own in columns
            ]
            for factor, one in zip(factors, lasts_s, strict=True)
        ]
        return _JobSide(own_s, job_s, self._mean(np.array(energy_j)))

    def _run(
        self, side: int, factors: Sequence[Floats], clocks: Sequence[Sequence[RankClocks] | None]
    ) -> _JobSide:
        """Have pipelines run one iteration and wait for each other."""
        pipelines = self._pipelines[side - 1]
        begun_s, before_j = pipelines[0].now_s, [one.energy_j for one in pipelines]
        for pipeline, factor, instead in zip(pipelines, factors, clocks, strict=True):
            pipeline.iterate(factor, instead)
        own_s = np.array([one.now_s - begun_s for one in pipelines])
        job_s = self._job_s(side, own_s)
        for pipeline in pipelines:
            pipeline.wait_until(begun_s + job_s)
        energy_j = np.array([one.energy_j - before for one, before in zip(pipelines, before_j, strict=True)])
        return _JobSide(own_s, job_s, self._mean(energy_j))

    def _job_s(self, side: int, own_s: Floats) -> float:
        """What the iteration takes: the longest of those run, and of others that compare alike."""
        others = self._replicas - len(own_s)
        self._compare[side] += (own_s[1:] / own_s[0]).tolist()
        if not others:
            return float(own_s.max())
        drawn = self._random.choice(self._compare[side], others).max()
        return float(max(own_s.max(), own_s[0] * drawn))

    def _mean(self, energy_j: Floats) -> Floats:
        """The mean of all replicas, of which the first was the longest and the others stand for the rest.

        Shape: ``energy_j`` [replicas run, ranks], the mean [ranks].
        """
        if len(energy_j) == 1:
            return np.asarray(energy_j[0])
        rest = energy_j[1:].mean(axis=0)
        return np.asarray((energy_j[0] + (self._replicas - 1) * rest) / self._replicas)
