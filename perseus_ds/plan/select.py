"""Which point of the frontier: the user's objective, or the slack that a straggler leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan.record import FrequencyPlan, PlanSet


def select(plans: PlanSet, objective: Objective) -> FrequencyPlan:
    """Choose by total energy, each plan over its own iteration time: what a job without stragglers pays.

    Raises:
        InfeasibleError: no plan meets the deadline or the cap; the message states the nearest one.
    """
    match objective.policy:
        case "no_slowdown":
            return _least_energy(plans, plans.iteration_time_s <= unslowed_s(plans))
        case "max_slowdown":
            assert objective.max_slowdown_pct is not None
            limit_s = unslowed_s(plans) * (1.0 + objective.max_slowdown_pct / 100.0)
            return _least_energy(plans, plans.iteration_time_s <= limit_s)
        case "min_energy":
            return _least_energy(plans, np.ones(len(plans), dtype=np.bool_))
        case "deadline":
            assert objective.deadline_s is not None
            return _within_deadline(plans, objective.deadline_s)
        case "power_cap":
            assert objective.power_cap_w is not None
            return _under_cap(plans, objective.power_cap_w)


def latest_s(plans: PlanSet, objective: Objective) -> float | None:
    """The latest time that an objective names; None where it names none."""
    if objective.max_slowdown_pct is not None:
        return unslowed_s(plans) * (1.0 + objective.max_slowdown_pct / 100.0)
    return objective.deadline_s


def select_for(plans: PlanSet, straggler_time_s: float) -> FrequencyPlan:
    """Choose beside a straggler: least effective energy among plans that are no slower than it.

    Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
    """
    limit_s = max(straggler_time_s, unslowed_s(plans))
    fits = np.flatnonzero(plans.iteration_time_s <= limit_s)
    return plans.plan(int(fits[np.argmin(plans.effective_energy_j[fits])]))


def unslowed_s(plans: PlanSet) -> float:
    """What an iteration may last without being slowed down: as long as at all-maximum clocks.

    Where no plan is that fast it is the fastest plan's time. That cannot be but for the reserve and the
    rounding of sums: one plan has all maximum clocks. A plan that claims to be faster still is not sought.
    The highest clock is now and then not the fastest, and then speed would be bought with energy.
    """
    return max(float(plans.iteration_time_s[0]), plans.baseline.iteration_time_s * (1.0 + _ROUNDING))


_ROUNDING = 1e-9  # of sums of up to a million doubles


def _least_energy(plans: PlanSet, allowed: NDArray[np.bool_]) -> FrequencyPlan:
    fits = np.flatnonzero(allowed)
    return plans.plan(int(fits[np.argmin(plans.energy_j[fits])]))


def _within_deadline(plans: PlanSet, deadline_s: float) -> FrequencyPlan:
    allowed = plans.iteration_time_s <= deadline_s
    if not allowed.any():
        raise InfeasibleError(
            f"no plan meets a deadline of {deadline_s:.6g} s: T_min is {plans.iteration_time_s[0]:.6g} s",
            hint="ask for T_min or later",
        )
    return _least_energy(plans, allowed)


def _under_cap(plans: PlanSet, power_cap_w: float) -> FrequencyPlan:
    power_w = plans.energy_j / plans.iteration_time_s
    fits = np.flatnonzero(power_w <= power_cap_w)
    if not len(fits):
        raise InfeasibleError(
            f"no plan stays under {power_cap_w:.6g} W for one pipeline: the least is {power_w.min():.6g} W",
            hint="raise the cap",
        )
    return plans.plan(int(fits[0]))
