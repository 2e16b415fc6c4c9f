"""The choice of a point of the frontier: for the user's objective, or beside a straggler."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan.clock_requests import Played, clock_requests, play, play_baseline
from perseus_ds.plan.problem import slow_first, turned_splits
from perseus_ds.plan.record import FrequencyPlan, PlanSet, Splits
from perseus_ds.plan.waits import columns_of
from perseus_ds.schedule import Instruction, dag_of
from perseus_ds.solver.network import Hull, hull_of
from perseus_ds.solver.problem import Floats, OptionTable, long_enough


def select(plans: PlanSet, objective: Objective) -> FrequencyPlan:
    """Choose by total energy, each plan over its own iteration time: what a job without stragglers pays.

    Raises:
        InfeasibleError: no plan meets the deadline or the cap; the message states the nearest one.
    """
    time_s, energy_j = plans.iteration_time_s, plans.energy_j
    if objective.policy == "power_cap":
        assert objective.power_cap_w is not None
        power_w = energy_j / time_s
        fits = np.flatnonzero(power_w <= objective.power_cap_w)
        if not len(fits):
            raise InfeasibleError(
                f"no plan stays under {objective.power_cap_w:.6g} W for one pipeline:"
                f" the least is {power_w.min():.6g} W",
                hint="raise the cap",
            )
        return plans.plan(int(fits[0]))
    until_s = unslowed_s(plans) if objective.policy == "no_slowdown" else latest_s(plans, objective)
    fits = np.flatnonzero(time_s <= (math.inf if until_s is None else until_s))
    if not len(fits):
        raise InfeasibleError(
            f"no plan meets a deadline of {until_s:.6g} s: T_min is {time_s[0]:.6g} s",
            hint="ask for T_min or later",
        )
    return plans.plan(int(fits[np.argmin(energy_j[fits])]))


def latest_s(plans: PlanSet, objective: Objective) -> float | None:
    """The latest time that an objective names, or the earliest at which a cap of power can be kept.

    None where it names none. Power between two plans is that of their mixture.
    """
    if objective.policy in {"no_slowdown", "min_energy"}:
        return None
    if objective.policy == "deadline":
        return objective.deadline_s
    if objective.policy == "max_slowdown":
        assert objective.max_slowdown_pct is not None
        return unslowed_s(plans) * (1.0 + objective.max_slowdown_pct / 100.0)
    assert objective.power_cap_w is not None
    over_j = plans.energy_j - objective.power_cap_w * plans.iteration_time_s  # linear along a mixture
    first = int(np.argmax(over_j <= 0.0))
    if not first or over_j[first] > 0.0:
        return None
    share = over_j[first - 1] / (over_j[first - 1] - over_j[first])
    early_s, late_s = plans.iteration_time_s[first - 1 : first + 1]
    return float(early_s + min(share + _SURELY, 1.0) * (late_s - early_s))


def select_for(plans: PlanSet, straggler_time_s: float) -> FrequencyPlan:
    """Choose beside a straggler: least effective energy among plans that are no slower than it.

    Source: arXiv 2312.06902, section 3.2: T_opt = min(T*, T').
    """
    limit_s = max(straggler_time_s, unslowed_s(plans))
    fits = np.flatnonzero(plans.iteration_time_s <= limit_s)
    return plans.plan(int(fits[np.argmin(plans.effective_energy_j[fits])]))


def unslowed_s(plans: PlanSet) -> float:
    """Return what an iteration may last without being slowed down: as long as at all-maximum clocks.

    Where no plan is that fast it is the fastest plan's time. That cannot be but for the reserve and the
    rounding of sums: one plan has all maximum clocks. A plan that claims to be faster still is not sought.
    The highest clock is now and then not the fastest, and then speed would be bought with energy.
    """
    return max(float(plans.iteration_time_s[0]), plans.baseline.iteration_time_s * (1.0 + _ROUNDING))


_ROUNDING = 1e-9  # of sums of up to a million doubles
_SURELY = 1e-4  # of the way to a plan below a cap: what a mixture's time is rounded by is less


# A plan for a time between two of the frontier: the durations of both, mixed.


def with_plan_within(plans: PlanSet, objective: Objective | None) -> PlanSet:
    """Add the plan that uses up the time that an objective allows; the same plans where it names no time."""
    until_s = None if objective is None else latest_s(plans, objective)
    return plans if until_s is None else with_plan_at(plans, until_s)


def with_plan_at(plans: PlanSet, time_s: float) -> PlanSet:
    """Add the plan for a time between two plans, where computations may be split as they need.

    Longest paths are convex in the durations, and so is the cost of each computation. So durations mixed
    between two plans take no longer than their times mixed, and cost no more than their costs mixed. Plans
    stay as they are where no two plans lie around the time. So they do where a budget of changes, low waits
    or whole computations forbid that.

    Cost: linear in computations and edges.
    """
    after = bisect_right(plans.iteration_time_s, time_s)
    if not 0 < after < len(plans) or not can_mix(plans):
        return plans
    early_s, late_s = plans.iteration_time_s[after - 1 : after + 1].tolist()
    if time_s <= early_s * (1.0 + _ROUNDING):
        return plans
    late_share = (time_s * (1.0 - _ROUNDING) - early_s) / (late_s - early_s)
    tables = {
        key: OptionTable(own.planned_s(plans.reserve_pct), own.cost_j(plans.blocking_power_w))
        for key, own in plans.options.items()
    }
    hulls = {key: hull_of(table) for key, table in tables.items()}
    least_s = plans.change.call_s + plans.change.stall_s
    planned_s, cost_j, parts = dict[Instruction, float](), 0.0, list[tuple[int, int, float]]()
    for column, instruction in enumerate(plans.computations()):
        key = instruction.stage, instruction.kind
        before_s, after_s = plans.blend(column, tables[key].duration_s)[after - 1 : after + 1].tolist()
        mixed_s = before_s * (1.0 - late_share) + after_s * late_share
        fast, slow, share = _around(hulls[key], mixed_s, least_s)
        shares = np.array([share, 1.0 - share])
        planned_s[instruction] = float(shares @ tables[key].duration_s[[fast, slow]])
        cost_j += float(shares @ tables[key].cost_j[[fast, slow]])
        parts.append((fast, slow, share))
    dag, fixed_s = dag_of(plans.schedule), plans.fixed_s
    own_s = np.array([[planned_s.get(n, fixed_s.get((n.stage, n.kind), 0.0))] for n in dag.nodes])
    lasts_s = float(dag.longest(own_s, fixed_s)[0])
    if not (early_s < lasts_s <= time_s and cost_j < plans.effective_energy_j[after - 1]):
        return plans
    return _insert(plans, after, lasts_s, cost_j, parts)


def can_mix(plans: PlanSet) -> bool:
    """Return whether plans may be mixed: they split computations, and nothing limits their changes."""
    if plans.budget.limits or plans.wait_clock is not None or not len(plans.splits):
        return False
    return not any(options.timelines for options in plans.options.values())


def plan_numbered(plans: PlanSet, number: float) -> FrequencyPlan:
    """Return a plan of the frontier: 3 is plan 3, and 3.25 the mixture a quarter of the way to plan 4.

    Where the two cannot be mixed it is the faster one.
    """
    index = int(number)
    if number == index:
        return plans.plan(index)
    early_s, late_s = plans.iteration_time_s[index : index + 2].tolist()
    mixed = with_plan_at(plans, early_s + (number - index) * (late_s - early_s))
    return mixed.plan(index + len(mixed) - len(plans))


def _around(hull: Hull, own_s: float, least_s: float) -> tuple[int, int, float]:
    """Return the two options around a duration and the share of the faster; no part is below ``least_s``."""
    last = len(hull.duration_s) - 1
    at = int(np.clip(bisect_right(hull.duration_s, own_s) - 1, 0, max(0, last - 1)))
    above = min(at + 1, last)
    fast_s, slow_s = hull.duration_s[at : at + 1], hull.duration_s[above : above + 1]
    part = np.clip((slow_s - own_s) / (slow_s - fast_s), 0.0, 1.0) if above > at else np.ones(1)
    kept = float(long_enough(part, fast_s, slow_s, least_s)[0])
    fast, slow = at if kept > 0.0 else above, above if kept < 1.0 else at
    return int(hull.option[fast]), int(hull.option[slow]), kept if kept > 0.0 else 1.0


def _insert(
    plans: PlanSet, after: int, time_s: float, cost_j: float, parts: Sequence[tuple[int, int, float]]
) -> PlanSet:
    """Put the new plan behind the one before it; ``parts`` are two options and a share by computation."""
    fast, slow, share = (np.array([row]) for row in zip(*parts, strict=True))
    clocks = [plans.options[i.stage, i.kind].clock_mhz for i in plans.computations()]
    fast_mhz, slow_mhz = (
        np.array([[own[at] for own, at in zip(clocks, which[0], strict=True)]]) for which in (fast, slow)
    )
    turned = slow_first(columns_of(plans.schedule), fast_mhz, slow_mhz) & (share < 1.0)
    first, own = turned_splits(turned, fast, slow, share)
    old = plans.splits
    plan = np.concatenate([old.plan + (old.plan >= after), np.full(len(own), after, old.plan.dtype)])
    column, option, shares = (
        np.concatenate([getattr(old, name), getattr(own, name)]) for name in ("column", "option", "share")
    )
    order = np.lexsort((plan, column))
    total_j, effective_j = _bounds_j(plans, after, time_s)
    new = {
        "iteration_time_s": time_s,
        "effective_energy_j": cost_j,
        "lower_bound_j": total_j,
        "effective_bound_j": effective_j,
    }
    for name in ("saving_within_pct", "power_ratio"):  # about a mixture, as the plan is
        if (known := getattr(plans, name)) is not None:
            new[name] = float(np.interp(time_s, plans.iteration_time_s, known))
    columns: dict[str, Any] = {
        name: np.insert(getattr(plans, name), after, value) for name, value in new.items()
    }
    return replace(
        plans,
        choice=np.concatenate([plans.choice[:after], first, plans.choice[after:]]),
        splits=Splits(plan[order].astype(np.int32), column[order], option[order], shares[order]),
        expected={index + (index >= after): one for index, one in plans.expected.items()},
        **columns,
    )


def _bounds_j(plans: PlanSet, after: int, time_s: float) -> tuple[float, float]:
    """Bounds on total and effective energy between two plans, from those of the plans around.

    The least effective energy is convex in the time: beyond two plans it lies above the line through them.
    The lines are through plans that are not so near to each other that rounding turns them.
    """
    times_s, bound_j = plans.iteration_time_s, plans.effective_bound_j
    apart_s = (times_s[after] - times_s[after - 1]) / 2.0
    sooner = np.flatnonzero(times_s[:after] <= times_s[after - 1] - apart_s)
    later = np.flatnonzero(times_s >= times_s[after] + apart_s)
    lines = [(0.0, float(bound_j[after]))]  # W, J at no time
    lines += [_line(plans, int(sooner[-1]), after - 1)] if len(sooner) else []
    lines += [_line(plans, after, int(later[0]))] if len(later) else []
    corners_s = [(b - a) / (w - v) for (w, a), (v, b) in combinations(lines, 2) if w != v]
    begin_s = float(times_s[after - 1])
    total_j = min(
        max(slope_w * at_s + zero_j for slope_w, zero_j in lines) + plans.blocking_total_w * at_s
        for at_s in (begin_s, time_s, *(corner_s for corner_s in corners_s if begin_s < corner_s < time_s))
    )
    total_j = max(min(total_j, float(plans.lower_bound_j[after - 1])), float(plans.lower_bound_j[after]))
    return total_j, max(slope_w * time_s + zero_j for slope_w, zero_j in lines)


def _line(plans: PlanSet, first: int, second: int) -> tuple[float, float]:
    """Slope and value at no time of the line through two plans' bounds on effective energy."""
    (a_s, b_s), (a_j, b_j) = plans.iteration_time_s[[first, second]], plans.effective_bound_j[[first, second]]
    slope_w = float((b_j - a_j) / (b_s - a_s))
    return slope_w, float(a_j - slope_w * a_s)


# Figures in the same words everywhere: log, report, ``plan``, ``show``.


def count_of(number: int, noun: str, plural: str = "s") -> str:
    """Return "1 stage", "4 stages"."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def gap_in_words(gap_pct: float) -> str:
    """Return how good a plan is, and in what world."""
    return f"{_optimality(gap_pct)} for this profile"


def worth(slowdown_pct: float, saving_pct: float, gap_pct: float, within_pct: float | None = None) -> str:
    """State in one short line what a plan is worth, and how good it provably is.

    ``within_pct`` is half of the interval of the saving; None where nobody knows it.
    """
    slower = f"{slowdown_pct:+.2f} % time"
    speed = "same speed" if slower in {"+0.00 % time", "-0.00 % time"} else slower
    return f"{speed}, saves {saving_pct:.1f}{within(within_pct)} % ({_optimality(gap_pct)})"


def within(pct: float | None) -> str:
    """Return half of an interval as it stands behind its figure, rounded up; nothing where it is unknown."""
    return "" if pct is None else f" +- {math.ceil(10.0 * pct - 1e-6) / 10.0:.1f}"


def _optimality(gap_pct: float) -> str:
    """Rounded up, and never to nothing."""
    return f"proved optimal within {max(1.0, math.ceil(100.0 * gap_pct - 1e-6)) / 100.0:.2f} %"


# What a plan asks of clocks and of the site: changes per second, energy in waits, the swing of power.


@dataclass(frozen=True, slots=True)
class Power:
    """Power of one pipeline over an iteration: mean, and how far it swings.

    Units: watts, all GPUs together.
    """

    mean_w: float
    least_w: float
    peak_w: float


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """Figures of one plan beside all clocks at maximum.

    ``changes`` are those of the GPU that changes most often, in one iteration; ``waiting_j`` is the energy of
    all waits of a pipeline.
    """

    changes: int
    changes_per_s: float
    splits: int
    waiting_j: float
    waiting_before_j: float
    power: Power
    power_before: Power


def costs_of(plan: FrequencyPlan) -> PlanCosts:
    """Run the plan and its baseline, and add up.

    Cost: a pass over the schedule's graph for each rank.
    """
    plans, after, before = plan.of, play(plan), play_baseline(plan.of)
    every = range(plans.schedule.ranks)
    changes = max(len(clock_requests(plan, rank, plans.change, played=after)) for rank in every)
    return PlanCosts(
        changes=changes,
        changes_per_s=changes / plan.iteration_time_s,
        splits=sum(len(one.parts) > 1 for one in after),
        waiting_j=max(0.0, plan.energy_j - sum(one.energy_j for one in after)),
        waiting_before_j=max(0.0, plans.baseline.energy_j - sum(one.energy_j for one in before)),
        power=_power(plans, after, _low_waits(plan, after), plan.iteration_time_s),
        power_before=_power(plans, before, [], plans.baseline.iteration_time_s),
    )


def _low_waits(plan: FrequencyPlan, played: Sequence[Played]) -> list[tuple[float, float, float]]:
    """Beginning, end and change of power of every wait at the low clock, cut where the iteration ends."""
    clock, total_s = plan.of.wait_clock, plan.iteration_time_s
    if clock is None:
        return []
    computed = {one.instruction: one for one in played if one.parts}
    spans = []
    for rank in range(plan.of.schedule.ranks):
        own = [computed[instruction] for _, instruction in plan.of.computations_of(rank)]
        times_s = np.array([one.start_s for one in own]), np.array([one.end_s for one in own])
        for idle in plan.low_waits(rank):
            idle_s, until_s = (float(moment) for moment in idle.span_s(*times_s, np.array(total_s)))
            low_s, begin_s = float(clock.low_s(np.array(until_s - idle_s))), idle_s + clock.down_s
            for shift_s in (0.0, total_s):
                left_s, right_s = max(begin_s - shift_s, 0.0), min(begin_s + low_s - shift_s, total_s)
                if right_s > left_s:
                    spans.append((left_s, right_s, clock.power_w - clock.high_power_w))
    return spans


Spans = Sequence[tuple[float, float, float]]


def _power(plans: PlanSet, played: Sequence[Played], lowered: Spans, total_s: float) -> Power:
    lasts_s, level_w = _levels(plans, played, lowered, total_s)
    real_w = level_w[lasts_s > _ROUNDING * total_s]
    return Power(float((level_w * lasts_s).sum() / total_s), float(real_w.min()), float(real_w.max()))


def _levels(
    plans: PlanSet, played: Sequence[Played], lowered: Spans, total_s: float
) -> tuple[Floats, Floats]:
    """Return how long the pipeline has each power, and that power: the sum of all ranks, piece by piece.

    Shape: [pieces] each.
    """
    each_w = plans.baseline.blocking_power_w
    steps = [(start_s, add_w) for start_s, _, add_w in lowered]
    steps += [(end_s, -add_w) for _, end_s, add_w in lowered]
    for one in played:
        at_s = one.start_s
        for part in one.parts:
            if part.duration_s > 0.0:
                add_w = part.energy_j / part.duration_s - each_w
                steps += [(at_s, add_w), (at_s + part.duration_s, -add_w)]
            at_s += part.duration_s
    steps.sort()
    moments_s = np.array([0.0, *(when for when, _ in steps), total_s])
    return np.diff(moments_s), plans.schedule.ranks * each_w + np.cumsum([0.0, *(add for _, add in steps)])


def swing_w(plan: FrequencyPlan) -> float:
    """Return the largest change of one pipeline's power within a second, iteration after iteration.

    Cost: a pass over the schedule's graph, and one over its pieces.
    """
    played, total_s = play(plan), plan.iteration_time_s
    lasts_s, level_w = _levels(plan.of, played, _low_waits(plan, played), total_s)
    real = lasts_s > _ROUNDING * total_s
    return largest_change(lasts_s[real], level_w[real], 1.0)


def largest_change(lasts_s: Floats, level: Floats, within_s: float) -> float:
    """Return the largest difference of two values of a periodic step function at most ``within_s`` apart.

    Shape: ``lasts_s`` and ``level`` [pieces], one period.
    Cost: pieces in a period, times those in a window, in vectors.
    """
    periods = 1 + math.ceil(min(within_s, lasts_s.sum()) / lasts_s.sum())
    levels, ends_s = np.tile(level, periods), np.cumsum(np.tile(lasts_s, periods))
    begins_s = ends_s - np.tile(lasts_s, periods)
    windows = np.column_stack([np.searchsorted(ends_s, begins_s - within_s), np.arange(len(levels)) + 1])
    high, low = (of.reduceat(np.append(levels, 0.0), windows.ravel()) for of in (np.maximum, np.minimum))
    return float((high - low)[::2].max())  # between every two windows there is another entry


# A faster plan by an audit, where a model alone tells how long computations last.

_AIM = 0.9  # of what is allowed: a tenth is left for the error of a measurement


def faster_plan(plans: PlanSet, plan: int, measured_pct: float, allowed_pct: float) -> int:
    """Return the plan to run after one that was measured so much slower than default clocks.

    It is the same if that is allowed. Else the next is as much faster as the measurement asks for: by the
    same time, or in proportion, whichever is more; the fastest if none is.
    """
    if measured_pct <= allowed_pct:
        return plan
    aim_pct, planned_pct = _AIM * allowed_pct, plans.plan(plan).slowdown_pct
    most_pct = min(planned_pct - (measured_pct - aim_pct), planned_pct * aim_pct / measured_pct)
    within_s = plans.baseline.iteration_time_s * (1.0 + most_pct / 100.0)
    fits = np.flatnonzero(plans.iteration_time_s <= within_s)
    return int(fits[np.argmin(plans.energy_j[fits])]) if len(fits) else 0


# What power a pipeline takes at every plan: the table that schedulers choose from.


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """A plan as a scheduler sees it, of one pipeline, each over its own iteration time.

    ``slowdown_pct`` and ``saving_pct`` are against default clocks, ``swing_w`` is the largest change of power
    within a second.
    """

    plan: int
    power_w: float
    iteration_time_s: float
    slowdown_pct: float
    energy_j: float
    saving_pct: float
    swing_w: float


def power_table(plans: PlanSet) -> list[PowerPoint]:
    """Return every plan that is worth its time, the fastest first.

    A plan is worth its time where no faster one takes as little power.

    Cost: a pass over the schedule's graph for each plan.
    """
    table: list[PowerPoint] = []
    for index, power_w in enumerate((plans.energy_j / plans.iteration_time_s).tolist()):
        if not table or power_w < table[-1].power_w:
            plan = plans.plan(index)
            figures = plan.iteration_time_s, plan.slowdown_pct, plan.energy_j, plan.saving_pct, swing_w(plan)
            table.append(PowerPoint(index, power_w, *figures))
    return table
