"""Make a plan's feedback from what varied in the profile, and keep it where it pays on fresh draws."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan.feedback.course import course_of, curves_of
from perseus_ds.plan.feedback.kernel import Weights
from perseus_ds.plan.feedback.learn import Judged, Lesson, judge, judged, learn
from perseus_ds.plan.feedback.policy import plan_digest
from perseus_ds.plan.playing.time_errors import time_errors
from perseus_ds.plan.record import FeedbackWeights, FrequencyPlan, PlanSet
from perseus_ds.plan.select import select
from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.solving.variation import Draws
from perseus_ds.profile import Profile, smoothed
from perseus_ds.solver.hull import hull_of

LEAST_PCT, MOST_PCT = 0.1, 0.2
"""How much longer iterations may last: a tenth of how much computations vary, within these.

The profile's own errors have their part of it first.
"""
WORTH_PCT = 0.05
"""Saving below which corrections are not worth their changes of clock."""
_SURE = (2.0, 3.0, 4.0)
"""Standard errors that a policy stays below the limit by: the next where fresh draws do not confirm it."""
SURE_OF_PROFILE = 1.65
"""Standard deviations of what the profile's errors do to an iteration for which time is left: 19 jobs of 20.

Of jobs that aim at the limit itself half last longer, each for the errors of its own profile.
"""
_MOST_SHORTER, _HALVINGS, _INTERPOLATIONS = 0.02, 4, 5
CHANGES = 2
"""The fewest of a computation: one asked for ahead, and a correction, which has two where a third fits."""
_BEYOND = 1.25  # times the largest lateness seen is still variation
_LEARNED_ON, _PICKED_ON, _JUDGED_ON = 1, 2, (3, 4, 5)  # seeds
_LEAST_DRAWS, _MOST_DRAWS, _DRAWN = 1000, 2000, 400_000
"""Iterations to learn from, and nodes in all of them. Of few draws descent learns what is theirs alone."""

Floats = NDArray[np.float64]


def with_feedback(plans: PlanSet, profile: Profile, objective: Objective | None = None) -> PlanSet:
    """Add the feedback of the plan that an objective chooses, where that saves more than it costs.

    The same plans, to the last digit, where nothing varies or a budget of changes could be exceeded. So they
    are where a computation may follow a timeline of kernels.

    Cost: some eight CPU seconds for 8 x 96.
    """
    problem = problem_of(profile, plans.schedule, plans.blocking_power_w)
    plan = _chosen(plans, problem, objective or Objective())
    if plan is None:
        return plans
    lasts_s = _lasts_s(plan, problem)
    lesson = partial(_lesson, problem, plans, draws=_draws(len(problem.dag.nodes)))
    learned_on = lesson(seed=_LEARNED_ON)
    allowed_pct = max(0.0, _limit_pct(problem) - _owed_pct(plan, profile, problem, learned_on))
    limit_pct = max(0.0, plan.slowdown_pct) + allowed_pct
    learned_on = learned_on._replace(slower_pct=limit_pct)
    picked_on = lesson(seed=_PICKED_ON, draws=_MOST_DRAWS)
    taught = learn(learned_on, _begin_s(problem, lasts_s), lasts_s)
    changes = 1 + _affords(plans, plan, changes=CHANGES + 1)
    for sure, seed in zip(_SURE, _JUDGED_ON, strict=True):
        judged_on = lesson(seed=seed, draws=_MOST_DRAWS)
        found = _within(picked_on, taught, limit_pct, sure, changes=changes)
        came = judge(judged_on, found, changes)
        verdict = _verdict(judged_on, came, _fixed(judged_on, problem, plan, lasts_s))
        if verdict.slowdown_pct <= limit_pct:
            pays = verdict.saving_pct >= verdict.without_pct + WORTH_PCT
            if not pays and verdict.without_slowdown_pct <= limit_pct:
                return plans
            most_late_s = judge(learned_on, found, changes).most_late_s
            gave = _Kept(found, changes, most_late_s, verdict)
            return replace(plans, feedback=_feedback(plans, problem, plan, gave))
    return plans


class _PolicyGain(NamedTuple):
    """What a policy saves and by how much longer iterations last, and the plan without, in percent."""

    saving_pct: float
    slowdown_pct: float
    without_pct: float
    without_slowdown_pct: float


def _verdict(lesson: Lesson, corrected: Judged, without: Judged) -> _PolicyGain:
    base_j = _fastest_j(lesson)
    saved_pct, without_pct = (100.0 * (1.0 - one.energy_j / base_j) for one in (corrected, without))
    return _PolicyGain(saved_pct, corrected.slower_pct, without_pct, without.slower_pct)


class _Kept(NamedTuple):
    """A policy, the changes that it makes in a computation, and what was seen of it."""

    found: Weights
    changes: int
    most_late_s: Floats
    verdict: _PolicyGain


def _feedback(plans: PlanSet, problem: PlanProblem, plan: FrequencyPlan, kept: _Kept) -> FeedbackWeights:
    columns, keys, found = problem.columns, list(problem.options), kept.found
    return FeedbackWeights(
        plan=plan.index,
        of=plan_digest(plans, plan.index),
        begin_s=found.begin_s[columns],
        lasts_s=found.lasts_s[columns],
        most_late_s=_BEYOND * kept.most_late_s[columns],
        weights={key: (float(a), float(b)) for key, (a, b) in zip(keys, found.weight, strict=True)},
        options={key: _options(problem, number) for number, key in enumerate(keys)},
        changes=kept.changes,
        **kept.verdict._asdict(),
    )


def _within(lesson: Lesson, found: Weights, limit_pct: float, sure: float, *, changes: int) -> Weights:
    """The same policy on a timeline that is shorter or longer throughout, so that it lasts as it may.

    Descent leaves a policy a little beside the limit that it was learned for. ``sure`` is how many standard
    errors it stays below.

    Cost: nine runs of all draws.
    Source: the Illinois variant of regula falsi (Dowell and Jarratt 1971), after halvings.
    """
    ends, before = {True: (_MOST_SHORTER, -math.inf), False: (-_MOST_SHORTER, math.inf)}, None
    for turn in range(_HALVINGS + _INTERPOLATIONS):
        (shorter, below_pct), (longer, above_pct) = ends[True], ends[False]
        spans_pct = above_pct - below_pct
        known = turn >= _HALVINGS and math.isfinite(spans_pct)
        middle = (shorter * above_pct - longer * below_pct) / spans_pct if known else 0.5 * (shorter + longer)
        came = judge(lesson, _shortened(found, middle), changes)
        beyond_pct = came.slower_pct + sure * came.slower_se_pct - limit_pct
        within = beyond_pct <= 0.0
        if within == before:
            ends[not within] = ends[not within][0], ends[not within][1] / 2.0
        ends[within], before = (middle, beyond_pct), within
    return _shortened(found, ends[True][0])


def _shortened(found: Weights, share: float) -> Weights:
    return found._replace(begin_s=(1.0 - share) * found.begin_s, lasts_s=(1.0 - share) * found.lasts_s)


def _chosen(plans: PlanSet, problem: PlanProblem, objective: Objective) -> FrequencyPlan | None:
    """The plan to learn feedback for; None where feedback is not possible or no plan meets the objective."""
    try:
        plan = select(plans, objective) if _possible(plans, problem) else None
    except InfeasibleError:  # the job says so itself
        return None
    return plan if plan is not None and _affords(plans, plan, changes=CHANGES) else None


def _possible(plans: PlanSet, problem: PlanProblem) -> bool:
    timelines = any(options.timelines for options in plans.options.values())
    varies = problem.variation is not None and any(problem.variation.values())
    return varies and not timelines


def _affords(plans: PlanSet, plan: FrequencyPlan, *, changes: int) -> bool:
    """Whether the budget allows all changes that feedback can make: into every computation, and in it."""
    ranks = range(plans.schedule.ranks)
    most = np.array([[changes * len(plans.computations_of(rank))] for rank in ranks])
    return bool((plans.budget.left(most, np.array([plan.iteration_time_s])) >= 0).all())


def _draws(nodes: int) -> int:
    return int(np.clip(_DRAWN // nodes, _LEAST_DRAWS, _MOST_DRAWS))


def _limit_pct(problem: PlanProblem) -> float:
    assert problem.variation is not None
    varies_pct = 100.0 * float(np.mean(list(problem.variation.values())))
    return float(np.clip(0.1 * varies_pct, LEAST_PCT, MOST_PCT))


def _owed_pct(plan: FrequencyPlan, profile: Profile, problem: PlanProblem, lesson: Lesson) -> float:
    """How much longer iterations may last for the profile's own errors, which no correction knows of."""
    off = time_errors(plan, smoothed(profile), problem.dag, lesson.factor.T, {})
    mean = (off.after_s - off.before_s) / float(lesson.fastest_s.mean())
    return max(0.0, 100.0 * (mean + SURE_OF_PROFILE * off.ratio))


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
