"""The only translator between schedule and profile on one side and the solver on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PlanError
from perseus_ds.plan.doubt import time_error_pct
from perseus_ds.plan.part_order import slow_first
from perseus_ds.plan.record import Baseline, Options, PlanSet
from perseus_ds.plan.splits import Splits
from perseus_ds.plan.switching import FREE, Switching
from perseus_ds.plan.waits import WaitClock, Waits, low_waits
from perseus_ds.profile import Computation, Profile
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of, validate
from perseus_ds.solver import (
    REACH,
    OptionTable,
    Plans,
    Problem,
    blended,
    check_frontier,
    check_plans,
    discretise,
    plan_times,
    solve_frontier,
    split,
    total_bounds,
    undominated,
    worth_keeping,
)


@dataclass(frozen=True, slots=True, eq=False)
class _Translation:
    """A schedule's graph with a table of options for every node."""

    dag: Dag
    problem: Problem
    options: Mapping[Computation, Options]
    fixed_s: Mapping[Computation, float]


def build(
    profile: Profile,
    schedule: Schedule,
    *,
    blocking_power_w: float,
    reserve_pct: float = 0.0,
    switching: Switching = FREE,
    verify: bool = False,
    fingerprint: Mapping[str, str] | None = None,
    progress: Callable[[float], None] | None = None,
) -> PlanSet:
    """Plan every kept point of the frontier of ``schedule`` with the measurements of ``profile``.

    ``reserve_pct`` plans every computation below its fastest clock as if it took that much longer, so that
    real durations, which vary, do not push a path that has just enough slack beyond the critical one.
    ``switching`` says what a change of clock costs: computations are split where both parts last long
    enough, or never. ``verify`` has the solver's own checkers run over frontier and plans.

    Raises:
        CertificateError: a check failed.
        IncompleteProfileError: a stage of the schedule was not measured.
        PlanError: the profile has stages that the schedule has not.
        SolverError: the problem cannot be solved as stated.
    """
    if profile.stages > schedule.stages:
        raise PlanError(
            f"the profile has stage {profile.stages - 1}, the schedule has stages 0 to {schedule.stages - 1}",
            hint=f"plan with {profile.stages} stages",
        )
    validate(schedule)
    wait_clock = _wait_clock(profile, blocking_power_w, switching)
    waiting_w = blocking_power_w if wait_clock is None else wait_clock.power_w
    translation = _translate(profile, schedule, waiting_w, reserve_pct)
    frontier = solve_frontier(translation.problem, progress=progress)
    blocking_total_w = waiting_w * schedule.ranks
    if switching.split == "never":
        times_s = plan_times(translation.problem, frontier, base_power_w=blocking_total_w)
        found = discretise(translation.problem, frontier, times_s)
        plans = worth_keeping(found, base_power_w=blocking_total_w)
    else:
        times_s = plan_times(translation.problem, frontier, base_power_w=blocking_total_w, step=REACH)
        plans = split(translation.problem, frontier, times_s, least_part_s=switching.least_part_s)
    if verify:
        check_frontier(translation.problem, frontier)
        check_plans(translation.problem, plans, frontier=frontier)
    if wait_clock is None:
        waits = Waits.none()
    else:
        plans, waits = _lowered(plans, translation, schedule, wait_clock)
    computed = [i for order in schedule.orders for i in order if i.kind.is_computation]
    clocks = [translation.options[i.stage, i.kind].clock_mhz for i in computed]
    timelines = _timelines(plans, translation.dag, schedule, clocks)
    return PlanSet(
        fingerprint=dict(fingerprint or {}),
        schedule=schedule,
        blocking_power_w=waiting_w,
        options=translation.options,
        fixed_s=translation.fixed_s,
        iteration_time_s=plans.time_s,
        effective_energy_j=plans.cost_j,
        effective_bound_j=plans.bound_j,
        lower_bound_j=total_bounds(frontier, plans.time_s, blocking_total_w),
        choice=timelines.choice,
        splits=timelines.splits,
        waits=waits,
        wait_clock=wait_clock,
        change=switching.change,
        baseline=_baseline(translation, schedule, blocking_power_w),
        t_min_s=frontier.t_min_s,
        t_star_s=frontier.t_star_s,
        solve_time_s=frontier.solve_time_s,
        reserve_pct=reserve_pct,
        time_error_pct=time_error_pct(profile),
    )


def _translate(
    profile: Profile, schedule: Schedule, blocking_power_w: float, reserve_pct: float
) -> _Translation:
    dag = dag_of(schedule)
    computed = dict.fromkeys((n.stage, n.kind) for n in dag.nodes if n.kind.is_computation)
    options = {key: _options(profile, *key) for key in computed}
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
    return _Translation(dag, problem, options, fixed)


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


def _timelines(plans: Plans, dag: Dag, schedule: Schedule, clocks: Sequence[NDArray[np.int64]]) -> _Timelines:
    """Reorder the solver's columns (nodes) into running order, computations only, and order their parts.

    Shape: ``clocks`` in MHz by option, one vector for each computation in running order.
    """
    position = {node: index for index, node in enumerate(dag.nodes)}
    computed = [[i for i in order if i.kind.is_computation] for order in schedule.orders]
    columns = [position[i] for order in computed for i in order]
    first, rest, share = plans.choice[:, columns], plans.other[:, columns], plans.share[:, columns]
    ends = np.cumsum([len(order) for order in computed]).tolist()
    ranks = [range(end - len(order), end) for end, order in zip(ends, computed, strict=True)]
    fast_mhz = np.column_stack([clock[first[:, c]] for c, clock in enumerate(clocks)])
    slow_mhz = np.column_stack([clock[rest[:, c]] for c, clock in enumerate(clocks)])
    turned = slow_first(ranks, fast_mhz, slow_mhz) & (share < 1.0)
    choice, after = _narrow(np.where(turned, rest, first)), _narrow(np.where(turned, first, rest))
    return _Timelines(choice, Splits.of(choice, after, np.where(turned, 1.0 - share, share)))


def _narrow(options: NDArray[np.int32]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    if options.max(initial=0) <= np.iinfo(np.uint8).max:
        return options.astype(np.uint8)
    return options.astype(np.uint16)


class _Timelines(NamedTuple):
    choice: NDArray[np.uint8] | NDArray[np.uint16]
    splits: Splits


def _baseline(translation: _Translation, schedule: Schedule, blocking_power_w: float) -> Baseline:
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
    waiting_j = blocking_power_w * (schedule.ranks * iteration_time_s - working_s)
    energy_j = sum(energy_j for _, energy_j in spent) + waiting_j
    return Baseline(iteration_time_s, energy_j, blocking_power_w)


def _wait_clock(profile: Profile, blocking_power_w: float, switching: Switching) -> WaitClock | None:
    """The clock at which waiting takes least, the highest of several; None where none takes less."""
    if switching.waits == "never" or not profile.blocking_w:
        return None
    power_w, lower_mhz = min((power_w, -clock_mhz) for clock_mhz, power_w in profile.blocking_w.items())
    if power_w >= blocking_power_w:
        return None
    return WaitClock(-lower_mhz, power_w, blocking_power_w, switching.change)


def _lowered(
    plans: Plans, translation: _Translation, schedule: Schedule, clock: WaitClock
) -> tuple[Plans, Waits]:
    """Lower the clock in every wait that is long enough; add what all other waits take beyond that.

    The problem was solved as if every wait took the least: what is added is what the bound does not see.
    """
    dag, problem = translation.dag, translation.problem
    duration_s, _ = blended(problem, plans.choice, plans.other, plans.share)
    start_s = dag.starts_of_many(duration_s.T, translation.fixed_s)
    position = {node: index for index, node in enumerate(dag.nodes)}
    columns = [position[i] for order in schedule.orders for i in order if i.kind.is_computation]
    waits = low_waits(
        schedule, start_s[columns], start_s[columns] + duration_s.T[columns], plans.time_s, clock
    )
    busy_s = np.zeros(len(plans))
    for node in dag.nodes:
        if node.kind.is_computation:
            index, time_s = position[node], translation.options[node.stage, node.kind].time_s
            share = plans.share[:, index]
            busy_s += share * time_s[plans.choice[:, index]] + (1.0 - share) * time_s[plans.other[:, index]]
    high_s = schedule.ranks * plans.time_s - busy_s - waits.total_s(len(plans))
    cost_j = plans.cost_j + (clock.high_power_w - clock.power_w) * high_s
    kept = undominated(plans.time_s, cost_j)
    return replace(plans, cost_j=cost_j).at(kept), waits.of(kept)
