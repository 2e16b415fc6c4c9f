"""From a profile and a schedule to a frontier of plans: the only way between them and the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perseus_ds.errors import PlanError
from perseus_ds.plan.checking.doubt import time_error_pct
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.lowering import cheapest, lowered, wait_clock_of
from perseus_ds.plan.solving.order import in_order
from perseus_ds.plan.solving.problem import problem_of
from perseus_ds.plan.solving.reserve import Reserve, least_reserve_pct
from perseus_ds.plan.solving.strategy import fastest, leaner, solve, with_timelines
from perseus_ds.plan.solving.switching import FREE, Switching
from perseus_ds.plan.solving.variation import Draws
from perseus_ds.plan.timelines import InstructionTimelines
from perseus_ds.plan.waits import Waits
from perseus_ds.profile import Profile
from perseus_ds.schedule import Schedule, validate
from perseus_ds.solver import check_frontier, check_plans, total_bounds


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
    wait_clock = wait_clock_of(profile.blocking_w, blocking_power_w, switching)
    problem = problem_of(profile, schedule, blocking_power_w if wait_clock is None else wait_clock.power_w)
    if reserve_pct == "auto":
        unreserved = problem
        reserve_pct = least_reserve_pct(
            Draws.of(unreserved), lambda pct: fastest(unreserved.reserving(pct), switching)
        )
    problem = problem.reserving(reserve_pct)

    baseline = problem.baseline(blocking_power_w)
    solved = solve(problem, switching, also_s=baseline.iteration_time_s, progress=progress)
    if timelines:
        problem = problem.with_timelines(timelines)
        solved = with_timelines(problem, solved.plans, switching, baseline.iteration_time_s)
    frontier, sets = solved.frontier, [solved.plans]
    if wait_clock is not None:
        sets += leaner(problem, frontier, switching, baseline.iteration_time_s)
    if verify:
        check_frontier(problem.activities, frontier)
        for plans in sets:
            check_plans(problem.activities, plans, frontier=frontier)

    plans, waits = solved.plans, Waits.none()
    if wait_clock is not None:
        plans, waits = cheapest([lowered(problem, one, wait_clock, switching.budget) for one in sets])

    ordered = in_order(problem, plans, ordered=switching.budget.limits)
    draws = Draws.of(problem)
    return PlanSet(
        fingerprint=dict(fingerprint or {}),
        schedule=schedule,
        blocking_power_w=problem.waiting_w,
        options=problem.options,
        fixed_s=problem.fixed_s,
        iteration_time_s=plans.time_s,
        effective_energy_j=plans.cost_j,
        effective_bound_j=plans.bound_j,
        lower_bound_j=total_bounds(frontier, plans.time_s, problem.total_w),
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
        variation_slowdown_pct=None if draws is None else max(0.0, draws.slowdown_pct(plans)),
        time_error_pct=time_error_pct(profile),
        scatter_pct=None if draws is None else draws.scatter_pct(),
    )


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
