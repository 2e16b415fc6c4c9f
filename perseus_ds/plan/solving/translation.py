"""A schedule and a profile as the solver sees them: a graph with a table of options for every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.kernels import InstructionTimelines
from perseus_ds.plan.options import Options, joined
from perseus_ds.plan.record import Baseline
from perseus_ds.profile import Computation, Profile
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of
from perseus_ds.solver import OptionTable, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """A schedule's graph with a table of options for every node.

    ``columns`` are the nodes of all that has a clock, in running order, rank after rank; ``ranks`` which of
    these columns each rank has.

    Shape: ``columns`` [computations].
    """

    schedule: Schedule
    dag: Dag
    problem: Problem
    options: Mapping[Computation, Options]
    fixed_s: Mapping[Computation, float]
    columns: NDArray[np.int32]
    ranks: tuple[range, ...]


def translate(
    profile: Profile,
    schedule: Schedule,
    blocking_power_w: float,
    reserve_pct: float,
    timelines: Sequence[InstructionTimelines] = (),
) -> Translation:
    """Look every node's options up, and number what the solver numbers.

    Raises:
        IncompleteProfileError: a stage of the schedule was not measured.
    """
    dag = dag_of(schedule)
    computed = dict.fromkeys((n.stage, n.kind) for n in dag.nodes if n.kind.is_computation)
    options = joined({key: _options(profile, *key) for key in computed}, timelines)
    fixed = {
        (n.stage, n.kind): profile.fixed_s.get((n.stage, n.kind), 0.0)
        for n in dag.nodes
        if not n.kind.is_computation
    } | {send: profile.fixed_s.get(send, 0.0) for send in dag.buffered.values()}
    tables = [_effective(option, blocking_power_w, reserve_pct) for option in options.values()]
    tables += [OptionTable(np.array([time_s]), np.array([0.0])) for time_s in fixed.values()]
    number = {key: index for index, key in enumerate([*options, *fixed])}
    before, after = np.array(dag.edges, dtype=np.int32).reshape(-1, 2).T
    problem = Problem(
        tables=tuple(tables),
        table_of=np.array([number[n.stage, n.kind] for n in dag.nodes], dtype=np.int32),
        before=np.ascontiguousarray(before),
        after=np.ascontiguousarray(after),
        delay_s=np.array(dag.delays_s(fixed)),
    )
    position = {node: index for index, node in enumerate(dag.nodes)}
    computations = [[position[i] for i in order if i.kind.is_computation] for order in schedule.orders]
    ends = np.cumsum([len(order) for order in computations]).tolist()
    ranks = tuple(range(end - len(order), end) for end, order in zip(ends, computations, strict=True))
    columns = np.array([column for order in computations for column in order], np.int32)
    return Translation(schedule, dag, problem, options, fixed, columns, ranks)


def _options(profile: Profile, stage: int, kind: Kind) -> Options:
    points = profile.of(stage, kind)
    return Options(
        np.array([p.clock_mhz for p in points]),
        np.array([p.time_s for p in points]),
        np.array([p.energy_j for p in points]),
    )


def _effective(options: Options, blocking_power_w: float, reserve_pct: float) -> OptionTable:
    """Subtract what the GPU would use anyway, waiting: before anything is filtered.

    Source: arXiv 2312.06902, equation 4.
    """
    time_s = options.planned_s(reserve_pct)
    return OptionTable(time_s, options.energy_j - blocking_power_w * options.time_s)


def baseline_of(translation: Translation, blocking_power_w: float) -> Baseline:
    """Run everything at its highest clock."""

    def highest(node: Instruction) -> tuple[float, float]:
        key = (node.stage, node.kind)
        if key in translation.fixed_s:
            return translation.fixed_s[key], 0.0
        return float(translation.options[key].time_s[0]), float(translation.options[key].energy_j[0])

    spent = [highest(node) for node in translation.dag.nodes]
    durations = [time_s for time_s, _ in spent]
    starts = translation.dag.earliest_starts(durations, translation.fixed_s)
    iteration_time_s = max(start + time for start, time in zip(starts, durations, strict=True))
    working_s = sum(
        time for time, node in zip(durations, translation.dag.nodes, strict=True) if node.kind.is_computation
    )
    waiting_j = blocking_power_w * (translation.schedule.ranks * iteration_time_s - working_s)
    energy_j = sum(energy_j for _, energy_j in spent) + waiting_j
    return Baseline(iteration_time_s, energy_j, blocking_power_w)
