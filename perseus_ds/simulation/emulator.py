"""A whole job in virtual time: every instruction, clocks that change when they would, real decisions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.errors import ConfigError, PlanError
from perseus_ds.plan import PlanSet
from perseus_ds.plan.reserve import scatter_pct
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of
from perseus_ds.simulation.cluster import DEFAULT_CLOCKS, Asking, JobProgram, World, idle_gpus
from perseus_ds.simulation.kernel import (
    CAUSES,
    EmulatedIteration,
    Floats,
    Ints,
    PlannedRequests,
    Play,
    PowerTrace,
    play_pipelines,
    settle,
)
from perseus_ds.simulation.scenario import (
    ClusterShape,
    Conditions,
    EmulatedLoads,
    Scenario,
    Straggler,
    parse_straggler,
    read_scenario,
)
from perseus_ds.straggler.controller import ReplicaStatus, StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.replica_plans import ReplicaPlans

__all__ = [
    "CAUSES",
    "DEFAULT_CLOCKS",
    "ClusterShape",
    "Conditions",
    "Emulated",
    "EmulatedLoads",
    "Emulator",
    "Scenario",
    "Straggler",
    "means",
    "parse_straggler",
    "read_scenario",
]

# What an emulated job did, iteration by iteration.


@dataclass(frozen=True, slots=True, eq=False)
class Emulated:
    """Times and energies of the whole job, decisions, and one pipeline's last iteration node by node.

    ``job_s`` is from release to release of the first rank; ``own_s`` without the wait for other pipelines
    (NaN: it took no part). Energy is that of all GPUs. ``answers_cost_pct`` is the time that answers to
    stragglers cost in the last 1 000 iterations, in percent of these.

    Shape: ``job_s``, ``changes`` [iterations]; ``own_s``, ``plan`` [iterations, pipelines]; ``energy_j``
    [iterations, causes]; ``begun_s``, ``ended_s`` [pipelines, nodes] of the last iteration, from its start.
    """

    job: JobProgram
    gpus: int
    job_s: Floats
    own_s: Floats
    plan: Floats
    energy_j: Floats
    changes: Ints
    decisions: tuple[StragglerDecision, ...]
    trace: PowerTrace
    begun_s: Floats
    ended_s: Floats
    answers_cost_pct: float = 0.0

    @property
    def iterations(self) -> int:
        """Return how many were run."""
        return len(self.job_s)

    @property
    def total_j(self) -> float:
        """Energy of all GPUs over all iterations."""
        return float(self.energy_j.sum())

    @property
    def by_cause_j(self) -> Mapping[str, float]:
        """The same, by what it went into."""
        return dict(zip(CAUSES, self.energy_j.sum(axis=0).tolist(), strict=True))

    @property
    def power_w(self) -> Floats:
        """Mean power of the job in every whole bin of its trace."""
        whole = int(self.job_s.sum() / self.trace.bin_s)
        power: Floats = self.trace.energy_j[:whole] / self.trace.bin_s
        return power

    def changes_per_s(self) -> float:
        """Changes of clock per second and GPU."""
        return float(self.changes.sum() / self.gpus / self.job_s.sum())


def means(found: Emulated) -> tuple[float, float]:
    """Mean iteration time and energy, the first iteration (which fills the pipeline's clocks) left out."""
    after = slice(1, None) if found.iterations > 1 else slice(None)
    return float(np.mean(found.job_s[after])), float(np.mean(found.energy_j[after].sum(axis=1)))


# A job under way: the state of its GPUs, and one iteration after the other.


class JobRun:
    """GPUs, clocks and books of one job."""

    def __init__(self, world: World, iterations: int) -> None:
        if iterations < 1:
            raise ConfigError(f"{iterations} iterations do not make a job", hint="at least 1")
        cluster, conditions, ranks = world.cluster, world.conditions, world.job.ranks
        self._world = world
        self._count = cluster.gpus(ranks)
        self._top = len(world.tables.clock_mhz) - 1
        self._gpus = idle_gpus(self._count, per_node=cluster.gpus_per_node, clock=self._top)
        bin_s = conditions.trace_bin_s  # room for twice the time that the job needs if nothing goes wrong
        bins = int(2.0 * iterations * float(world.plans.iteration_time_s[-1]) / bin_s) + 1 if bin_s else 0
        self._trace = PowerTrace(bin_s or 1.0, np.zeros(bins))
        self._start_s = np.zeros((cluster.pipelines, ranks))
        self._random = np.random.default_rng(conditions.seed)
        self._now: EmulatedIteration | None = None
        self._job_s = np.zeros(iterations)
        self._own_s = np.full((iterations, cluster.pipelines), np.nan)
        self._plan = np.zeros((iterations, cluster.pipelines))
        self._energy_j = np.zeros((iterations, len(CAUSES)))
        self._changes = np.zeros(iterations, dtype=np.int64)

    def iterate(
        self, n: int, plans: Sequence[Asking], stragglers: Sequence[Straggler]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Run iteration ``n`` of all pipelines up to their common release.

        Return what ranks inform each other of: own times (NaN: unknown), who is capped.
        """
        used = tuple(sorted(set(plans)))
        job, requests = self._world.job, self._world.requests(used)
        place = np.array([used.index(plan) for plan in plans], dtype=np.int64)
        before_j, before = self._gpus.energy_j.sum(axis=0), int(self._gpus.changes.sum())
        now = self._now = self._iteration(n, place, stragglers)
        for first, end in self._world.cluster.islands(job.ranks):
            play_pipelines(self._with(requests, first, end), now)
        alive = now.alive
        if not alive.any():
            raise ConfigError("all pipelines are lost at once", hint="leave one that goes on")
        arrived_s = now.arrival_s[alive]  # each rank meets its peers, or all meet the last of all
        met_s = arrived_s.max(axis=0) if job.by_rank else np.full(job.ranks, arrived_s.max())
        released_s = float((met_s + job.reduction_s).max()) + job.step_s  # all meet for the norm
        release_s = np.broadcast_to(released_s, now.arrival_s.shape).copy()
        settle(self._with(requests, 0, len(alive)), now.cap, release_s.ravel())
        self._plan[n] = [plan for plan, _ in plans]
        arrival_s = arrived_s[:, 0] if job.by_rank else arrived_s.max(axis=1)
        self._own_s[n, alive] = arrival_s - now.start_s[alive, 0] + released_s[0] - met_s[0]
        self._job_s[n] = float((release_s - self._start_s)[:, 0].max())
        self._energy_j[n] = self._gpus.energy_j.sum(axis=0) - before_j
        self._changes[n] = int(self._gpus.changes.sum()) - before
        self._start_s = release_s
        return self._own_s[n], now.capped

    def result(self, decisions: tuple[StragglerDecision, ...], *, answers_cost_pct: float = 0.0) -> Emulated:
        """Close the books."""
        assert self._now is not None
        begun_s = float(self._now.start_s.min())
        return Emulated(
            job=self._world.job,
            gpus=self._count,
            job_s=self._job_s,
            own_s=self._own_s,
            plan=self._plan,
            energy_j=self._energy_j,
            changes=self._changes,
            decisions=decisions,
            trace=self._trace,
            begun_s=self._now.begun_s - begun_s,
            ended_s=self._now.ended_s - begun_s,
            answers_cost_pct=answers_cost_pct,
        )

    def _iteration(
        self, n: int, place: NDArray[np.int64], stragglers: Sequence[Straggler]
    ) -> EmulatedIteration:
        cluster, conditions, job = self._world.cluster, self._world.conditions, self._world.job
        by_rank, by_node = (cluster.pipelines, job.ranks), (cluster.pipelines, len(job.nodes))
        noise = conditions.noise * self._random.standard_normal(by_node) if conditions.noise else 0.0
        work, loaded = conditions.work[n % len(conditions.work)], self._world.load_factors(n)
        now = EmulatedIteration(
            plan=place,
            alive=np.ones(cluster.pipelines, dtype=np.bool_),
            input_s=np.zeros(cluster.pipelines),
            factor=np.broadcast_to(np.maximum(0.05, 1.0 + noise) * work * loaded, by_node).copy(),
            slow=np.ones(self._count),
            cap=np.full(self._count, self._top, dtype=np.int64),
            start_s=self._start_s,
            link_s=np.zeros(by_rank),
            arrival_s=np.zeros(by_rank),
            capped=np.zeros(cluster.pipelines, dtype=np.bool_),
            begun_s=np.full(by_node, np.nan),
            ended_s=np.full(by_node, np.nan),
        )
        for one in stragglers:
            _hold_back(now, one, cluster.tensor, self._world.tables.clock_mhz)
        return now

    def _with(self, requests: PlannedRequests, first: int, end: int) -> Play:
        world, cluster = self._world, self._world.cluster
        shape = first, end, world.job.ranks, cluster.tensor, cluster.gpus_per_node
        return Play(*shape, world.job.program, world.tables, world.change, requests, self._gpus, self._trace)


def _hold_back(now: EmulatedIteration, one: Straggler, tensor: int, clocks_mhz: Ints) -> None:
    """Write one straggler into the iteration."""
    gpus = (*now.link_s.shape, tensor)
    rank = 0 if one.rank is None and one.gpu is not None else one.rank
    where = (one.pipeline, *(slice(None) if part is None else part for part in (rank, one.gpu)))
    if one.kind == "slow":
        now.slow.reshape(gpus)[where] *= one.amount
    elif one.kind == "cap":
        highest = max(0, int(np.searchsorted(clocks_mhz, one.amount, side="right")) - 1)
        now.cap.reshape(gpus)[where] = np.minimum(now.cap.reshape(gpus)[where], highest)
    elif one.kind == "link":
        now.link_s[where[:2]] += one.amount
    elif one.kind == "input":
        now.input_s[one.pipeline] += one.amount
    elif one.kind == "lost":
        now.alive[one.pipeline] = False


class Emulator:
    """An emulated job: plans, the truth that they are run against, machines, and what decides.

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
        plans = _with_scatter(plans, profile, conditions)
        self._index = FrontierIndex.of(plans, objective or Objective())
        self._world = World(plans, profile, cluster, conditions)

    @property
    def frontier_index(self) -> FrontierIndex:
        """The product's look-up among the plans."""
        return self._index

    def play(
        self,
        iterations: int,
        stragglers: Iterable[Straggler] = (),
        *,
        answered: bool = True,
        always: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Emulated:
        """Run a job from a start at default clocks.

        ``answered`` False leaves stragglers without an answer; ``always`` is one plan throughout
        (DEFAULT_CLOCKS: none).

        Raises:
            ConfigError: a straggler that does not exist, or no iterations.
        """
        cluster = self._world.cluster
        stragglers = tuple(stragglers)
        for one in stragglers:
            one.check_exists(pipelines=cluster.pipelines, ranks=self._world.job.ranks, tensor=cluster.tensor)
        answers = Answers(self._index, cluster.pipelines, answered=answered)
        run = JobRun(self._world, iterations)
        for n in range(iterations):
            planned, on_pace = answers.plans, answers.on_pace
            here = tuple(one for one in stragglers if one.is_active(n))
            if always is not None:
                planned = [always] * len(planned)
            seen = run.iterate(n, list(zip(planned, on_pace, strict=True)), here)
            answers.observe(ReplicaStatus(*seen, _announced(here, cluster.pipelines)))
            if progress is not None:
                progress((n + 1) / iterations)
        return run.result(tuple(answers.decisions), answers_cost_pct=answers.cost_pct)


def _with_scatter(plans: PlanSet, profile: Profile, conditions: Conditions) -> PlanSet:
    """Plans that know how durations vary here, as those from a profile of this job would.

    A CSV does not state it, and no profile knows of loads that are given for the emulation.
    """
    loads = conditions.loads
    if plans.scatter_pct is not None and loads is None:
        return plans
    by_load = 0.0 if loads is None else loads.variation(profile, dag_of(plans.schedule).nodes)
    variation = dict.fromkeys(plans.options, math.hypot(conditions.noise, by_load))
    scattered_pct = scatter_pct(dag_of(plans.schedule), plans.options, plans.fixed_s, variation)
    return replace(plans, scatter_pct=max(scattered_pct, plans.scatter_pct or 0.0))


def _announced(stragglers: Iterable[Straggler], pipelines: int) -> Floats:
    announced = np.ones(pipelines)
    for one in stragglers:
        if one.kind == "announced":
            announced[one.pipeline] = max(announced[one.pipeline], one.amount)
    return announced


class Answers:
    """`ReplicaPlans` as a job asks them: the numbers of iteration n decide what runs from n + ``lag`` on.

    A job collects the numbers of an iteration at the end of the next one: its lag is 2. Like a job, it
    judges no replica by the first iteration, in which clocks change. ``decisions`` are those in hand as
    each iteration ends. ``answered`` False runs the objective's plans throughout, for comparison.
    """

    def __init__(self, index: FrontierIndex, replicas: int, *, lag: int = 2, answered: bool = True) -> None:
        self._replica_plans = ReplicaPlans(index, replicas, answered=answered, reaction_delay=lag)
        self._under_way = deque(ReplicaStatus.unknown(replicas) for _ in range(lag - 1))
        self._lag = lag
        self.decisions: list[StragglerDecision] = []

    @property
    def plans(self) -> Sequence[float]:
        """Return what the next iteration is run at, a plan per replica."""
        return self._replica_plans.plans

    @property
    def cost_pct(self) -> float:
        """Return what answers have cost over the last 1 000 iterations."""
        return self._replica_plans.account["cost_pct"]

    @property
    def on_pace(self) -> Sequence[bool]:
        """Return which replicas last as long as the plan that they run predicts."""
        return self._replica_plans.on_pace

    def observe(self, status: ReplicaStatus) -> None:
        """End an iteration, of which the replicas report this."""
        index = len(self.decisions)
        self._under_way.append(status)
        self._replica_plans.observe(index + 1 - self._lag, self._under_way.popleft())
        self._replica_plans.will_run(index + 1)
        assert self._replica_plans.decision is not None
        self.decisions.append(self._replica_plans.decision)
