"""Check a frontier from scratch: baseline, every plan's longest path and energy, bounds below both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError
from perseus_ds.plan.record import AS_LONG, PlanSet
from perseus_ds.plan.waits import BEGINNING, GUARD_S, GUARD_SHARE, LEAST_WAIT_S, Idle, columns_of, idles
from perseus_ds.schedule import Dag, Instruction, dag_of

_RELATIVE = 1e-9  # sums of up to a million doubles
_TICKS = 1e-6  # the solver counts durations in whole ticks


def verify(plans: PlanSet) -> int:
    """Return how many plans were checked.

    Raises:
        SolverError: the first plan that is not what it states.
    Cost: one pass over the schedule's graph for all plans together.
    """
    check_figures(plans)
    check_budget(plans)
    _not_above("certified bound", "total energy", "J", plans.lower_bound_j, plans.energy_j)
    _not_above(
        "bound on effective energy",
        "effective energy",
        "J",
        plans.effective_bound_j,
        plans.effective_energy_j,
    )
    _not_above(
        "certified bound", "bound of the plan before", "J", plans.lower_bound_j[1:], plans.lower_bound_j[:-1]
    )
    return len(plans)


def check_figures(plans: PlanSet) -> None:
    """Check what takes no longer than reading the file: all but the bounds.

    Raises:
        SolverError: what would change a clock, a time or a saving.
    Cost: a pass over the computations and one over the graph, each for all plans together.
    """
    _check_options(plans)
    _check_spared(plans)
    high_w = plans.blocking_power_w if plans.wait_clock is None else plans.wait_clock.high_power_w
    low_w = plans.blocking_power_w if plans.wait_clock is None else plans.wait_clock.power_w
    highest_mhz = max(int(options.clock_mhz[0]) for options in plans.options.values())
    if plans.wait_clock is not None and plans.wait_clock.clock_mhz >= highest_mhz:
        raise SolverError(f"waits go down to {plans.wait_clock.clock_mhz} MHz, which is not down")
    if (high_w, low_w) != (plans.baseline.blocking_power_w, plans.blocking_power_w):
        raise SolverError("plans and baseline do not agree on what waiting takes")
    check_baseline(plans)
    dag = dag_of(plans.schedule)
    time_s, effective_j = _played(plans, dag)
    start_s = dag.starts_of_many(time_s, plans.fixed_s)
    _same("iteration time", "s", plans.iteration_time_s, (start_s + time_s).max(axis=0))
    _same("effective energy", "J", plans.effective_energy_j, effective_j + _high_waits_j(plans))
    _check_low_waits(plans, dag, start_s, time_s)
    times_s = plans.iteration_time_s
    _not_above("time of the plan before", "iteration time", "s", times_s[:-1], times_s[1:])
    fastest = np.array([_shortest_s(plans, node) for node in dag.nodes])[:, None]
    t_min_s = float((dag.starts_of_many(fastest, plans.fixed_s) + fastest).max())
    if not abs(plans.t_min_s - t_min_s) <= _RELATIVE * t_min_s:
        raise SolverError(f"T_min is {t_min_s:.9g} s, stated as {plans.t_min_s:.9g} s")
    if not plans.t_min_s <= plans.iteration_time_s[0] * (1.0 + _RELATIVE):
        raise SolverError("the fastest plan is faster than T_min")
    if not plans.iteration_time_s[-1] <= plans.t_star_s * (1.0 + _RELATIVE):
        raise SolverError("the slowest plan is slower than T*")


def _check_options(plans: PlanSet) -> None:
    """Clocks descend, every computation has options, and times and energies are numbers above 0."""
    for stage, kind in {(i.stage, i.kind) for i in plans.computations()}:
        options = plans.options[stage, kind]
        if (np.diff(options.clock_mhz) >= 0).any() or (options.clock_mhz <= 0).any():
            raise SolverError(f"{stage}{kind.value}: clocks do not descend from the highest")
        for number, line in enumerate(options.timelines, len(options.clock_mhz)):
            lasts_s = sum(segment.duration_s for segment in line)
            if not abs(lasts_s - options.time_s[number]) <= AS_LONG * options.time_s[number]:
                raise SolverError(
                    f"{stage}{kind.value}: the clocks of option {number} last {lasts_s:.9g} s,"
                    f" stated as {options.time_s[number]:.9g} s"
                )
        for values in (options.time_s, options.energy_j):
            if not (np.isfinite(values) & (values > 0.0)).all():
                raise SolverError(f"{stage}{kind.value}: a time or an energy is not above 0")


def _check_spared(plans: PlanSet) -> None:
    """See that a waiting GPU spares one number at each memory clock, and no more than waiting takes."""
    said: dict[int, float] = {}
    for (stage, kind), options in plans.options.items():
        for memory_mhz, watts in options.spared_w.items():
            if watts > plans.baseline.blocking_power_w or said.setdefault(memory_mhz, watts) != watts:
                raise SolverError(
                    f"{stage}{kind.value}: a GPU that waits at a memory clock of {memory_mhz} MHz spares"
                    f" {watts:.6g} W; waiting takes {plans.baseline.blocking_power_w:.6g} W,"
                    f" or another computation states {said.get(memory_mhz, watts):.6g} W"
                )


def _shortest_s(plans: PlanSet, node: Instruction) -> float:
    key = node.stage, node.kind
    return float(plans.options[key].time_s.min()) if node.kind.is_computation else plans.fixed_s[key]


def check_budget(plans: PlanSet) -> None:
    """Count every GPU's changes of clock in every plan, low waits included.

    Raises:
        SolverError: a plan that changes more often than its budget allows.
    """
    if not plans.budget.limits:
        return
    idle_times = idles(plans.schedule, plans.fixed_s)
    for index in range(len(plans)):
        changes = np.array([[_changes(clocks)] for clocks in _clocks_by_rank(plans, index, idle_times)])
        time_s = plans.iteration_time_s[index : index + 1]
        if (plans.budget.left(changes, time_s) < 0).any():
            raise SolverError(
                f"plan {index} changes the clock of a GPU {changes.max()} times in {time_s[0]:.6g} s,"
                " more often than its budget allows"
            )


def _clocks_by_rank(plans: PlanSet, index: int, idle_times: Sequence[Idle]) -> list[list[int]]:
    """Return the clocks of each rank in the order of one iteration; a low wait is 0."""
    columns, portions, low = plans.computations(), plans.plan(index).portions(), plans.waits.of_plan(index)
    clocks: list[list[int]] = [[] for _ in range(plans.schedule.ranks)]
    for rank, own in enumerate(columns_of(plans.schedule)):
        for column in own:
            i = columns[column]
            clock_mhz = plans.options[i.stage, i.kind].clock_mhz
            clocks[rank] += [int(clock_mhz[portion.option]) for portion in portions[i]]
            clocks[rank] += [0] * (column in low)
    for idle in idle_times:
        if idle.position == BEGINNING and idle.column in low:
            clocks[idle.rank] += [clocks[idle.rank][0], 0]
    return clocks


def _changes(clocks: Sequence[int]) -> int:
    """Return how often a clock differs from the one before it, in iteration after iteration."""
    return sum(a != b for a, b in zip(clocks, [*clocks[1:], *clocks[:1]], strict=True))


def check_baseline(plans: PlanSet) -> None:
    """Recompute what every saving is measured by: the same schedule, all at the highest clock.

    Every stage by itself: what it spends working, and blocking power for what is left of the iteration.

    Raises:
        SolverError: the baseline is not what it states.
    Cost: one pass over the schedule's graph.
    """
    dag = dag_of(plans.schedule)
    time_s = [_at_highest(plans, node)[0] for node in dag.nodes]
    column_s = np.array(time_s)[:, None]
    iteration_time_s = float((dag.starts_of_many(column_s, plans.fixed_s) + column_s).max())
    energy_j = 0.0
    for order in plans.schedule.orders:
        spent = [_at_highest(plans, i) for i in order if i.kind.is_computation]
        waiting_s = iteration_time_s - sum(own_s for own_s, _ in spent)
        energy_j += sum(own_j for _, own_j in spent) + plans.baseline.blocking_power_w * waiting_s
    said = plans.baseline
    for what, unit, value, found in (
        ("an iteration time", "s", said.iteration_time_s, iteration_time_s),
        ("an energy", "J", said.energy_j, energy_j),
    ):
        if not abs(value - found) <= _RELATIVE * abs(found):
            raise SolverError(
                f"the baseline states {what} of {value:.9g} {unit}; recomputed it is {found:.9g} {unit}"
            )


def _at_highest(plans: PlanSet, node: Instruction) -> tuple[float, float]:
    key = (node.stage, node.kind)
    if not node.kind.is_computation:
        return plans.fixed_s[key], 0.0
    highest = int(np.argmax(plans.options[key].clock_mhz))
    return float(plans.options[key].time_s[highest]), float(plans.options[key].energy_j[highest])


def _played(plans: PlanSet, dag: Dag) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Duration of every node in every plan, and the sum of e - P_b t over the computations.

    Shape: [nodes, plans] and [plans].
    """
    column = {instruction: index for index, instruction in enumerate(plans.computations())}
    time_s = np.empty((len(dag.nodes), len(plans)))
    effective_j = np.zeros(len(plans))
    for index, node in enumerate(dag.nodes):
        if node not in column:
            time_s[index] = plans.fixed_s[node.stage, node.kind]
            continue
        options = plans.options[node.stage, node.kind]
        time_s[index] = plans.blended(column[node], options.planned_s(plans.reserve_pct))
        cost_j = options.energy_j - plans.blocking_power_w * options.time_s
        effective_j += plans.blended(column[node], cost_j)
    return time_s, effective_j


def _high_waits_j(plans: PlanSet) -> NDArray[np.float64]:
    """Return the energy of high waits beyond the power of the low clock."""
    clock = plans.wait_clock
    if clock is None:
        return np.zeros(len(plans))
    busy_s = np.zeros(len(plans))
    for column, i in enumerate(plans.computations()):
        busy_s += plans.blended(column, plans.options[i.stage, i.kind].time_s)
    low_s = np.bincount(plans.waits.plan, weights=plans.waits.low_s, minlength=len(plans))
    high_s = plans.schedule.ranks * plans.iteration_time_s - busy_s - low_s
    return np.asarray((clock.high_power_w - clock.power_w) * high_s)


def _check_low_waits(
    plans: PlanSet, dag: Dag, start_s: NDArray[np.float64], time_s: NDArray[np.float64]
) -> None:
    """Refuse a wait that is too short to be low, low for another time, or no wait at all."""
    clock, place = plans.wait_clock, {node: index for index, node in enumerate(dag.nodes)}
    if clock is None:
        if len(plans.waits):
            raise SolverError("waits are low, and there is no clock for it")
        return
    columns, ranks = [place[i] for i in plans.computations()], columns_of(plans.schedule)
    said_s, possible_s = np.zeros((2, len(columns) + len(ranks), len(plans)))
    said_s[plans.waits.column, plans.waits.plan] = plans.waits.low_s
    for idle in idles(plans.schedule, plans.fixed_s):
        own = [columns[column] for column in ranks[idle.rank]]
        begin_s, until_s = idle.span_s(start_s[own], start_s[own] + time_s[own], plans.iteration_time_s)
        wait_s = until_s - begin_s
        low_s = wait_s * (1.0 - GUARD_SHARE) - GUARD_S - clock.change.call_s - clock.change.settle_down_s
        rounding_s = _RELATIVE * plans.iteration_time_s
        up_s = clock.change.call_s + clock.change.settle_up_s
        longer = (low_s > up_s - rounding_s) & (wait_s >= LEAST_WAIT_S - rounding_s)
        possible_s[idle.column] = np.where(longer, low_s, 0.0)
    wrong = ~(np.abs(said_s - possible_s) <= _RELATIVE * plans.iteration_time_s) & (said_s != 0.0)
    for column, plan in np.argwhere(wrong):
        raise SolverError(
            f"plan {plan} is at a low clock for {said_s[column, plan]:.9g} s in wait {column};"
            f" it could be for {possible_s[column, plan]:.9g} s"
        )


def _same(what: str, unit: str, said: NDArray[np.float64], found: NDArray[np.float64]) -> None:
    for plan in np.flatnonzero(~(np.abs(said - found) <= _RELATIVE * np.abs(found))):
        raise SolverError(
            f"plan {plan} states {what} {said[plan]:.9g} {unit}; recomputed it is {found[plan]:.9g} {unit}"
        )


def _not_above(
    lower: str, upper: str, unit: str, low: NDArray[np.float64], high: NDArray[np.float64]
) -> None:
    for plan in np.flatnonzero(~(low <= high + _RELATIVE * np.abs(high))):
        raise SolverError(
            f"plan {plan}: {lower} {low[plan]:.9g} {unit} is above its {upper} {high[plan]:.9g} {unit}"
        )
