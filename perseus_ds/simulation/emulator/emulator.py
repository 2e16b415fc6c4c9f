"""A whole job in virtual time: every instruction, clocks that change when they would, real decisions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanSet
from perseus_ds.plan.solving.variation import scatter_pct
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of
from perseus_ds.simulation.emulator.cluster import ClusterShape
from perseus_ds.simulation.emulator.disturbance import Disturbance, Trouble, check_disturbances
from perseus_ds.simulation.emulator.result import Emulated
from perseus_ds.simulation.emulator.run import JobRun
from perseus_ds.simulation.emulator.world import Conditions, World
from perseus_ds.straggler import FrontierIndex, ReplicaPlans, ReplicaStatus, StragglerDecision


class Emulator:
    """One job: plans, the truth that they are run against, machines, and what decides.

    Raises:
        IncompleteProfileError: the profile lacks a computation of the plan.
        PlanError: the profile is of another shape than the plan.
    """

    def __init__(
        self,
        plans: PlanSet,
        profile: Profile,
        cluster: ClusterShape,
        *,
        objective: Objective | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        if profile.stages != plans.schedule.stages:
            raise PlanError(
                f"the plan is for {plans.schedule.stages} stages, the profile has {profile.stages}",
                hint="give the profile that the plan was made from",
            )
        conditions = conditions or Conditions()
        plans = _told_of_noise(plans, profile, conditions)
        self._index = FrontierIndex.of(plans, objective or Objective())
        self._world = World(plans, profile, cluster, conditions)

    @property
    def frontier_index(self) -> FrontierIndex:
        """The product's look-up among the plans."""
        return self._index

    def play(
        self,
        iterations: int,
        disturbances: Iterable[Disturbance] = (),
        *,
        answered: bool = True,
        always: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Emulated:
        """Run a job from a start at default clocks.

        ``answered`` False leaves stragglers without an answer; ``always`` is one plan throughout
        (DEFAULT_CLOCKS: none).

        Raises:
            ConfigError: a disturbance of what does not exist, or no iterations.
        """
        cluster = self._world.cluster
        troubles = check_disturbances(
            disturbances, pipelines=cluster.pipelines, ranks=self._world.job.ranks, tensor=cluster.tensor
        )
        answers = Answers([self._index] * cluster.pipelines, answered=answered)
        with JobRun(self._world, iterations) as run:
            for n in range(iterations):
                planned, on_pace = answers.plans, answers.on_pace
                here = tuple(one for one in troubles if one.at(n))
                if always is not None:
                    planned = [always] * len(planned)
                run.iterate(n, list(zip(planned, on_pace, strict=True)), here)
                own_s, capped = run.observed(n)
                answers.observe(ReplicaStatus(own_s, capped, _announced(here, cluster.pipelines)))
                if progress is not None:
                    progress((n + 1) / iterations)
            return run.result(tuple(answers.decisions), answers_cost_pct=answers.cost_pct)


def _told_of_noise(plans: PlanSet, profile: Profile, conditions: Conditions) -> PlanSet:
    """Plans that know how durations vary here, as those from a profile of this job would.

    A CSV does not state it, and no profile knows of loads that are given for the emulation.
    """
    loads = conditions.loads
    if plans.scatter_pct is not None and loads is None:
        return plans
    by_load = 0.0 if loads is None else loads.variation(profile, dag_of(plans.schedule).nodes)
    variation = dict.fromkeys(plans.options, math.hypot(conditions.noise, by_load))
    told_pct = scatter_pct(dag_of(plans.schedule), plans.options, plans.fixed_s, variation)
    return replace(plans, scatter_pct=max(told_pct, plans.scatter_pct or 0.0))


def _announced(
    troubles: Iterable[Disturbance], pipelines: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    announced = np.ones(pipelines)
    for one in troubles:
        if one.trouble is Trouble.ANNOUNCED:
            announced[one.pipeline] = max(announced[one.pipeline], one.amount)
    return announced


class Answers:
    """`ReplicaPlans` as a job asks them: the numbers of iteration n decide what runs from n + ``lag`` on.

    A job collects the numbers of an iteration at the end of the next one: its lag is 2. Like a job, it
    judges no replica by the first iteration, in which clocks change. ``decisions`` are those in hand as
    each iteration ends. ``answered`` False runs the objective's plans throughout, for comparison.
    """

    def __init__(self, indexes: Sequence[FrontierIndex], *, lag: int = 2, answered: bool = True) -> None:
        self._replica_plans = ReplicaPlans(indexes, answered=answered, exposed=lag)
        self._under_way = deque(ReplicaStatus.unknown(len(indexes)) for _ in range(lag - 1))
        self._lag = lag
        self.decisions: list[StragglerDecision] = []

    @property
    def plans(self) -> Sequence[int]:
        """What the next iteration is run at, a plan per replica."""
        return self._replica_plans.plans

    @property
    def cost_pct(self) -> float:
        """What answers have cost over the last 1 000 iterations."""
        return self._replica_plans.cost_pct

    @property
    def on_pace(self) -> Sequence[bool]:
        """Which replicas last as long as the plan that they run predicts."""
        return self._replica_plans.on_pace

    def observe(self, status: ReplicaStatus) -> None:
        """End an iteration, of which the replicas report this."""
        index = len(self.decisions)
        self._under_way.append(status)
        self._replica_plans.observe(index + 1 - self._lag, self._under_way.popleft())
        self._replica_plans.will_run(index + 1)
        assert self._replica_plans.decision is not None
        self.decisions.append(self._replica_plans.decision)
