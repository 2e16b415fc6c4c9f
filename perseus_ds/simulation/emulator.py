"""A whole job in virtual time: every instruction, clocks that change when they would, real decisions."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.errors import ConfigError, PlanError
from perseus_ds.plan import PlanSet
from perseus_ds.plan.clock_requests import OPENING, clock_requests, opening_clocks
from perseus_ds.plan.reserve import scatter_pct
from perseus_ds.plan.select import plan_numbered
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of
from perseus_ds.simulation.cluster import idle_gpus, job_program, tables_of, waiting_by_clock
from perseus_ds.simulation.kernel import (
    CAUSES,
    Change,
    EmulatedIteration,
    Floats,
    Ints,
    PlannedRequests,
    Play,
    PowerTrace,
    play_pipelines,
    settle,
)
from perseus_ds.simulation.scenario import ClusterShape, Conditions, Straggler
from perseus_ds.straggler.controller import ReplicaStatus, StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.replica_plans import ReplicaPlans

__all__ = ["CAUSES", "DEFAULT_CLOCKS", "ClusterShape", "Conditions", "Emulated", "Emulator", "means"]

Asking = tuple[float, bool]
"""A plan, and whether it is asked for as on pace: lower clocks ahead."""
AFTER_OPENING_S = 1e-6
"""An iteration opens with its clock; what is asked for then comes after it."""

DEFAULT_CLOCKS = -1
"""In place of a plan: the highest clock throughout."""

# What an emulated job did, iteration by iteration.


@dataclass(frozen=True, slots=True, eq=False)
class Emulated:
    """Times and energies of the whole job, iteration by iteration, and decisions.

    ``job_s`` is from release to release of the first rank; ``own_s`` without the wait for other pipelines
    (NaN: it took no part). Energy is that of all GPUs. ``answers_cost_pct`` is the time that answers to
    stragglers cost in the last 1 000 iterations, in percent of these.

    Shape: ``job_s``, ``changes`` [iterations]; ``own_s``, ``plan`` [iterations, pipelines]; ``energy_j``
    [iterations, causes].
    """

    gpus: int
    job_s: Floats
    own_s: Floats
    plan: Floats
    energy_j: Floats
    changes: Ints
    trace: PowerTrace
    decisions: tuple[StragglerDecision, ...] = ()
    answers_cost_pct: float = 0.0

    @property
    def iterations(self) -> int:
        return len(self.job_s)

    @property
    def by_cause_j(self) -> Mapping[str, float]:
        """Energy of all GPUs over all iterations, by what it went into."""
        return dict(zip(CAUSES, self.energy_j.sum(axis=0).tolist(), strict=True))

    @property
    def power_w(self) -> Floats:
        """Mean power of the job in every whole bin of its trace."""
        whole = int(self.job_s.sum() / self.trace.bin_s)
        power: Floats = self.trace.energy_j[:whole] / self.trace.bin_s
        return power

    def changes_per_s(self) -> float:
        return float(self.changes.sum() / self.gpus / self.job_s.sum())


def means(found: Emulated) -> tuple[float, float]:
    """Mean iteration time and energy, the first iteration (which fills the pipeline's clocks) left out."""
    after = slice(1, None) if found.iterations > 1 else slice(None)
    return float(np.mean(found.job_s[after])), float(np.mean(found.energy_j[after].sum(axis=1)))


class Emulator:
    """An emulated job: plans, the truth that they are run against, machines, and what decides.

    ``frontier_index`` is the product's look-up among the plans.

    Raises:
        IncompleteProfileError: the profile lacks a computation of the plan.
        PlanError: the profile is of another shape than the plan, or the plan has timelines of kernels.
    """

    def __init__(
        self, plans: PlanSet, profile: Profile, cluster: ClusterShape, *, conditions: Conditions | None = None
    ) -> None:
        if profile.stages != plans.schedule.stages:
            raise PlanError(
                f"the plan is for {plans.schedule.stages} stages, the profile has {profile.stages}",
                hint="give the profile that the plan was made from",
            )
        if any(options.timelines for options in plans.options.values()):
            raise PlanError(
                "the plan has timelines of kernels: an emulated GPU knows computations at whole clocks",
                hint="emulate a plan made without --timelines",
            )
        self.cluster, self.conditions = cluster, conditions or Conditions()
        self.profile, self.plans = profile, _with_scatter(plans, profile, self.conditions)
        self.frontier_index = FrontierIndex.of(self.plans, Objective())
        self.job = job_program(plans.schedule, plans.fixed_s)
        planned_mhz = {int(mhz) for options in plans.options.values() for mhz in options.clock_mhz}
        planned_mhz |= set() if plans.wait_clock is None else {plans.wait_clock.clock_mhz}
        waiting_w = waiting_by_clock(plans, cluster.waiting_w)
        self.tables = tables_of(profile, self.job.rows, waiting_w=waiting_w, clocks_mhz=planned_mhz)
        self.change = Change(**asdict(cluster.change))
        self.requests = functools.cache(self._requests)
        self._asked = functools.cache(self._asked_by)

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
        pipelines, stragglers = self.cluster.pipelines, tuple(stragglers)
        if iterations < 1:
            raise ConfigError(f"{iterations} iterations do not make a job", hint="at least 1")
        for one in stragglers:
            one.check_exists(pipelines=pipelines, ranks=self.job.ranks, tensor=self.cluster.tensor)
        answers = Answers(self.frontier_index, pipelines, answered=answered)
        run = _Run(self, iterations)
        for n in range(iterations):
            planned, on_pace = answers.replica_plans.plans, answers.replica_plans.on_pace
            here = tuple(one for one in stragglers if one.is_active(n))
            if always is not None:
                planned = [always] * len(planned)
            seen = run.iterate(n, list(zip(planned, on_pace, strict=True)), here)
            answers.observe(ReplicaStatus(*seen, _announced_slowdowns(here, pipelines)))
            if progress is not None:
                progress((n + 1) / iterations)
        cost_pct = answers.replica_plans.account["cost_pct"]
        return replace(run.found, decisions=tuple(answers.decisions), answers_cost_pct=cost_pct)

    def _requests(self, plans: tuple[Asking, ...]) -> PlannedRequests:
        """Return what some plans ask for, in this order; clocks are places in the grid."""
        place = {int(clock): index for index, clock in enumerate(self.tables.clock_mhz)}
        opening_mhz, of_rows = zip(*(self._asked(*asking) for asking in plans), strict=True)
        rows = len(self.job.nodes) + self.job.ranks
        asked = [of_row.get(row, ()) for of_row in of_rows for row in range(rows)]
        ends = np.cumsum([0, *map(len, asked)])
        every = [request for one in asked for request in one]
        return PlannedRequests(
            first=ends[np.arange(len(plans))[:, None] * rows + np.arange(rows + 1)].astype(np.int64),
            offset_s=np.array([offset_s for offset_s, _ in every], dtype=np.float64),
            clock=np.array([place[clock_mhz] for _, clock_mhz in every], dtype=np.int64),
            opening=np.array([[place[clock] for clock in own] for own in opening_mhz], dtype=np.int64),
        )

    def _asked_by(
        self,
        plan: float,
        on_pace: bool,  # noqa: FBT001
    ) -> tuple[list[int], Mapping[int, Sequence[tuple[float, int]]]]:
        """Ask as a job does, every clock ahead by its own latency.

        Return the clock of each rank as an iteration begins, then (offset, clock) by row of
        `PlannedRequests`.
        """
        if plan == DEFAULT_CLOCKS:
            return [max(self.profile.clocks_mhz)] * self.job.ranks, {}
        change = self.cluster.reckoned or self.cluster.change
        place, chosen = {node: at for at, node in enumerate(self.job.nodes)}, plan_numbered(self.plans, plan)
        opening_mhz, of_row = list[int](), defaultdict[int, list[tuple[float, int]]](list)
        for rank in range(self.job.ranks):
            own = [instruction for _, instruction in self.plans.computations_of(rank)]
            requests = clock_requests(chosen, rank, change, on_pace=on_pace)
            opening_mhz.append(opening_clocks(chosen, rank, requests)[0])
            for request in requests:
                offset_s, row = max(request.offset_s, AFTER_OPENING_S), len(place) + rank
                if request.position != OPENING:
                    offset_s, row = request.offset_s, place[own[request.position]]
                    if request.over:
                        offset_s = -offset_s if offset_s else math.inf
                of_row[row].append((offset_s, request.clock_mhz))
        return opening_mhz, of_row


class _Run:
    """A job under way: the state of its GPUs, and what it did so far."""

    def __init__(self, emulator: Emulator, iterations: int) -> None:
        cluster, conditions, ranks = emulator.cluster, emulator.conditions, emulator.job.ranks
        self._emulator, self._top = emulator, len(emulator.tables.clock_mhz) - 1
        self._gpus = idle_gpus(cluster.gpus(ranks), per_node=cluster.gpus_per_node, clock=self._top)
        bin_s = conditions.trace_bin_s  # room for twice the time that the job needs if nothing goes wrong
        longest_s = float(emulator.plans.iteration_time_s[-1])
        bins = int(2.0 * iterations * longest_s / bin_s) + 1 if bin_s else 0
        self._start_s = np.zeros((cluster.pipelines, ranks))
        self._random = np.random.default_rng(conditions.seed)
        self.found = Emulated(
            gpus=cluster.gpus(ranks),
            job_s=np.zeros(iterations),
            own_s=np.full((iterations, cluster.pipelines), np.nan),
            plan=np.zeros((iterations, cluster.pipelines)),
            energy_j=np.zeros((iterations, len(CAUSES))),
            changes=np.zeros(iterations, dtype=np.int64),
            trace=PowerTrace(bin_s or 1.0, np.zeros(bins)),
        )

    def iterate(
        self, n: int, plans: Sequence[Asking], stragglers: Sequence[Straggler]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Run iteration ``n`` of all pipelines up to their common release.

        Return what ranks inform each other of: own times (NaN: unknown), who is capped.
        """
        used, found, job = tuple(sorted(set(plans))), self.found, self._emulator.job
        cluster, tables = self._emulator.cluster, self._emulator.tables
        requests, change = self._emulator.requests(used), self._emulator.change
        shape = 0, cluster.pipelines, job.ranks, cluster.tensor, cluster.gpus_per_node
        play = Play(*shape, job.program, tables, change, requests, self._gpus, found.trace)
        before_j, before = self._gpus.energy_j.sum(axis=0), int(self._gpus.changes.sum())
        now = self._iteration(n, np.array([used.index(plan) for plan in plans], np.int64), stragglers)
        for first, end in cluster.islands(job.ranks):
            play_pipelines(play._replace(first=first, end=end), now)
        alive = now.alive
        if not alive.any():
            raise ConfigError("all pipelines are lost at once", hint="leave one that goes on")
        arrived_s = now.arrival_s[alive]  # each rank meets its peers, or all meet the last of all
        met_s = arrived_s.max(axis=0) if job.by_rank else np.full(job.ranks, arrived_s.max())
        released_s = float((met_s + job.reduction_s).max()) + job.step_s  # all meet for the norm
        release_s = np.broadcast_to(released_s, now.arrival_s.shape).copy()
        settle(play, now.cap, release_s.ravel())
        found.plan[n] = [plan for plan, _ in plans]
        arrival_s = arrived_s[:, 0] if job.by_rank else arrived_s.max(axis=1)
        found.own_s[n, alive] = arrival_s - now.start_s[alive, 0] + released_s[0] - met_s[0]
        found.job_s[n] = float((release_s - self._start_s)[:, 0].max())
        found.energy_j[n] = self._gpus.energy_j.sum(axis=0) - before_j
        found.changes[n] = int(self._gpus.changes.sum()) - before
        self._start_s = release_s
        return found.own_s[n], now.capped

    def _iteration(
        self, n: int, place: NDArray[np.int64], stragglers: Sequence[Straggler]
    ) -> EmulatedIteration:
        emulator, cluster, conditions = self._emulator, self._emulator.cluster, self._emulator.conditions
        by_node, program = (cluster.pipelines, len(emulator.job.nodes)), emulator.job.program
        instructions = np.bincount(program.rank, minlength=emulator.job.ranks)
        noise = conditions.noise * self._random.standard_normal(by_node) if conditions.noise else 0.0
        factor = np.maximum(0.05, 1.0 + noise) * conditions.work[n % len(conditions.work)]
        if (loads := conditions.loads) is not None:
            factor = factor * loads.factors(
                emulator.profile, emulator.job.nodes, n, pipelines=cluster.pipelines
            )
        now = EmulatedIteration(
            plan=place,
            alive=np.ones(cluster.pipelines, dtype=np.bool_),
            input_s=np.zeros(cluster.pipelines),
            factor=np.broadcast_to(factor, by_node).copy(),
            slow=np.ones(self.found.gpus),
            cap=np.full(self.found.gpus, self._top, dtype=np.int64),
            start_s=self._start_s,
            link_s=np.zeros_like(self._start_s),
            arrival_s=self._start_s.copy(),
            capped=np.zeros(cluster.pipelines, dtype=np.bool_),
            waits_for=np.tile(program.waits_for, (cluster.pipelines, 1)),
            ready_s=np.take(self._start_s, program.rank, axis=1),
            running=np.full_like(self._start_s, -1, dtype=np.int64),
            due_s=np.zeros_like(self._start_s),
            left=np.tile(instructions, (cluster.pipelines, 1)),
            asked=np.zeros_like(self._start_s, dtype=np.int64),
            newest=np.zeros_like(self._start_s, dtype=np.int64),
        )
        for one in stragglers:
            _hold_back(now, one, cluster.tensor, emulator.tables.clock_mhz)
        now.left[~now.alive] = 0
        return now


def _hold_back(now: EmulatedIteration, one: Straggler, tensor: int, clocks_mhz: Ints) -> None:
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


def _announced_slowdowns(stragglers: Iterable[Straggler], pipelines: int) -> Floats:
    announced = np.ones(pipelines)
    for one in stragglers:
        if one.kind == "announced":
            announced[one.pipeline] = max(announced[one.pipeline], one.amount)
    return announced


class Answers:
    """`ReplicaPlans` as a job asks them: the numbers of iteration n decide what runs from n + 2 on.

    A job collects the numbers of an iteration at the end of the next one. Like a job, it judges no replica by
    the first iteration, in which clocks change. ``decisions`` are those in hand as each iteration ends.
    ``answered`` False runs the objective's plans throughout, for comparison.
    """

    def __init__(self, index: FrontierIndex, replicas: int, *, answered: bool = True) -> None:
        self.replica_plans = ReplicaPlans(index, replicas, answered=answered)
        self._posted = ReplicaStatus.unknown(replicas)
        self.decisions: list[StragglerDecision] = []

    def observe(self, status: ReplicaStatus) -> None:
        """End an iteration, of which the replicas report this."""
        index, posted, self._posted = len(self.decisions), self._posted, status
        self.replica_plans.observe(index - 1, posted)
        self.replica_plans.will_run(index + 1)
        assert self.replica_plans.decision is not None
        self.decisions.append(self.replica_plans.decision)
