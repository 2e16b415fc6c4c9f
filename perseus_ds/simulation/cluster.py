"""An emulated job as its kernel reads it: waiting GPUs, the program of a pipeline, tables by clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile, smooth
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Instruction, Kind, Schedule, dag_of
from perseus_ds.simulation.kernel import CAUSES, PENDING, Floats, Gpus, Program, Tables


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
        return len(self.step_s)


def job_program(schedule: Schedule, fixed_s: Mapping[Computation, float]) -> JobProgram:
    """Cut the graph where ranks meet their peers of other pipelines, and pack it.

    Raises:
        ScheduleError: the schedule cannot run.
    """

    def lasts_s(node: Instruction) -> float:
        return 0.0 if node.kind.is_computation else fixed_s.get((node.stage, node.kind), 0.0)

    cut, reduction_s, step_s = set[Instruction](), list[float](), list[float]()
    for order in schedule.orders:
        tail = next((n for n, one in enumerate(order) if one.kind in _AFTER_ALL), len(order))
        step = next((n for n, one in enumerate(order) if one.kind is Kind.STEP), len(order))
        cut.update(order[tail:])
        reduction_s.append(sum(map(lasts_s, order[tail:step])))
        step_s.append(sum(map(lasts_s, order[step:])))
    dag, rank_of = dag_of(schedule), schedule.rank_of_stages()
    kept = [at for at, node in enumerate(dag.nodes) if node not in cut]
    nodes, place = tuple(dag.nodes[at] for at in kept), {at: index for index, at in enumerate(kept)}
    rows = tuple(dict.fromkeys((n.stage, n.kind) for n in nodes if n.kind.is_computation))
    number = {row: index for index, row in enumerate(rows)}
    edges = sorted(
        (place[before], place[after], delay_s)
        for (before, after), delay_s in zip(dag.edges, dag.delays_s(fixed_s), strict=True)
        if before in place and after in place
    )
    before, after = np.ascontiguousarray(np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2).T)
    rank = np.array([rank_of[node.stage] for node in nodes], dtype=np.int64)
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


# Durations and powers of a job's computations and of waiting, at every clock of one grid.


def waiting_by_clock(plans: PlanSet, given_w: Mapping[int, float] | float | None) -> Mapping[int, float]:
    """Return the power of a waiting GPU (W) by clock, as it is given; None: as plans know it."""
    highest_mhz, clock = (
        max(int(options.clock_mhz[0]) for options in plans.options.values()),
        plans.wait_clock,
    )
    if given_w is None and clock is not None:
        return {highest_mhz: clock.high_power_w, clock.clock_mhz: clock.power_w}
    if given_w is None:
        return {highest_mhz: plans.blocking_power_w}
    return given_w if isinstance(given_w, Mapping) else {highest_mhz: given_w}


def tables_of(
    profile: Profile,
    rows: Sequence[Computation],
    *,
    waiting_w: Mapping[int, float],
    clocks_mhz: Iterable[int] = (),
) -> Tables:
    """Lay the profile out on one grid of clocks: all that were measured, and ``clocks_mhz``.

    Points are those that plans believe (`smooth`); between clocks time and power are interpolated. Below
    the lowest one the work is taken to be bound by the clock: time with 1/f, power with f. That holds for a
    change that is late and for a clock for waiting. Waiting power is interpolated, flat beyond its ends.

    Raises:
        IncompleteProfileError: a computation was not measured.
    """
    believed = smooth(profile)
    clocks = np.array(sorted({*believed.clocks_mhz, *clocks_mhz, *waiting_w}), dtype=np.int64)
    filled = []
    for row in rows:
        points = believed.of(*row)[::-1]
        measured = np.array([point.clock_mhz for point in points], dtype=np.float64)
        share = np.minimum(1.0, clocks / measured[0])
        time_s = np.interp(clocks, measured, [point.time_s for point in points]) / share
        power_w = np.interp(clocks, measured, [point.energy_j / point.time_s for point in points]) * share
        filled.append((time_s, power_w))
    known_mhz, known_w = zip(*sorted(waiting_w.items()), strict=True)
    return Tables(
        clock_mhz=clocks,
        waiting_w=np.asarray(np.interp(clocks, known_mhz, known_w)),
        time_s=np.array([time_s for time_s, _ in filled]),
        power_w=np.array([power_w for _, power_w in filled]),
    )
