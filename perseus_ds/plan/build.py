"""From a profile and a schedule to a frontier of plans: the only way between them and the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from perseus_ds.errors import PlanError
from perseus_ds.plan.checking.doubt import time_error_pct
from perseus_ds.plan.playing.saving_errors import savings_within_pct
from perseus_ds.plan.record import Baseline, PlanSet
from perseus_ds.plan.solving.lowering import cheapest, lowered, wait_clock_of
from perseus_ds.plan.solving.margins import margins_s
from perseus_ds.plan.solving.order import in_order
from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.solving.reserve import Reserve, least_reserve_pct
from perseus_ds.plan.solving.strategy import fastest, leaner, solve, with_timelines
from perseus_ds.plan.solving.switching import FREE, Switching
from perseus_ds.plan.solving.variation import Draws
from perseus_ds.plan.timelines import InstructionTimelines
from perseus_ds.plan.waits import WaitClock, Waits
from perseus_ds.profile import Profile, smoothed
from perseus_ds.schedule import Schedule, validate
from perseus_ds.solver import Frontier, Plans, check_frontier, check_plans, total_bounds


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

    ``reserve_pct`` plans computations below their fastest clock as if they took that much longer. Durations
    that vary then push no path beyond the critical one. A margin is kept for the profile's own errors.
    ``timelines`` are further ways to run an instruction, not split: plans with them never need more than
    without. ``verify`` runs the solver's own checkers over frontier and plans. ``fingerprint`` names the job
    that they are for.

    Raises:
        CertificateError: a check failed.
        IncompleteProfileError: a stage of the schedule was not measured.
        PlanError: profile and schedule have other stages, or a change of clock outlasts an iteration.
        SolverError: the problem cannot be solved as stated.
    """
    _check(profile, schedule, switching, timelines)
    known = smoothed(profile)
    wait_clock = wait_clock_of(profile.blocking_w, blocking_power_w, switching)
    waiting_w = blocking_power_w if wait_clock is None else wait_clock.power_w
    problem = problem_of(known, schedule, waiting_w).keeping(margins_s(known))
    problem = _reserving(problem, reserve_pct, switching)
    baseline = problem.baseline(blocking_power_w)
    also_s = baseline.iteration_time_s
    solved = solve(problem, switching, also_s=also_s, progress=progress)
    if timelines:
        problem = problem.with_timelines(timelines)
        solved = with_timelines(problem, solved.plans, switching, also_s)
    lean = [] if wait_clock is None else leaner(problem, solved.frontier, switching, also_s)
    sets = [solved.plans, *lean]
    if verify:
        _verify(problem, solved.frontier, sets)
    plans, waits = _with_waits(problem, sets, wait_clock, switching)
    made = _plan_set(problem, solved.frontier, plans, switching, baseline)
    made = replace(made, fingerprint=dict(fingerprint or {}), waits=waits, wait_clock=wait_clock)
    return _with_errors(made, profile, known)


def _with_errors(made: PlanSet, profile: Profile, known: Profile) -> PlanSet:
    """State how far the profile's errors may move times and savings."""
    within_pct = savings_within_pct(made, known)
    return replace(made, time_error_pct=time_error_pct(profile), saving_within_pct=within_pct)


def _reserving(problem: PlanProblem, reserve_pct: Reserve, switching: Switching) -> PlanProblem:
    """Keep a reserve; an automatic one is the least with which durations that vary cost no time."""
    if reserve_pct == "automatic":
        reserve_pct = least_reserve_pct(
            Draws.of(problem, slow_first=not switching.budget.limits),
            lambda pct: fastest(problem.reserving(pct), switching),
        )
    return problem.reserving(reserve_pct)


def _with_waits(
    problem: PlanProblem, sets: Sequence[Plans], wait_clock: WaitClock | None, switching: Switching
) -> tuple[Plans, Waits]:
    if wait_clock is None:
        return sets[0], Waits.none()
    return cheapest([lowered(problem, one, wait_clock, switching.budget) for one in sets])


def _verify(problem: PlanProblem, frontier: Frontier, sets: Sequence[Plans]) -> None:
    check_frontier(problem.activities, frontier)
    for plans in sets:
        check_plans(problem.activities, plans, frontier=frontier)


def _plan_set(
    problem: PlanProblem, frontier: Frontier, plans: Plans, switching: Switching, baseline: Baseline
) -> PlanSet:
    """What is solved, by name and in running order."""
    ordered = in_order(problem, plans, ordered=switching.budget.limits)
    draws = Draws.of(problem, slow_first=not switching.budget.limits)
    return PlanSet(
        fingerprint={},
        schedule=problem.schedule,
        blocking_power_w=problem.waiting_w,
        options=problem.options,
        fixed_s=problem.fixed_s,
        iteration_time_s=plans.time_s,
        effective_energy_j=plans.cost_j,
        effective_bound_j=plans.bound_j,
        lower_bound_j=total_bounds(frontier, plans.time_s, problem.total_w),
        choice=ordered.choice,
        splits=ordered.splits,
        change=switching.change,
        budget=switching.budget,
        baseline=baseline,
        t_min_s=frontier.t_min_s,
        t_star_s=frontier.t_star_s,
        solve_time_s=frontier.solve_time_s,
        reserve_pct=problem.reserve_pct,
        variation_slowdown_pct=None if draws is None else max(0.0, draws.slowdown_pct(plans)),
        scatter_pct=None if draws is None else draws.scatter_pct(),
        load_variation=problem.load_variation,
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
