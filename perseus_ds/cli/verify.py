"""Check a frontier from scratch: every plan's longest path, its energy, and that its bound lies below."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import CertificateError
from perseus_ds.plan import PlanSet
from perseus_ds.profile import Computation
from perseus_ds.schedule import Dag, dag_of

_RELATIVE = 1e-9  # sums of up to a million doubles


def verify(plans: PlanSet) -> int:
    """Return how many plans were checked.

    Raises:
        CertificateError: the first plan that is not what it says.
    Cost: one pass over the schedule's graph for all plans together.
    """
    dag = dag_of(plans.schedule)
    time_s, effective_j = _played(plans, dag)
    _same("iteration time", "s", plans.iteration_time_s, _longest_path_s(dag, time_s, plans.fixed_s))
    _same("effective energy", "J", plans.effective_energy_j, effective_j)
    _not_above("certified bound", "total energy", "J", plans.lower_bound_j, plans.energy_j)
    times_s = plans.iteration_time_s
    _not_above("time of the plan before", "iteration time", "s", times_s[:-1], times_s[1:])
    return len(plans)


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
