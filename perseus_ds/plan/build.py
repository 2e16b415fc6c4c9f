"""From a profile and a schedule to a frontier of plans: the only way between them and the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from perseus_ds.errors import PlanError
from perseus_ds.kernels import InstructionTimelines
from perseus_ds.plan.checking.doubt import time_error_pct
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.lowering import cheapest, lowered, wait_clock_of
from perseus_ds.plan.solving.reserve import Draws, Reserve, least_reserve_pct
from perseus_ds.plan.solving.scatter import iteration_scatter_pct
from perseus_ds.plan.solving.solve import Solved, in_order, solve, with_timelines
from perseus_ds.plan.solving.switching import FREE, Switching
from perseus_ds.plan.solving.translation import Translation, baseline_of, translate
from perseus_ds.plan.waits import Waits
from perseus_ds.profile import Profile
from perseus_ds.schedule import Schedule, validate
from perseus_ds.solver import Frontier, Plans, check_frontier, check_plans, total_bounds

ONE_WAIT = 2
"""Changes that one low wait takes: within a budget it is also tried to leave as many to waits."""


def build(
    profile: Profile,
    schedule: Schedule,
    *,
    blocking_power_w: float,
    reserve_pct: Reserve = 0.0,
    switching: Switching = FREE,
    timelines: Sequence[InstructionTimelines] = (),
    verify: bool = False,
    fingerprint: Mapping[str, str] | None = None,
    progress: Callable[[float], None] | None = None,
) -> PlanSet:
    """Plan every kept point of the frontier of ``schedule`` with the measurements of ``profile``.

    ``reserve_pct`` plans every computation below its fastest clock as if it took that much longer, so that
    real durations, which vary, do not push a path that has just enough slack beyond the critical one; with
    ``auto`` as much as keeps iterations from lasting longer as durations varied in the profile.
    ``switching`` says what a change of clock costs: computations are split where both parts last long
    enough, or never, and no clock changes more often than its budget
    allows. ``timelines`` are further ways to run an instruction, that are not split: who has them
    never needs more than without. ``verify`` has the solver's own checkers run over frontier and plans.

    Raises:
        CertificateError: a check failed.
        IncompleteProfileError: a stage of the schedule was not measured.
        PlanError: the profile has stages that the schedule has not, or a change of clock takes longer than
            an iteration.
        SolverError: the problem cannot be solved as stated.
    """
    _check(profile, schedule, switching, timelines)
    wait_clock = wait_clock_of(profile, blocking_power_w, switching)
    waiting_w = blocking_power_w if wait_clock is None else wait_clock.power_w
    if reserve_pct == "auto":
        reserve_pct = least_reserve_pct(profile, schedule, waiting_w, switching)
    translation = translate(profile, schedule, waiting_w, reserve_pct, timelines)
    total_w = waiting_w * schedule.ranks
    baseline = baseline_of(translation, blocking_power_w)
    unslowed_s = baseline.iteration_time_s
    solved = solve(translation, switching, base_power_w=total_w, also_s=unslowed_s, progress=progress)
    if timelines:
        clocks_only = solve(
            translate(profile, schedule, waiting_w, reserve_pct),
            switching,
            base_power_w=total_w,
            also_s=unslowed_s,
        )
        solved = with_timelines(translation, solved.frontier, clocks_only.plans, unslowed_s, total_w)
    frontier = solved.frontier
    sets = (
        [solved]
        if wait_clock is None
        else [solved, *_leaner(translation, frontier, switching, total_w, unslowed_s)]
    )
    if verify:
        check_frontier(translation.problem, frontier)
        for one in sets:
            check_plans(translation.problem, one.plans, frontier=frontier)
    waits = Waits.none()
    if wait_clock is not None:
        solved, waits = cheapest([lowered(one, translation, wait_clock, switching.budget) for one in sets])
    ordered = in_order(solved, translation)
    return PlanSet(
        fingerprint=dict(fingerprint or {}),
        schedule=schedule,
        blocking_power_w=waiting_w,
        options=translation.options,
        fixed_s=translation.fixed_s,
        iteration_time_s=solved.plans.time_s,
        effective_energy_j=solved.plans.cost_j,
        effective_bound_j=solved.plans.bound_j,
        lower_bound_j=total_bounds(frontier, solved.plans.time_s, total_w),
        choice=ordered.choice,
        splits=ordered.splits,
        waits=waits,
        wait_clock=wait_clock,
        change=switching.change,
        budget=switching.budget,
        baseline=baseline,
        t_min_s=frontier.t_min_s,
        t_star_s=frontier.t_star_s,
        solve_time_s=frontier.solve_time_s,
        reserve_pct=reserve_pct,
        variation_slowdown_pct=_slowdown_pct(
            profile, translate(profile, schedule, waiting_w, 0.0, timelines), solved.plans
        ),
        time_error_pct=time_error_pct(profile),
        scatter_pct=iteration_scatter_pct(profile, translation),
    )


def _slowdown_pct(profile: Profile, translation: Translation, plans: Plans) -> float | None:
    """How much longer the fastest plan's iterations last since durations vary; None where nobody knows."""
    draws = Draws.of(profile, translation)
    return None if draws is None else max(0.0, draws.slowdown_pct(plans))


def _leaner(
    translation: Translation, frontier: Frontier, switching: Switching, total_w: float, unslowed_s: float
) -> list[Solved]:
    """Plans that leave as many changes to waits as waits may want; none without a budget."""
    lean = switching.budget.less(ONE_WAIT, frontier.t_min_s)
    if lean is None:
        return []
    try:
        return [solve(translation, replace(switching, budget=lean), base_power_w=total_w, also_s=unslowed_s)]
    except PlanError:  # no plan changes so seldom: waits get what is left
        return []


def _check(
    profile: Profile, schedule: Schedule, switching: Switching, timelines: Sequence[InstructionTimelines]
) -> None:
    """Refuse what cannot be planned together."""
    if profile.stages > schedule.stages:
        raise PlanError(
            f"the profile has stage {profile.stages - 1}, the schedule has stages 0 to {schedule.stages - 1}",
            hint=f"plan with {profile.stages} stages",
        )
    if timelines and switching.budget.limits:
        raise PlanError("timelines of kernels are not planned within a budget of changes", hint="give one")
    validate(schedule)
