"""What planning works on: a schedule's graph with a table of measured options for every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.idle import columns_of
from perseus_ds.plan.options import Options, joined
from perseus_ds.plan.record import Baseline
from perseus_ds.plan.timelines import InstructionTimelines
from perseus_ds.profile import Computation, Profile, smoothed
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of
from perseus_ds.solver import OptionTable, Problem


@dataclass(frozen=True, slots=True, eq=False)
class PlanProblem:
    """A schedule's graph, the options of its computations, and the same as the solver numbers it.

    ``activities`` has a table of effective energies for every node of ``dag``, with ``waiting_w`` what one
    GPU takes that waits. ``columns`` are the nodes of all that has a clock, in running order, rank after
    rank; ``ranks`` which of these columns each rank has. ``variation`` is by what share each computation
    varies; None where the profile does not state it of all. ``load_variation`` is by what share microbatches
    vary for their loads, alike on all stages.

    Shape: ``columns`` [computations].
    """

    schedule: Schedule
    dag: Dag
    activities: Problem
    options: Mapping[Computation, Options]
    fixed_s: Mapping[Computation, float]
    columns: NDArray[np.int32]
    ranks: tuple[range, ...]
    waiting_w: float
    variation: Mapping[Computation, float] | None
    load_variation: float = 0.0
    reserve_pct: float = 0.0

    @property
    def total_w(self) -> float:
        """Power of all ranks waiting at once."""
        return self.waiting_w * self.schedule.ranks

    def reserving(self, reserve_pct: float) -> PlanProblem:
        """Take every computation below its fastest clock as that much longer."""
        return self._of(self.options, reserve_pct)

    def keeping(self, margins_s: Mapping[Computation, NDArray[np.float64]]) -> PlanProblem:
        """Take durations as longer by a margin for the profile's errors; with none as they are.

        Shape: ``margins_s`` [clocks] each.
        """
        options = {key: replace(own, margin_s=margins_s.get(key)) for key, own in self.options.items()}
        return self._of(options, self.reserve_pct)

    def with_timelines(self, timelines: Sequence[InstructionTimelines]) -> PlanProblem:
        """Add further ways to run instructions.

        Raises:
            PlanError: timelines of an instruction that is not planned.
        """
        return self._of(joined(self.options, timelines), self.reserve_pct) if timelines else self

    def _of(self, options: Mapping[Computation, Options], reserve_pct: float) -> PlanProblem:
        tables = _tables(options, self.fixed_s, self.waiting_w, reserve_pct)
        return replace(
            self,
            options=options,
            activities=replace(self.activities, tables=tables),
            reserve_pct=reserve_pct,
        )

    def baseline(self, blocking_power_w: float) -> Baseline:
        """Run everything at its highest clock."""

        def highest(node: Instruction) -> tuple[float, float]:
            key = (node.stage, node.kind)
            if key in self.fixed_s:
                return self.fixed_s[key], 0.0
            return float(self.options[key].time_s[0]), float(self.options[key].energy_j[0])

        spent = [highest(node) for node in self.dag.nodes]
        durations = [time_s for time_s, _ in spent]
        starts = self.dag.earliest_starts(durations, self.fixed_s)
        iteration_time_s = max(start + time for start, time in zip(starts, durations, strict=True))
        working_s = sum(
            time for time, node in zip(durations, self.dag.nodes, strict=True) if node.kind.is_computation
        )
        waiting_j = blocking_power_w * (self.schedule.ranks * iteration_time_s - working_s)
        energy_j = sum(energy_j for _, energy_j in spent) + waiting_j
        return Baseline(iteration_time_s, energy_j, blocking_power_w)


def problem_of(profile: Profile, schedule: Schedule, waiting_w: float) -> PlanProblem:
    """Look every node's options up, and number what the solver numbers; without reserve.

    Points are those behind the profile's (`smoothed`).

    Raises:
        IncompleteProfileError: a stage of the schedule was not measured.
    """
    dag, profile = dag_of(schedule), smoothed(profile)
    computed = dict.fromkeys((n.stage, n.kind) for n in dag.nodes if n.kind.is_computation)
    options = {key: _options(profile, *key) for key in computed}
    fixed_s = {
        (n.stage, n.kind): profile.fixed_s.get((n.stage, n.kind), 0.0)
        for n in dag.nodes
        if not n.kind.is_computation
    } | {send: profile.fixed_s.get(send, 0.0) for send in dag.buffered.values()}
    position = {node: index for index, node in enumerate(dag.nodes)}
    computed_at = [position[i] for order in schedule.orders for i in order if i.kind.is_computation]
    return PlanProblem(
        schedule,
        dag,
        _activities(dag, options, fixed_s, waiting_w),
        options,
        fixed_s,
        columns=np.array(computed_at, np.int32),
        ranks=tuple(columns_of(schedule)),
        waiting_w=waiting_w,
        variation=profile.variation(),
        load_variation=profile.size_variation,
    )


def _activities(
    dag: Dag,
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    waiting_w: float,
) -> Problem:
    """Number the graph and its tables as the solver does."""
    number = {key: index for index, key in enumerate([*options, *fixed_s])}
    before, after = np.array(dag.edges, dtype=np.int32).reshape(-1, 2).T
    return Problem(
        tables=_tables(options, fixed_s, waiting_w, 0.0),
        table_of=np.array([number[n.stage, n.kind] for n in dag.nodes], dtype=np.int32),
        before=np.ascontiguousarray(before),
        after=np.ascontiguousarray(after),
        delay_s=np.array(dag.delays_s(fixed_s)),
    )


def _options(profile: Profile, stage: int, kind: Kind) -> Options:
    points = profile.of(stage, kind)
    return Options(
        np.array([p.clock_mhz for p in points]),
        np.array([p.time_s for p in points]),
        np.array([p.energy_j for p in points]),
    )


def _tables(
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    waiting_w: float,
    reserve_pct: float,
) -> tuple[OptionTable, ...]:
    """Subtract what the GPU would use anyway, waiting: before anything is filtered.

    Source: arXiv 2312.06902, equation 4.
    """
    computed = [
        OptionTable(own.planned_s(reserve_pct), own.energy_j - waiting_w * own.time_s)
        for own in options.values()
    ]
    return (*computed, *(OptionTable(np.array([time_s]), np.array([0.0])) for time_s in fixed_s.values()))
