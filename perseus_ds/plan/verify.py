"""Check a frontier from scratch: baseline, every plan's longest path and energy, bounds below both."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import CertificateError
from perseus_ds.plan.record import PlanSet
from perseus_ds.profile import Computation
from perseus_ds.schedule import Dag, Instruction, dag_of

_RELATIVE = 1e-9  # sums of up to a million doubles


def verify(plans: PlanSet) -> int:
    """Return how many plans were checked.

    Raises:
        CertificateError: the first plan that is not what it says.
    Cost: one pass over the schedule's graph for all plans together.
    """
    check_baseline(plans)
    dag = dag_of(plans.schedule)
    time_s, effective_j = _played(plans, dag)
    _same("iteration time", "s", plans.iteration_time_s, _longest_path_s(dag, time_s, plans.fixed_s))
    _same("effective energy", "J", plans.effective_energy_j, effective_j)
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
    times_s = plans.iteration_time_s
    _not_above("time of the plan before", "iteration time", "s", times_s[:-1], times_s[1:])
    return len(plans)


def check_baseline(plans: PlanSet) -> None:
    """Recompute what every saving is measured by: the same schedule, all at the highest clock.

    Every stage by itself: what it spends working, and blocking power for what is left of the iteration.

    Raises:
        CertificateError: the baseline is not what it says.
    Cost: one pass over the schedule's graph.
    """
    dag = dag_of(plans.schedule)
    time_s = [_at_highest(plans, node)[0] for node in dag.nodes]
    iteration_time_s = float(_longest_path_s(dag, np.array(time_s)[:, None], plans.fixed_s)[0])
    energy_j = 0.0
    for order in plans.schedule.orders:
        spent = [_at_highest(plans, i) for i in order if i.kind.is_computation]
        waiting_s = iteration_time_s - sum(own_s for own_s, _ in spent)
        energy_j += sum(own_j for _, own_j in spent) + plans.blocking_power_w * waiting_s
    said = plans.baseline
    for what, unit, value, found in (
        ("an iteration time", "s", said.iteration_time_s, iteration_time_s),
        ("an energy", "J", said.energy_j, energy_j),
    ):
        if not abs(value - found) <= _RELATIVE * abs(found):
            raise CertificateError(
                f"the baseline says {what} of {value:.9g} {unit}; recomputed it is {found:.9g} {unit}"
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
        options, choice = plans.options[node.stage, node.kind], plans.choice[:, column[node]]
        time_s[index] = options.planned_s(plans.reserve_pct)[choice]
        effective_j += options.energy_j[choice] - plans.blocking_power_w * options.time_s[choice]
    return time_s, effective_j


def _longest_path_s(
    dag: Dag, time_s: NDArray[np.float64], fixed_s: Mapping[Computation, float]
) -> NDArray[np.float64]:
    after = dag.followers(fixed_s)
    start_s = np.zeros_like(time_s)
    for node in dag.topological():
        end_s = start_s[node] + time_s[node]
        for follower, delay_s in after[node]:
            np.maximum(start_s[follower], end_s + delay_s, out=start_s[follower])
    longest: NDArray[np.float64] = (start_s + time_s).max(axis=0)
    return longest


def _same(what: str, unit: str, said: NDArray[np.float64], found: NDArray[np.float64]) -> None:
    for plan in np.flatnonzero(np.abs(said - found) > _RELATIVE * np.abs(found)):
        raise CertificateError(
            f"plan {plan} says {what} {said[plan]:.9g} {unit}; played again it is {found[plan]:.9g} {unit}"
        )


def _not_above(
    lower: str, upper: str, unit: str, low: NDArray[np.float64], high: NDArray[np.float64]
) -> None:
    for plan in np.flatnonzero(low > high * (1.0 + _RELATIVE)):
        raise CertificateError(
            f"plan {plan}: {lower} {low[plan]:.9g} {unit} is above its {upper} {high[plan]:.9g} {unit}"
        )
