"""Check a frontier from scratch: baseline, every plan's longest path and energy, bounds below both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError
from perseus_ds.plan.record import AS_LONG, DATES, Options, PlanSet, baseline_of
from perseus_ds.plan.waits import columns_of, idles
from perseus_ds.schedule import Dag, dag_of
from perseus_ds.solver.problem import Floats

_RELATIVE = 1e-9  # sums of up to a million doubles


def verify(plans: PlanSet) -> int:
    """Return how many plans were checked.

    Raises:
        SolverError: the first plan that is not what it states.
    Cost: one pass over the schedule's graph for all plans together.
    """
    check_figures(plans)
    check_budget(plans)
    effective_j, bound_j = plans.effective_energy_j, plans.lower_bound_j
    _not_above("certified bound", "total energy", "J", bound_j, plans.energy_j)
    _not_above("bound on effective energy", "effective energy", "J", plans.effective_bound_j, effective_j)
    _not_above("certified bound", "bound of the plan before", "J", bound_j[1:], bound_j[:-1])
    return len(plans)


def check_figures(plans: PlanSet) -> None:
    """Check what takes no longer than reading the file: all but the bounds.

    Raises:
        SolverError: what would change a clock, a time or a saving.
    Cost: a pass over the computations and one over the graph, each for all plans together.
    """
    _check_options(plans)
    clock, said = plans.wait_clock, plans.baseline
    high_w, low_w = (plans.blocking_power_w,) * 2 if clock is None else (clock.high_power_w, clock.power_w)
    highest_mhz = max(int(options.clock_mhz[0]) for options in plans.options.values())
    if clock is not None and clock.clock_mhz >= highest_mhz:
        raise SolverError(f"waits go down to {clock.clock_mhz} MHz, which is not down")
    if (high_w, low_w) != (said.blocking_power_w, plans.blocking_power_w):
        raise SolverError("plans and baseline do not agree on what waiting takes")
    found = baseline_of(plans.schedule, plans.options, plans.fixed_s, said.blocking_power_w)
    _same("the baseline's time", "s", said.iteration_time_s, found.iteration_time_s)
    _same("the baseline's energy", "J", said.energy_j, found.energy_j)
    dag, times_s = dag_of(plans.schedule), plans.iteration_time_s
    start_s, end_s = dag.spans(plans.lasts_s(lambda own: own.planned_s(plans.reserve_pct)), plans.fixed_s)
    _all_same("time", "s", times_s, end_s.max(axis=0))
    effective_j = _sum_options(plans, lambda own: own.cost_j(plans.blocking_power_w))
    _all_same("effective energy", "J", plans.effective_energy_j, effective_j + _high_waits_j(plans))
    _check_low_waits(plans, dag, start_s, end_s)
    _not_above("time of the plan before", "iteration time", "s", times_s[:-1], times_s[1:])
    every_s = dict(plans.fixed_s) | {key: float(own.time_s.min()) for key, own in plans.options.items()}
    fastest_s = np.array([[every_s[node.stage, node.kind]] for node in dag.nodes])
    _same("T_min", "s", plans.t_min_s, float(dag.longest(fastest_s, plans.fixed_s)[0]))
    if not plans.t_min_s <= times_s[0] * (1.0 + _RELATIVE):
        raise SolverError("the fastest plan is faster than T_min")
    if not times_s[-1] <= plans.t_star_s * (1.0 + _RELATIVE):
        raise SolverError("the slowest plan is slower than T*")


def _check_options(plans: PlanSet) -> None:
    """Clocks descend, timelines last as stated, and a waiting GPU spares one number at each clock."""
    said: dict[int, float] = {}
    for stage, kind in {(i.stage, i.kind) for i in plans.computations()}:
        options, name = plans.options[stage, kind], f"{stage}{kind.value}"
        if (np.diff(options.clock_mhz) >= 0).any():
            raise SolverError(f"{name}: clocks do not descend from the highest")
        for number, line in enumerate(options.timelines, len(options.clock_mhz)):
            lasts_s, time_s = sum(segment.duration_s for segment in line), float(options.time_s[number])
            _same(f"{name}: the time of option {number}", "s", time_s, lasts_s, within=AS_LONG)
        for memory_mhz, watts in options.spared_w.items():
            if watts > plans.baseline.blocking_power_w or said.setdefault(memory_mhz, watts) != watts:
                raise SolverError(
                    f"{name}: a GPU that waits at a memory clock of {memory_mhz} MHz spares {watts:.6g} W;"
                    f" waiting takes {plans.baseline.blocking_power_w:.6g} W, or another computation states"
                    f" {said.get(memory_mhz, watts):.6g} W"
                )


def check_budget(plans: PlanSet) -> None:
    """Count every GPU's changes of clock in every plan, low waits included.

    Raises:
        SolverError: a plan that changes more often than its budget allows.
    """
    ranks = plans.schedule.ranks
    for index in range(len(plans) if plans.budget.limits else 0):
        changes, time_s = _changes(plans, index), float(plans.iteration_time_s[index])
        limits = plans.budget.within(ranks, time_s)
        if not (limits._replace(lane=DATES) if plans.budget.dated else limits).allows(changes):
            raise SolverError(
                f"plan {index} changes the clock of a GPU {changes.max()} times in {time_s:.6g} s,"
                " more often than its budget allows"
            )


def _changes(plans: PlanSet, index: int) -> NDArray[np.int64]:
    """Count how often each rank's clock differs from the one before it, in iteration after iteration.

    Shape: [ranks].
    """
    portions, low, changes = plans.plan(index).portions(), plans.waits.of_plan(index), []
    for rank in range(plans.schedule.ranks):
        clocks = list[int]()  # a low wait is 0
        for column, i in plans.computations_of(rank):
            clock_mhz = plans.options[i.stage, i.kind].clock_mhz
            clocks += [int(clock_mhz[portion.option]) for portion in portions[i]]
            clocks += [0] * (column in low)
        if len(portions) + rank in low:
            clocks += [clocks[0], 0]
        changes.append(sum(a != b for a, b in zip(clocks, [*clocks[1:], *clocks[:1]], strict=True)))
    return np.array(changes)


def _sum_options(plans: PlanSet, of: Callable[[Options], Floats]) -> Floats:
    """Sum a column of their options over all computations, as every plan runs them.

    Shape: [plans].
    """
    total = np.zeros(len(plans))
    for column, i in enumerate(plans.computations()):
        total += plans.blend(column, of(plans.options[i.stage, i.kind]))
    return total


def _high_waits_j(plans: PlanSet) -> Floats:
    """Return the energy of high waits beyond the power of the low clock."""
    clock = plans.wait_clock
    if clock is None:
        return np.zeros(len(plans))
    busy_s = _sum_options(plans, lambda options: options.time_s) + plans.waits.total_s(len(plans))
    high_s = plans.schedule.ranks * plans.iteration_time_s - busy_s
    return np.asarray((clock.high_power_w - clock.power_w) * high_s)


def _check_low_waits(plans: PlanSet, dag: Dag, start_s: Floats, end_s: Floats) -> None:
    """Refuse a wait that is too short to be low, low for another time, or no wait at all."""
    clock, place = plans.wait_clock, {node: index for index, node in enumerate(dag.nodes)}
    columns, ranks = [place[i] for i in plans.computations()], columns_of(plans.schedule)
    said_s, possible_s = np.zeros((2, len(columns) + len(ranks), len(plans)))
    said_s[plans.waits.column, plans.waits.plan] = plans.waits.low_s
    rounding_s = _RELATIVE * plans.iteration_time_s
    for idle in idles(plans.schedule, plans.fixed_s):
        if clock is None:
            break
        own = [columns[column] for column in ranks[idle.rank]]
        begin_s, until_s = idle.span_s(start_s[own], end_s[own], plans.iteration_time_s)
        possible_s[idle.column] = clock.low_s(until_s - begin_s + rounding_s)
    for column, plan in np.argwhere((said_s != 0.0) & ~(np.abs(said_s - possible_s) <= 2.0 * rounding_s)):
        raise SolverError(
            f"plan {plan} is at a low clock for {said_s[column, plan]:.9g} s in wait {column};"
            f" it could be for {possible_s[column, plan]:.9g} s"
        )


def _same(what: str, unit: str, said: float, found: float, *, within: float = _RELATIVE) -> None:
    if not abs(said - found) <= within * abs(found):
        raise SolverError(f"{what} is stated as {said:.9g} {unit}; recomputed it is {found:.9g} {unit}")


def _all_same(what: str, unit: str, said: Floats, found: Floats) -> None:
    for plan, (own, recomputed) in enumerate(zip(said.tolist(), found.tolist(), strict=True)):
        _same(f"plan {plan}'s {what}", unit, own, recomputed)


def _not_above(lower: str, upper: str, unit: str, low: Floats, high: Floats) -> None:
    for plan in np.flatnonzero(~(low <= high + _RELATIVE * np.abs(high))):
        raise SolverError(
            f"plan {plan}: {lower} {low[plan]:.9g} {unit} is above its {upper} {high[plan]:.9g} {unit}"
        )
