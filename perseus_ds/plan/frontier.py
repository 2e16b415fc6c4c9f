"""From a profile and a schedule to a frontier of plans: the only way between them and the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from perseus_ds.errors import InfeasibleError, PlanError, SlowChangeError
from perseus_ds.plan.expected import savings_within_pct
from perseus_ds.plan.problem import FREE, PlanProblem, Switching, clocks_mhz, in_order, problem_of
from perseus_ds.plan.record import ChangeBudget, InstructionTimelines, PlanSet, baseline_of
from perseus_ds.plan.reserve import Draws, Reserve, least_reserve_pct, margins_s, time_error_pct
from perseus_ds.plan.waits import BEGINNING, Idle, WaitClock, Waits, idles
from perseus_ds.profile import Profile, smooth
from perseus_ds.schedule import Kind, Schedule, validate
from perseus_ds.solver.check import check_frontier, check_plans
from perseus_ds.solver.discrete import timelines
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import Frontier, best_of, plan_times, solve_frontier, worth_keeping
from perseus_ds.solver.one_level import one_level
from perseus_ds.solver.problem import Floats, Lanes, Plans, blend, changes_between, pareto_front
from perseus_ds.solver.splits import split

ONE_WAIT = 2
"""Changes that one low wait takes: within a budget it is also tried to leave as many to waits."""
_ROUNDING = 1e-9  # of sums of up to a million doubles


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
        IncompleteProfileError: a stage of the schedule was not measured.
        PlanError: profile and schedule have other stages, or a change of clock outlasts an iteration.
        SolverError: the problem cannot be solved as stated, or a check failed.
    """
    if profile.stages > schedule.stages:
        raise PlanError(
            f"the profile has stage {profile.stages - 1}, the schedule has stages 0 to {schedule.stages - 1}",
            hint=f"plan with {profile.stages} stages",
        )
    budget = switching.budget
    if timelines and budget.limits:
        raise PlanError("timelines of kernels are not planned within a budget of changes", hint="give one")
    validate(schedule)
    known = smooth(profile)
    wait_clock = wait_clock_of(profile.blocking_w, blocking_power_w, switching)
    waiting_w = blocking_power_w if wait_clock is None else wait_clock.power_w
    problem = problem_of(known, schedule, waiting_w).with_margins(margins_s(known))
    draws = Draws.of(problem, slow_first=not budget.limits)
    if reserve_pct == "automatic":
        reserve_pct = least_reserve_pct(problem, draws, lambda reserved: fastest(reserved, switching))
    problem = problem.with_reserve(reserve_pct)
    baseline = baseline_of(schedule, problem.options, problem.fixed_s, blocking_power_w)
    planner = _Planner.of(problem, switching, baseline.iteration_time_s, progress)
    plans = planner.plans()
    if timelines:
        problem = problem.with_timelines(timelines)
        draws = Draws.of(problem, slow_first=not budget.limits)
        planner = _Planner.of(problem, switching, baseline.iteration_time_s)
        plans = planner.with_timelines(plans)
    frontier = planner.frontier
    sets = [plans] if wait_clock is None else [plans, *planner.leaner()]
    if verify:
        check_frontier(problem.activities, frontier)
        for one in sets:
            check_plans(problem.activities, one, frontier=frontier)
    waits = Waits.none()
    if wait_clock is not None:
        plans, waits = _cheapest([_lower_waits(problem, one, wait_clock, budget) for one in sets])
    choice, splits = in_order(problem, plans, ordered=budget.limits)
    made = PlanSet(
        fingerprint=dict(fingerprint or {}),
        schedule=schedule,
        blocking_power_w=waiting_w,
        options=problem.options,
        fixed_s=problem.fixed_s,
        iteration_time_s=plans.time_s,
        effective_energy_j=plans.cost_j,
        effective_bound_j=plans.bound_j,
        lower_bound_j=frontier.total_bounds(plans.time_s, problem.total_w),
        choice=choice,
        splits=splits,
        waits=waits,
        wait_clock=wait_clock,
        change=switching.change,
        budget=budget,
        baseline=baseline,
        t_min_s=frontier.t_min_s,
        t_star_s=frontier.t_star_s,
        solve_time_s=frontier.solve_time_s,
        reserve_pct=problem.reserve_pct,
        variation_slowdown_pct=None if draws is None else max(0.0, draws.slowdown_pct(plans)),
        time_error_pct=time_error_pct(profile),
        scatter_pct=None if draws is None else draws.scatter_pct(),
        load_variation=problem.load_variation,
    )
    return replace(made, saving_within_pct=savings_within_pct(made, known))


def fastest(problem: PlanProblem, switching: Switching, *, also_s: float = 0.0) -> Plans:
    """Make the plan for the shortest time alone, and one for ``also_s`` where it lies on the frontier.

    Where no plan for the shortest time changes clocks so seldom, plans for longer times are made too. In a
    profile with errors the fastest clock of one computation need not be that of the next.

    Raises:
        PlanError, SolverError: as ``build``.
    """
    planner = _Planner.of(problem, switching, also_s)
    try:
        return planner.plans_at(np.array([planner.frontier.t_min_s]))
    except PlanError:
        return planner.plans()


# From a problem to plans: its frontier, the times worth a plan, and a plan for each.


@dataclass(frozen=True, slots=True)
class _Planner:
    """A problem with its frontier; ``also_s`` is a time that gets a plan where it lies on the frontier."""

    problem: PlanProblem
    switching: Switching
    frontier: Frontier
    also_s: float

    @classmethod
    def of(
        cls,
        problem: PlanProblem,
        switching: Switching,
        also_s: float,
        progress: Callable[[float], None] | None = None,
    ) -> _Planner:
        """Solve the relaxed problem.

        Raises:
            SlowChangeError: changes that would not be in force before the iteration that wants them is over.
        """
        frontier = solve_frontier(problem.activities, progress=progress)
        if switching.change.longest_s >= frontier.t_min_s and switching.budget.per_gpu_per_s != 0.0:
            raise SlowChangeError(
                f"a change of clock takes {switching.change.longest_s:.3g} s and the fastest iteration"
                f" {frontier.t_min_s:.3g} s: no plan that changes clocks can run",
                hint="changes_per_s 0 gives every GPU one clock",
            )
        return cls(problem, switching, frontier, also_s)

    def plans(self) -> Plans:
        """Make plans for the times that are worth one."""
        all_kept = self.switching.budget.limits or self.switching.split != "never"
        return self.plans_at(plan_times(self.frontier, base_power_w=self.problem.total_w, all_kept=all_kept))

    def plans_at(self, times_s: Floats) -> Plans:
        """Make a plan for each time."""
        if self.frontier.t_min_s * (1.0 + _ROUNDING) < self.also_s < self.frontier.t_star_s:
            times_s = np.union1d(times_s, [self.also_s])
        return self._within_budget(times_s) if self.switching.budget.limits else self._freely(times_s)

    def with_timelines(self, without: Plans) -> Plans:
        """Keep the best of plans with timelines as whole options, and of those that know clocks only."""
        found = self._whole(plan_times(self.frontier, base_power_w=self.problem.total_w))
        also = discretise(self.frontier, np.array([max(self.also_s, self.frontier.t_min_s)]))
        return best_of(self.frontier, without, found, also)

    def leaner(self) -> list[Plans]:
        """Make plans that leave as many changes to waits as waits may want; none without a budget."""
        lean = self.switching.budget.less(ONE_WAIT, self.frontier.t_min_s)
        if lean is None:
            return []
        try:
            return [replace(self, switching=replace(self.switching, budget=lean)).plans()]
        except PlanError:  # no plan changes so seldom: waits get what is left
            return []

    def _freely(self, times_s: Floats) -> Plans:
        """Let clocks change as often as they like; parts are long enough for a change of clock."""
        if self.switching.split == "never":
            return self._whole(times_s)
        return split(self.frontier, times_s, least_part_s=self.switching.least_part_s)

    def _whole(self, times_s: Floats) -> Plans:
        """Run every computation at one option, a clock or a timeline, and keep the best."""
        return worth_keeping(discretise(self.frontier, times_s), base_power_w=self.problem.total_w)

    def _within_budget(self, times_s: Floats) -> Plans:
        """Let clocks change only so often: timelines of clocks for every GPU, in the order of time.

        Raises:
            PlanError: a budget that no plan meets.
        """
        problem, budget, options = self.problem, self.switching.budget, self.problem.options.values()
        lower = -np.concatenate([one.clock_mhz for one in options])  # the highest clock is level 0
        levels = [np.searchsorted(np.unique(lower), -one.clock_mhz).astype(np.int32) for one in options]
        levels += [np.zeros(0, np.int32) for _ in problem.fixed_s]
        orders = tuple(problem.columns[rank.start : rank.stop] for rank in problem.ranks)
        lanes = Lanes(orders, level_of=tuple(levels))
        if budget.dated or budget.per_gpu_per_s == 0.0:
            kept = _kept_fast(problem) if budget.dated else ()
            return one_level(self.frontier, times_s, lanes, kept=kept)
        within = partial(budget.within, len(lanes))
        most = 2 * np.array([len(order) for order in orders])  # into a computation, and once within it
        if within(self.frontier.t_min_s).allows(most):
            return self._freely(times_s)
        least_part_s = np.inf if self.switching.split == "never" else self.switching.least_part_s
        try:
            return timelines(self.frontier, times_s, lanes, within, least_part_s=least_part_s)
        except InfeasibleError as error:
            raise PlanError(f"budget of changes: {error.message}", hint=error.hint) from error


_SHARES = 0.125, 0.5, 1.0


def _kept_fast(problem: PlanProblem) -> list[list[tuple[int, int]]]:
    """Return ways to keep the highest clock at both ends of an iteration: computations of each rank.

    While a pipeline fills and drains each of its ranks is on the critical path. A rank's part of that ends
    with its first backward, and begins with its last forward. Shares of it mostly suffice.

    Shape: [ways, ranks], at the begin and at the end.
    """
    whole = []
    for rank in problem.ranks:
        kinds = [problem.dag.nodes[at].kind for at in problem.columns[rank.start : rank.stop]]
        forward = [at for at, kind in enumerate(kinds) if kind is Kind.FORWARD]
        other = next((at for at, kind in enumerate(kinds) if kind is not Kind.FORWARD), len(kinds) - 1)
        whole.append((other + 1, len(kinds) - (forward[-1] if forward else 0)))
    ways = [[(max(1, int(s * a)), max(1, int(s * b))) for a, b in whole] for s in _SHARES]
    return [way for at, way in enumerate(ways) if way not in ways[:at]]


# Low clocks in the waits of solved plans: which are worth their changes, and what all others take.


def wait_clock_of(
    blocking_w: Mapping[int, float], blocking_power_w: float, switching: Switching
) -> WaitClock | None:
    """The clock at which waiting takes least, the highest of several; None where none takes less.

    ``blocking_w`` is the power of waiting by clock.
    """
    if switching.waits == "never" or not blocking_w:
        return None
    power_w, lower_mhz = min((power_w, -clock_mhz) for clock_mhz, power_w in blocking_w.items())
    if power_w >= blocking_power_w:
        return None
    return WaitClock(-lower_mhz, power_w, blocking_power_w, switching.change)


def _lower_waits(
    problem: PlanProblem, plans: Plans, clock: WaitClock, budget: ChangeBudget
) -> tuple[Plans, Waits]:
    """Lower the clock in every wait that is long enough; add what all other waits take beyond that.

    The problem was solved as if every wait took the least: what is added is what the bound does not see.
    With a budget the longest waits go down, as far as its changes reach.
    """
    columns = problem.columns
    duration_s, _ = blend(problem.activities, plans.choice, plans.other, plans.share)
    start_s, end_s = (of[columns] for of in problem.dag.spans(duration_s.T, problem.fixed_s))
    idle_times = idles(problem.schedule, problem.fixed_s)
    low_s = np.zeros((len(columns) + len(problem.ranks), len(plans)))
    for idle in idle_times:
        own = slice(problem.ranks[idle.rank].start, problem.ranks[idle.rank].stop)
        begin_s, until_s = idle.span_s(start_s[own], end_s[own], plans.time_s)
        low_s[idle.column] = clock.low_s(until_s - begin_s)
    column, plan = np.nonzero(low_s)
    waits = Waits(plan.astype(np.int32), column.astype(np.int32), low_s[column, plan])
    if budget.limits:
        waits = _affordable(problem, plans, waits, idle_times, budget)
    busy_s = np.zeros(len(plans))  # without reserve
    for at in columns.tolist():
        node = problem.dag.nodes[at]
        time_s, share = problem.options[node.stage, node.kind].time_s, plans.share[:, at]
        busy_s += share * time_s[plans.choice[:, at]] + (1.0 - share) * time_s[plans.other[:, at]]
    high_s = problem.schedule.ranks * plans.time_s - busy_s - waits.total_s(len(plans))
    cost_j = plans.cost_j + (clock.high_power_w - clock.power_w) * high_s
    kept = pareto_front(plans.time_s, cost_j)
    return replace(plans, cost_j=cost_j).at(kept), waits.of(kept)


def _cheapest(found: Sequence[tuple[Plans, Waits]]) -> tuple[Plans, Waits]:
    """Keep of several sets of plans those that no other beats, with their waits."""
    if len(found) == 1:
        return found[0]
    every = Plans.stack([plans for plans, _ in found])
    first = np.cumsum([0, *(len(plans) for plans, _ in found[:-1])])
    kept = pareto_front(every.time_s, every.cost_j)
    number = np.full(len(every), -1, np.int32)
    number[kept] = np.arange(len(kept))
    plan = number[np.concatenate([waits.plan + at for (_, waits), at in zip(found, first, strict=True)])]
    column, low_s = (
        np.concatenate([getattr(waits, name) for _, waits in found]) for name in ("column", "low_s")
    )
    order = np.lexsort((plan, column))
    order = order[plan[order] >= 0]
    return every.at(kept), Waits(plan[order], column[order], low_s[order])


def _affordable(
    problem: PlanProblem, plans: Plans, waits: Waits, idle_times: Sequence[Idle], budget: ChangeBudget
) -> Waits:
    """Keep the longest waits of every plan while GPU and node have changes left for going down and up."""
    first, last = (
        clocks_mhz(problem, options[:, problem.columns]) for options in (plans.choice, plans.other)
    )
    changes = np.array([changes_between(first[:, own], last[:, own]) for own in problem.ranks])
    idle_of = {idle.column: idle for idle in idle_times}
    kept = np.zeros(len(waits), dtype=np.bool_)
    for row in np.argsort(-waits.low_s, kind="stable").tolist():
        plan, idle = int(waits.plan[row]), idle_of[int(waits.column[row])]
        more = 2
        if idle.position != BEGINNING:
            following = problem.ranks[idle.rank][idle.until or 0]
            more = 1 + int(last[plan, idle.column] == first[plan, following])
        limits = budget.within(len(changes), float(plans.time_s[plan]))
        if limits.changes_left(changes[:, plan])[idle.rank] >= more:
            changes[idle.rank, plan] += more
            kept[row] = True
    return Waits(waits.plan[kept], waits.column[kept], waits.low_s[kept])
