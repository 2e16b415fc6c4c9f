"""A plan for a time between two of the frontier: the durations of both, mixed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.plan.idle import columns_of
from perseus_ds.plan.record import Expected, PlanSet
from perseus_ds.plan.select import latest_s
from perseus_ds.plan.solving.order import narrow, slow_first
from perseus_ds.plan.splits import Splits
from perseus_ds.profile import Computation
from perseus_ds.schedule import dag_of
from perseus_ds.solver import OptionTable
from perseus_ds.solver.network import Hull, hull_of
from perseus_ds.solver.splits import long_enough

_ROUNDING = 1e-9  # of sums of up to a million doubles

Floats = NDArray[np.float64]


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
    if plans.budget.limits or plans.wait_clock is not None or not len(plans.splits):
        return plans
    if not 0 < after < len(plans) or _has_timelines(plans):
        return plans
    early_s, late_s = plans.iteration_time_s[after - 1 : after + 1].tolist()
    if time_s <= early_s * (1.0 + _ROUNDING):
        return plans
    late_share = (time_s * (1.0 - _ROUNDING) - early_s) / (late_s - early_s)
    fast, slow, share = _parts(plans, _mixed_s(plans, after, late_share))
    lasts_s, cost_j = _lasting(plans, fast, slow, share)
    if not (early_s < lasts_s <= time_s and cost_j < plans.effective_energy_j[after - 1]):
        return plans
    return _inserted(plans, after, (lasts_s, cost_j), (fast, slow, share))


def _has_timelines(plans: PlanSet) -> bool:
    return any(options.timelines for options in plans.options.values())


def _mixed_s(plans: PlanSet, after: int, late_share: float) -> Floats:
    """How long each computation lasts between two plans.

    Shape: [computations].
    """
    keys = [(i.stage, i.kind) for i in plans.computations()]
    planned_s = {key: options.planned_s(plans.reserve_pct) for key, options in plans.options.items()}
    around = np.array([plans.blended(column, planned_s[key]) for column, key in enumerate(keys)])
    return np.asarray(around[:, after - 1] * (1.0 - late_share) + around[:, after] * late_share)


def _hulls(plans: PlanSet) -> dict[Computation, Hull]:
    return {
        key: hull_of(
            OptionTable(
                options.planned_s(plans.reserve_pct),
                options.energy_j - plans.blocking_power_w * options.time_s,
            )
        )
        for key, options in plans.options.items()
    }


def _parts(plans: PlanSet, lasts_s: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """The two options around every duration, and the share of the faster; no part is shorter than a change.

    Shape: [computations] each.
    """
    hulls, change = _hulls(plans), plans.change
    fast, slow, share = [], [], []
    for instruction, own_s in zip(plans.computations(), lasts_s.tolist(), strict=True):
        hull = hulls[instruction.stage, instruction.kind]
        at = int(np.clip(bisect_right(hull.duration_s, own_s) - 1, 0, max(0, len(hull.duration_s) - 2)))
        above = min(at + 1, len(hull.duration_s) - 1)
        fast_s, slow_s = hull.duration_s[at : at + 1], hull.duration_s[above : above + 1]
        part = np.clip((slow_s - own_s) / (slow_s - fast_s), 0.0, 1.0) if above > at else np.ones(1)
        kept = float(long_enough(part, fast_s, slow_s, change.call_s + change.stall_s)[0])
        fast.append(int(hull.option[at if kept > 0.0 else above]))
        slow.append(int(hull.option[above if kept < 1.0 else at]))
        share.append(kept if kept > 0.0 else 1.0)
    return np.array(fast), np.array(slow), np.array(share)


def _lasting(
    plans: PlanSet, fast: NDArray[np.int64], slow: NDArray[np.int64], share: Floats
) -> tuple[float, float]:
    """Longest path and effective energy of the new plan."""
    dag, columns = dag_of(plans.schedule), enumerate(plans.computations())
    planned_s, cost_j = {}, 0.0
    for column, instruction in columns:
        options = plans.options[instruction.stage, instruction.kind]
        shares = np.array([share[column], 1.0 - share[column]])
        both = [fast[column], slow[column]]
        planned_s[instruction] = float(shares @ options.planned_s(plans.reserve_pct)[both])
        cost_j += float(shares @ (options.energy_j - plans.blocking_power_w * options.time_s)[both])
    lasts_s = [planned_s.get(node, plans.fixed_s.get((node.stage, node.kind), 0.0)) for node in dag.nodes]
    starts_s = dag.earliest_starts(lasts_s, plans.fixed_s)
    return max(start + own for start, own in zip(starts_s, lasts_s, strict=True)), cost_j


def _inserted(
    plans: PlanSet,
    after: int,
    figures: tuple[float, float],
    parts: tuple[NDArray[np.int64], NDArray[np.int64], Floats],
) -> PlanSet:
    """Put the new plan behind the one before it."""
    fast, slow, share = parts
    clocks = [plans.options[i.stage, i.kind].clock_mhz for i in plans.computations()]
    fast_mhz, slow_mhz = (
        np.array([[own[option] for own, option in zip(clocks, which, strict=True)]]) for which in (fast, slow)
    )
    turned = slow_first(columns_of(plans.schedule), fast_mhz, slow_mhz)[0] & (share < 1.0)
    first = narrow(np.where(turned, slow, fast)[None])
    rest = narrow(np.where(turned, fast, slow)[None])
    own = Splits.of(first, rest, np.where(turned, 1.0 - share, share)[None])
    old = plans.splits
    plan = np.concatenate([old.plan + (old.plan >= after), np.full(len(own), after, old.plan.dtype)])
    columns = np.concatenate([old.column, own.column])
    order = np.lexsort((plan, columns))
    splits = Splits(
        plan[order].astype(np.int32),
        columns[order],
        np.concatenate([old.option, own.option])[order],
        np.concatenate([old.share, own.share])[order],
    )
    total_j, effective_j = _bounds_j(plans, after, figures[0])
    return replace(
        plans,
        iteration_time_s=np.insert(plans.iteration_time_s, after, figures[0]),
        effective_energy_j=np.insert(plans.effective_energy_j, after, figures[1]),
        lower_bound_j=np.insert(plans.lower_bound_j, after, total_j),
        effective_bound_j=np.insert(plans.effective_bound_j, after, effective_j),
        choice=np.concatenate([plans.choice[:after], first, plans.choice[after:]]),
        splits=splits,
        expected=_moved(plans.expected, after),
        saving_within_pct=_mixed(plans, plans.saving_within_pct, after, figures[0]),
        power_ratio=_mixed(plans, plans.power_ratio, after, figures[0]),
    )


def _mixed(plans: PlanSet, column: Floats | None, after: int, time_s: float) -> Floats | None:
    """Add the new plan's value: about a mixture, as the plan is of the two around it."""
    if column is None:
        return None
    return np.insert(column, after, np.interp(time_s, plans.iteration_time_s, column))


def _moved(known: Mapping[int, Expected], after: int) -> dict[int, Expected]:
    """What is known of plans by index, where there is one more."""
    return {index + (index >= after): one for index, one in known.items()}


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
