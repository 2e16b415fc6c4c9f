"""Make a plan's feedback from what varied in the profile, and keep it where it pays on fresh draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan.feedback.course import course_of, curves_of
from perseus_ds.plan.feedback.kernel import Weights
from perseus_ds.plan.feedback.learn import Judged, Lesson, centred, judge, judged, learn
from perseus_ds.plan.feedback.policy import plan_digest
from perseus_ds.plan.record import FeedbackWeights, FrequencyPlan, PlanSet
from perseus_ds.plan.select import select
from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.solving.variation import Draws
from perseus_ds.profile import Profile
from perseus_ds.solver.hull import hull_of

LEAST_PCT, MOST_PCT = 0.1, 0.2
"""How much longer iterations may last: a tenth of how much computations vary, within these."""
WORTH_PCT = 0.05
"""Saving below which corrections are not worth their changes of clock."""
_SURE = 2.0
"""Standard errors between the limit and what a policy lasts on draws that had no part in it."""
_TRIES = 4
_BEYOND = 1.25  # times the largest lateness seen is still variation
_LEARNED_ON, _PICKED_ON, _JUDGED_ON = 1, 2, 3  # seeds
_LEAST_DRAWS, _MOST_DRAWS, _DRAWN = 200, 2000, 400_000
"""Iterations to learn from, and nodes in all of them.

Of few draws descent learns what is theirs alone. Of many, where every step sees others, the numbers of a
large graph walk at random: 8 x 96 saves 8.3 % from 2000 draws, 11.1 % from 260.
"""

Floats = NDArray[np.float64]


def with_feedback(plans: PlanSet, profile: Profile, objective: Objective | None = None) -> PlanSet:
    """Add the feedback of the plan that an objective chooses, where that saves more than it costs.

    The same plans, to the last digit, where nothing varies or changes of clock are limited. So they are where
    a computation may follow a timeline of kernels.

    Cost: about two CPU seconds for 8 x 96.
    """
    problem = problem_of(profile, plans.schedule, plans.blocking_power_w)
    plan = _chosen(plans, problem, objective or Objective())
    if plan is None:
        return plans
    lasts_s = _lasts_s(plan, problem)
    draws = int(np.clip(_DRAWN // len(problem.dag.nodes), _LEAST_DRAWS, _MOST_DRAWS))
    learned_on, picked_on, judged_on = (
        _lesson(problem, plans, seed=seed, draws=draws) for seed in (_LEARNED_ON, _PICKED_ON, _JUDGED_ON)
    )
    limit_pct = max(0.0, plan.slowdown_pct) + _limit_pct(problem)
    found = _best(learned_on, picked_on, _begin_s(problem, lasts_s), lasts_s, limit_pct)
    without, corrected = _fixed(judged_on, problem, plan, lasts_s), judge(judged_on, found)
    most_late_s = judge(learned_on, found).most_late_s
    base_j = _fastest_j(judged_on)
    saved_pct, without_pct = (100.0 * (1.0 - one.energy_j / base_j) for one in (corrected, without))
    worth = saved_pct >= without_pct + WORTH_PCT or without.slower_pct > limit_pct
    if not worth or corrected.slower_pct > limit_pct:
        return plans
    columns, keys = problem.columns, list(problem.options)
    return replace(
        plans,
        feedback=FeedbackWeights(
            plan=plan.index,
            of=plan_digest(plans, plan.index),
            begin_s=found.begin_s[columns],
            lasts_s=found.lasts_s[columns],
            most_late_s=_BEYOND * most_late_s[columns],
            weights={key: (float(a), float(b)) for key, (a, b) in zip(keys, found.weight, strict=True)},
            options={key: _options(problem, number) for number, key in enumerate(keys)},
            saving_pct=saved_pct,
            slowdown_pct=corrected.slower_pct,
            without_pct=without_pct,
            without_slowdown_pct=without.slower_pct,
        ),
    )


def _best(
    learned_on: Lesson, picked_on: Lesson, begin_s: Floats, lasts_s: Floats, limit_pct: float
) -> Weights:
    """Learn for a limit, and again aiming as far beside it as the one before came out; pick the best.

    Descent and whole clocks leave a policy a little below or above the limit that it was learned for. One
    holds the limit if it does so by a few standard errors on draws that it was not learned from. Between an
    aim that held and one that did not lies the next.
    """
    found: list[tuple[bool, float, Weights]] = []
    aim_pct, held_pct, broken_pct = limit_pct, 0.0, math.inf
    for _ in range(_TRIES):
        one = centred(learned_on, learn(learned_on._replace(slower_pct=aim_pct), begin_s, lasts_s))
        came = judge(picked_on, one)
        sure_pct = limit_pct - _SURE * came.slower_se_pct
        too_long = came.slower_pct > sure_pct
        found.append((too_long, came.energy_j, one))
        if too_long:
            broken_pct = min(broken_pct, aim_pct)
        else:
            held_pct = max(held_pct, aim_pct)
        aim_pct *= sure_pct / max(came.slower_pct, 0.5 * limit_pct)
        if held_pct and broken_pct < math.inf:
            aim_pct = 0.5 * (held_pct + broken_pct)
    return min(found, key=lambda one: one[:2])[2]


def _chosen(plans: PlanSet, problem: PlanProblem, objective: Objective) -> FrequencyPlan | None:
    """The plan to learn feedback for; None where feedback is not possible or no plan meets the objective."""
    try:
        return select(plans, objective) if _possible(plans, problem) else None
    except InfeasibleError:  # the job says so itself
        return None


def _possible(plans: PlanSet, problem: PlanProblem) -> bool:
    timelines = any(options.timelines for options in plans.options.values())
    varies = problem.variation is not None and any(problem.variation.values())
    return varies and not timelines and not plans.budget.limits


def _limit_pct(problem: PlanProblem) -> float:
    assert problem.variation is not None
    varies_pct = 100.0 * float(np.mean(list(problem.variation.values())))
    return float(np.clip(0.1 * varies_pct, LEAST_PCT, MOST_PCT))


def _lasts_s(plan: FrequencyPlan, problem: PlanProblem) -> Floats:
    """What the plan's computations last on average, without its reserve.

    Shape: [nodes].
    """
    lasts_s = np.array([problem.fixed_s.get((n.stage, n.kind), 0.0) for n in problem.dag.nodes])
    place = {node: at for at, node in enumerate(problem.dag.nodes)}
    for instruction, portions in plan.portions().items():
        time_s = plan.of.options[instruction.stage, instruction.kind].time_s
        lasts_s[place[instruction]] = sum(share * float(time_s[option]) for option, share in portions)
    return lasts_s


def _begin_s(problem: PlanProblem, lasts_s: Floats) -> Floats:
    return np.asarray(problem.dag.starts_of_many(lasts_s[:, None].copy(), problem.fixed_s)[:, 0])


def _lesson(problem: PlanProblem, plans: PlanSet, *, seed: int, draws: int) -> Lesson:
    drawn = Draws.of(problem, seed=seed, most=draws)
    assert drawn is not None
    return Lesson(
        course_of(problem),
        curves_of(problem),
        np.ascontiguousarray(drawn.factor.T),
        _times_s(problem, drawn.fastest_s[:, None] * drawn.factor),
        plans.change.longest_s,
        problem.total_w,
        LEAST_PCT,
    )


def _times_s(problem: PlanProblem, lasts_s: Floats) -> Floats:
    """How long iterations last.

    Shape: ``lasts_s`` [nodes, draws]; returns [draws].
    """
    start_s = problem.dag.starts_of_many(lasts_s, problem.fixed_s)
    return np.asarray((start_s + lasts_s).max(axis=0))


def _fastest_j(lesson: Lesson) -> float:
    """Mean energy of an iteration at the fastest clocks, with all waiting."""
    curves = lesson.curves
    cost_j = sum(float(curves.cost_j[curves.first[table]]) for table in lesson.course.table if table >= 0)
    return cost_j + lesson.waiting_w * float(lesson.fastest_s.mean())


def _fixed(lesson: Lesson, problem: PlanProblem, plan: FrequencyPlan, lasts_s: Floats) -> Judged:
    """Judge the plan's own clocks on the same draws: no correction, and all in force in time."""
    time_s = _times_s(problem, lasts_s[:, None] * lesson.factor.T)
    own = problem.reserving(0.0).activities.tables
    cost_j = 0.0
    number = {key: at for at, key in enumerate(problem.options)}
    for instruction, portions in plan.portions().items():
        table = own[number[instruction.stage, instruction.kind]]
        cost_j += sum(share * float(table.cost_j[option]) for option, share in portions)
    return judged(lesson, cost_j, time_s)


def _options(problem: PlanProblem, number: int) -> tuple[int, ...]:
    """The options on a computation's hull, fastest first."""
    return tuple(hull_of(problem.reserving(0.0).activities.tables[number]).option.tolist())
