"""The machines of an emulated job: how many pipelines, GPUs per rank and per node, and how clocks change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan import OPENING, PlanSet, clock_requests, opening_clocks
from perseus_ds.plan.select import plan_numbered
from perseus_ds.profile import Computation, Profile, smoothed
from perseus_ds.schedule import Instruction, Kind, Schedule, dag_of
from perseus_ds.simulation.kernel import (
    CAUSES,
    PENDING,
    Change,
    Floats,
    Gpus,
    Ints,
    PlannedRequests,
    Program,
    Tables,
)
from perseus_ds.simulation.scenario import ClusterShape, Conditions


def idle_gpus(count: int, *, per_node: int, clock: int) -> Gpus:
    """Return GPUs that wait at a clock and have used nothing yet."""
    never_s = np.full(count, -np.inf)
    return Gpus(
        clock=np.full(count, clock, dtype=np.int64),
        wanted=np.full(count, clock, dtype=np.int64),
        row=np.full(count, -1, dtype=np.int64),
        cause=np.ones(count, dtype=np.int64),
        left=np.zeros(count),
        since_s=np.zeros(count),
        done_s=np.zeros(count),
        paused_s=never_s.copy(),
        free_s=never_s.copy(),
        force_s=never_s.copy(),
        pending_s=np.zeros((count, PENDING)),
        pending=np.full((count, PENDING), -1, dtype=np.int64),
        energy_j=np.zeros((count, len(CAUSES))),
        changes=np.zeros(count, dtype=np.int64),
        driver_s=np.full(-(-count // per_node), -np.inf),
    )


# From a schedule to what the kernel runs: nodes up to the data-parallel reduction, and what follows it.

_AFTER_ALL = frozenset({Kind.REDUCE_GRADS, Kind.STEP})


@dataclass(frozen=True, slots=True, eq=False)
class JobProgram:
    """Program of all pipelines, with names.

    ``rows`` are the computations that rows of the tables stand for. ``by_rank``: each rank meets its peers of
    the other pipelines alone, for the reduction of its own gradients; else all ranks meet all others.
    ``reduction_s`` is what a rank does from there until the ranks of a pipeline meet for the norm of the
    gradients. ``step_s`` is what it does after that.

    Shape: ``nodes`` as in ``program``; ``reduction_s``, ``step_s`` [ranks].
    """

    program: Program
    nodes: tuple[Instruction, ...]
    rows: tuple[Computation, ...]
    reduction_s: Floats
    step_s: Floats
    by_rank: bool

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.step_s)


def job_program(schedule: Schedule, fixed_s: Mapping[Computation, float]) -> JobProgram:
    """Cut the graph where ranks meet their peers of other pipelines, and pack it.

    An instruction that stands for several ranks is its first one's.

    Raises:
        ScheduleError: the schedule cannot run.
    """

    def lasts_s(node: Instruction) -> float:
        return 0.0 if node.kind.is_computation else fixed_s.get((node.stage, node.kind), 0.0)

    rank_of: dict[Instruction, int] = {}
    cut, reduction_s, step_s = set[Instruction](), list[float](), list[float]()
    for own_rank, order in enumerate(schedule.orders):
        rank_of = dict.fromkeys(order, own_rank) | rank_of
        tail = next((n for n, one in enumerate(order) if one.kind in _AFTER_ALL), len(order))
        step = next((n for n, one in enumerate(order) if one.kind is Kind.STEP), len(order))
        cut.update(order[tail:])
        reduction_s.append(sum(map(lasts_s, order[tail:step])))
        step_s.append(sum(map(lasts_s, order[step:])))
    dag = dag_of(schedule)
    nodes = tuple(node for node in dag.nodes if node not in cut)
    rows = tuple(dict.fromkeys((n.stage, n.kind) for n in nodes if n.kind.is_computation))
    place = {node: index for index, node in enumerate(nodes)}
    number = {row: index for index, row in enumerate(rows)}
    ends = ((place.get(dag.nodes[before]), place.get(dag.nodes[after])) for before, after in dag.edges)
    edges = sorted(
        (before, after, delay_s)
        for (before, after), delay_s in zip(ends, dag.delays_s(fixed_s), strict=True)
        if before is not None and after is not None
    )
    before, after = np.ascontiguousarray(np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2).T)
    rank = np.array([rank_of[node] for node in nodes], dtype=np.int64)
    program = Program(
        rank=rank,
        row=np.array([number.get((node.stage, node.kind), -1) for node in nodes], dtype=np.int64),
        fixed_s=np.array([lasts_s(node) for node in nodes]),
        waits_for=np.bincount(after, minlength=len(nodes)).astype(np.int64),
        first=np.searchsorted(before, np.arange(len(nodes) + 1)).astype(np.int64),
        after=after,
        delay_s=np.array([edge[2] for edge in edges], dtype=np.float64),
        crosses=rank[before] != rank[after],
    )
    return JobProgram(program, nodes, rows, np.array(reduction_s), np.array(step_s), by_rank=bool(cut))


# Which clocks a plan asks for, and when: in the kernel's words.

AFTER_OPENING_S = 1e-6
"""An iteration opens with its clock; what is asked for then comes after it."""


class PlanRequests(NamedTuple):
    """All that a plan asks for: by rank as an iteration begins, then by node as (offset, clock).

    An offset counts from a computation's start; infinite is at its end, negative that long after it. What a
    rank asks for some time after an iteration's begin stands behind all nodes.
    """

    opening_mhz: Sequence[int]
    of_row: Mapping[int, Sequence[tuple[float, int]]]


def requests_of(
    plans: PlanSet, plan: float, job: JobProgram, *, change: ClockChange, on_pace: bool
) -> PlanRequests:
    """Ask as a job does: every clock ahead by its own latency."""
    place = {node: index for index, node in enumerate(job.nodes)}
    chosen = plan_numbered(plans, plan)
    opening_mhz: list[int] = []
    of_row: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for rank in range(job.ranks):
        own = [instruction for _, instruction in plans.computations_of(rank)]
        requests = clock_requests(chosen, rank, change, on_pace=on_pace)
        opening_mhz.append(opening_clocks(chosen, rank, requests)[0])
        for request in requests:
            offset_s, row = request.offset_s, len(place) + rank
            if request.position == OPENING:
                offset_s = max(offset_s, AFTER_OPENING_S)
            else:
                row = place[own[request.position]]
                if request.over:
                    offset_s = -offset_s if offset_s else math.inf
            of_row[row].append((offset_s, request.clock_mhz))
    return PlanRequests(opening_mhz, of_row)


def packed(plans: Sequence[PlanRequests], job: JobProgram, clocks_mhz: Ints) -> PlannedRequests:
    """Put several plans' requests into arrays; clocks become places in the grid."""
    place = {int(clock): index for index, clock in enumerate(clocks_mhz)}
    rows = len(job.nodes) + job.ranks
    asked = [plan.of_row.get(row, ()) for plan in plans for row in range(rows)]
    ends = np.cumsum([0, *map(len, asked)])
    every = [request for one in asked for request in one]
    return PlannedRequests(
        first=ends[np.arange(len(plans))[:, None] * rows + np.arange(rows + 1)].astype(np.int64),
        offset_s=np.array([offset_s for offset_s, _ in every], dtype=np.float64),
        clock=np.array([place[clock_mhz] for _, clock_mhz in every], dtype=np.int64),
        opening=np.array([[place[clock] for clock in plan.opening_mhz] for plan in plans], dtype=np.int64),
    )


# What stays the same while a job is emulated: programs, tables, machines, and what plans ask for.

Asking = tuple[float, bool]
"""A plan, and whether it is asked for as on pace: lower clocks ahead."""

DEFAULT_CLOCKS = -1
"""In place of a plan: the highest clock throughout."""


class World:
    """Constants of an emulated job: programs, tables, machines, what plans ask for."""

    def __init__(
        self, plans: PlanSet, profile: Profile, cluster: ClusterShape, conditions: Conditions
    ) -> None:
        if any(options.timelines for options in plans.options.values()):
            raise PlanError(
                "the plan has timelines of kernels: an emulated GPU knows computations at whole clocks",
                hint="emulate a plan made without --timelines",
            )
        self.plans, self.cluster, self.conditions = plans, cluster, conditions
        self._profile = profile
        self.job = job_program(plans.schedule, plans.fixed_s)
        waiting_w = _as_planned_w(plans) if cluster.waiting_w is None else cluster.waiting_w
        planned_mhz = {int(mhz) for options in plans.options.values() for mhz in options.clock_mhz}
        if plans.wait_clock is not None:
            planned_mhz.add(plans.wait_clock.clock_mhz)
        self.tables = tables_of(profile, self.job.rows, waiting_w=waiting_w, clocks_mhz=planned_mhz)
        self.highest_mhz = max(profile.clocks_mhz)
        self.change = Change(**asdict(cluster.change))
        self._asked: dict[Asking, PlanRequests] = {}
        self._packed: dict[tuple[Asking, ...], PlannedRequests] = {}

    def requests(self, plans: tuple[Asking, ...]) -> PlannedRequests:
        """Return what some plans ask for, in this order."""
        if plans not in self._packed:
            for asking in plans:
                if asking not in self._asked:
                    self._asked[asking] = self._requests_of(*asking)
            asked = [self._asked[asking] for asking in plans]
            self._packed[plans] = packed(asked, self.job, self.tables.clock_mhz)
        return self._packed[plans]

    def load_factors(self, iteration: int) -> Floats | float:
        """Return how many times its mean each computation of an iteration takes, for its load.

        Shape: [pipelines, nodes].
        """
        loads = self.conditions.loads
        if loads is None:
            return 1.0
        return loads.factors(self._profile, self.job.nodes, iteration, pipelines=self.cluster.pipelines)

    def _requests_of(self, plan: float, on_pace: bool) -> PlanRequests:  # noqa: FBT001
        if plan == DEFAULT_CLOCKS:
            return PlanRequests([self.highest_mhz] * self.job.ranks, {})
        change = self.cluster.reckoned or self.cluster.change
        return requests_of(self.plans, plan, self.job, change=change, on_pace=on_pace)


def _as_planned_w(plans: PlanSet) -> Mapping[int, float] | float:
    """Power of a waiting GPU (W) as the plans know it: by clock where some of their waits go down."""
    clock = plans.wait_clock
    if clock is None:
        return plans.blocking_power_w
    highest_mhz = max(int(options.clock_mhz[0]) for options in plans.options.values())
    return {highest_mhz: clock.high_power_w, clock.clock_mhz: clock.power_w}


def tables_of(
    profile: Profile,
    rows: Sequence[Computation],
    *,
    waiting_w: Mapping[int, float] | float,
    clocks_mhz: Iterable[int] = (),
) -> Tables:
    """Lay the profile out on one grid of clocks: all that were measured, and ``clocks_mhz``.

    Points are those that plans believe (`smoothed`); between clocks time and power are interpolated. Below
    the lowest one the work is taken to be bound by the clock: time with 1/f, power with f. That holds for a
    change that is late and for a clock for waiting. Waiting power is a number, or given by clock,
    interpolated, flat beyond its ends.

    Raises:
        IncompleteProfileError: a computation was not measured.
    """
    waiting = waiting_w if isinstance(waiting_w, Mapping) else {}
    believed = smoothed(profile)
    clocks = np.array(sorted({*believed.clocks_mhz, *clocks_mhz, *waiting}), dtype=np.int64)
    filled = []
    for row in rows:
        points = believed.of(*row)[::-1]
        measured = np.array([point.clock_mhz for point in points], dtype=np.float64)
        share = np.minimum(1.0, clocks / measured[0])
        time_s = np.interp(clocks, measured, [point.time_s for point in points]) / share
        power_w = np.interp(clocks, measured, [point.energy_j / point.time_s for point in points]) * share
        filled.append((time_s, power_w))
    if isinstance(waiting_w, Mapping):
        known_mhz, known_w = zip(*sorted(waiting_w.items()), strict=True)
        waits_w = np.asarray(np.interp(clocks, known_mhz, known_w))
    else:
        waits_w = np.full(len(clocks), float(waiting_w))
    return Tables(
        clock_mhz=clocks,
        waiting_w=waits_w,
        time_s=np.array([time_s for time_s, _ in filled]),
        power_w=np.array([power_w for _, power_w in filled]),
    )
