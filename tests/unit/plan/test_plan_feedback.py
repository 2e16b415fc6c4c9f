"""Feedback: learned by descent, kept where it pays on other draws, nothing without noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanFormatError
from perseus_ds.files.digest import KEY, digest_of
from perseus_ds.plan import PlanSet, build, clock_requests, dumps, loads, select
from perseus_ds.plan.between import with_plan_at
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.feedback.course import FEATURES, course_of, curves_of
from perseus_ds.plan.feedback.kernel import Gradient, Weights, learned
from perseus_ds.plan.feedback.made import CHANGES, with_feedback
from perseus_ds.plan.feedback.policy import ClockAnswer, plan_digest, tables_of
from perseus_ds.plan.playing.expected import expected
from perseus_ds.plan.solving.problem import problem_of
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Disturbance, Emulator
from perseus_ds.simulation.emulator.disturbance import Trouble
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile

Floats = NDArray[np.float64]

NOISE = 0.02
LATENCY = ClockChange(0.005, 0.005, 0.005)
ITERATIONS = 60
WHOLE_S = 2e-4
"""What a change that would come just before the end is left out for, and a clock's step in one latency."""


def varying(share: float) -> Profile:
    profile = gpt3_profile()
    points = {
        key: tuple(replace(point, time_sd_s=share * point.time_s) for point in own)
        for key, own in profile.points.items()
    }
    return replace(profile, points=points)


def planned(profile: Profile, *, microbatches: int = 12) -> PlanSet:
    return build(
        profile,
        textbook("1f1b", stages=profile.stages, microbatches=microbatches),
        blocking_power_w=BLOCKING_POWER_W,
        reserve_pct="auto",
        switching=Switching(change=LATENCY),
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    return varying(NOISE)


@pytest.fixture(scope="module")
def plans(profile: Profile) -> PlanSet:
    made = with_feedback(planned(profile), profile)
    assert made.feedback is not None
    return made


def played(
    plans: PlanSet, profile: Profile, troubles: tuple[Disturbance, ...] = (), seed: int = 71
) -> tuple[float, float]:
    """Energy and time of all iterations but the first, over those at default clocks."""
    cluster = ClusterShape(change=LATENCY, waiting_w=BLOCKING_POWER_W)
    emulator = Emulator(plans, profile, cluster, conditions=Conditions(noise=NOISE, seed=seed))
    index = select(plans, Objective()).index
    ours, default = (
        emulator.play(ITERATIONS, troubles, answered=False, always=plan) for plan in (index, DEFAULT_CLOCKS)
    )
    return (
        float(ours.energy_j[1:].sum() / default.energy_j[1:].sum()),
        float(ours.job_s[1:].sum() / default.job_s[1:].sum()),
    )


def lasting_s(plans: PlanSet, profile: Profile, troubles: tuple[Disturbance, ...]) -> Floats:
    """How long 200 iterations last, with the same draws whatever happens."""
    cluster = ClusterShape(change=LATENCY, waiting_w=BLOCKING_POWER_W)
    emulator = Emulator(plans, profile, cluster, conditions=Conditions(noise=NOISE, seed=71))
    return emulator.play(200, troubles, answered=False, always=select(plans, Objective()).index).job_s


def test_the_gradient_is_that_of_the_mean_cost() -> None:
    problem = problem_of(varying(NOISE), textbook("1f1b", stages=8, microbatches=3), BLOCKING_POWER_W)
    course, curves, price_w, latency_s = course_of(problem), curves_of(problem), 5000.0, 0.0
    random = np.random.default_rng(3)
    nodes, tables = len(course.order), len(curves.first) - 1
    factor = 1.0 + NOISE * random.standard_normal((5, nodes))
    middle_s = np.array([np.mean(curves.duration_s[a:b]) for a, b in pairwise(curves.first)])[course.table]
    begin_s = problem.dag.starts_of_many(middle_s[:, None].copy(), problem.fixed_s)[:, 0]
    weights = Weights(begin_s, middle_s, 0.1 * random.standard_normal((tables, FEATURES)))

    def cost_j(weights: Weights, gradient: Gradient) -> float:
        spent_j, time_s = learned(course, curves, weights, factor, latency_s, price_w, gradient)
        return spent_j + price_w * time_s

    gradient = Gradient(np.zeros(nodes), np.zeros((tables, FEATURES)))
    cost_j(weights, gradient)
    for of_lasts, of_weight in [(1e-7, 0.0), (0.0, 1e-5)]:
        ways = (
            random.standard_normal(nodes) * of_lasts,
            random.standard_normal((tables, FEATURES)) * of_weight,
        )
        ends = [
            cost_j(
                Weights(begin_s, middle_s + sign * ways[0], weights.weight + sign * ways[1]),
                Gradient(np.zeros(nodes), np.zeros((tables, FEATURES))),
            )
            for sign in (1.0, -1.0)
        ]
        along = float((gradient.lasts_s * ways[0]).sum() + (gradient.weight * ways[1]).sum()) / len(factor)
        assert (ends[0] - ends[1]) / 2.0 == pytest.approx(along, rel=0.02)


@pytest.mark.thorough
def test_feedback_saves_a_point_more_on_draws_of_other_seeds(plans: PlanSet, profile: Profile) -> None:
    (with_j, with_s), (without_j, _) = (
        played(one, profile) for one in (plans, replace(plans, feedback=None))
    )
    assert 100.0 * (without_j - with_j) > 1.0
    assert with_s < 1.0 + NOISE / 10.0 + 0.0005, "0.0005 is what 60 iterations are off by"


@pytest.mark.thorough
def test_what_is_kept_lasts_no_longer_than_a_tenth_of_what_varies(plans: PlanSet) -> None:
    assert plans.feedback is not None
    assert plans.feedback.slowdown_pct <= 100.0 * NOISE / 10.0


def test_what_is_kept_uses_the_time_that_it_may(plans: PlanSet) -> None:
    """However far beside its limit descent left it."""
    assert plans.feedback is not None
    assert plans.feedback.slowdown_pct >= 0.8 * 100.0 * NOISE / 10.0


@pytest.mark.thorough
def test_without_noise_the_plans_are_the_same_to_the_last_digit() -> None:
    for share in (0.0, None):
        profile = gpt3_profile() if share is None else varying(share)
        made = planned(profile)
        assert dumps(with_feedback(made, profile)) == dumps(made)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("budget", "changes"),
    [
        (ChangeBudget(4.0), None),
        (ChangeBudget(per_node_per_s=100.0), None),
        (ChangeBudget(20.0, per_node_per_s=150.0), 1),
        (ChangeBudget(100.0), 2),
    ],
)
def test_a_budget_is_kept_by_as_many_corrections_as_it_allows(
    plans: PlanSet, profile: Profile, budget: ChangeBudget, changes: int | None
) -> None:
    """A correction is one change or two, and what was asked for ahead is one."""
    within = with_feedback(replace(plans, feedback=None, budget=budget), profile)
    assert (None if within.feedback is None else within.feedback.changes) == changes


def test_corrections_and_what_is_asked_for_ahead_stay_below_three_changes_a_computation(
    plans: PlanSet, profile: Profile
) -> None:
    """Even beside a stage that is late on and off, where every computation is corrected."""
    late = [Disturbance(Trouble.SLOW, 0, 1.1, rank=3, first=n, last=n + 1) for n in range(5, 15, 2)]
    cluster = ClusterShape(change=LATENCY, waiting_w=BLOCKING_POWER_W)
    ran = Emulator(plans, profile, cluster, conditions=Conditions(noise=NOISE, seed=3)).play(
        20, late, answered=False, always=0
    )
    assert ran.changes.max() <= (CHANGES + 1) * sum(len(plans.computations_of(rank)) for rank in range(8))


def test_every_clock_is_asked_for_ahead_though_the_one_before_is_the_same(plans: PlanSet) -> None:
    """The one before may have been corrected, and would go on until the next correction is in force."""
    same = 0
    for rank in range(8):
        tables = tables_of(plans, rank, 0)
        assert tables is not None
        ahead = [table.ahead_mhz for table in tables]
        requests = clock_requests(plans.plan(0), rank, LATENCY, tables=tables)
        assert [one.clock_mhz for one in requests] == [*ahead[1:], ahead[0]]
        same += sum(first == then for first, then in pairwise(ahead))
    assert same > 0


@pytest.mark.thorough
def test_errors_of_the_profile_have_their_part_of_the_time_first(plans: PlanSet, profile: Profile) -> None:
    """What a job expects and one standard error of it stay within what iterations may last longer."""
    points = {
        key: tuple(replace(point, time_se_s=0.02 * point.time_s, samples=12) for point in own)
        for key, own in profile.points.items()
    }
    unsure = replace(profile, points=points, blocking_w={1410: BLOCKING_POWER_W})
    made = with_feedback(planned(unsure), unsure)
    assert made.feedback is not None
    assert plans.feedback is not None
    assert made.feedback.slowdown_pct < plans.feedback.slowdown_pct - 0.005
    hope = expected(select(made, Objective()), unsure, LATENCY, variation=unsure.variation())
    one_error_pct = hope.slowdown_within_pct / 2.0
    assert hope.slowdown_pct + one_error_pct <= 100.0 * NOISE / 10.0 + 0.02, "it has other errors too: 0.02"


@pytest.mark.thorough
def test_equal_stages_do_not_make_each_other_ever_later() -> None:
    """Every stage is the bottleneck for long: the descent ran away, and half of the saving was lost."""
    first = varying(NOISE)
    points = {(stage, kind): first.points[0, kind] for stage in range(4) for _, kind in first.points}
    equal = replace(first, points=points)
    made = with_feedback(planned(equal, microbatches=32), equal)
    assert made.feedback is not None
    assert made.feedback.saving_pct > made.feedback.without_pct + 0.5


def test_a_file_from_before_two_clocks_corrects_by_one_change(plans: PlanSet) -> None:
    content = json.loads(dumps(plans))
    del content["feedback"]["changes"]
    content[KEY] = digest_of(content)
    before = loads(json.dumps(content)).feedback
    assert before is not None
    assert before.changes == 1


def test_a_file_keeps_feedback(plans: PlanSet) -> None:
    again = loads(dumps(plans))
    assert again.feedback is not None
    assert dumps(again) == dumps(plans)


@pytest.mark.thorough
def test_a_plan_put_before_it_leaves_feedback_with_its_own(plans: PlanSet, profile: Profile) -> None:
    later = with_feedback(plans, profile, Objective("max_slowdown", max_slowdown_pct=5.0))
    assert later.feedback is not None
    assert later.feedback.plan > 1
    more = with_plan_at(later, float(later.iteration_time_s[:2].mean()))
    assert len(more) == len(later) + 1
    assert more.feedback is not None
    assert plan_digest(more, more.feedback.plan) == later.feedback.of


def test_feedback_of_another_plan_is_refused_by_both_digests(plans: PlanSet) -> None:
    content = json.loads(dumps(plans))
    own = content["feedback"]["of"]
    content["feedback"]["of"] = "0123456789abcdef"
    content[KEY] = digest_of(content)
    with pytest.raises(PlanFormatError, match=f"of plan 0123456789abcdef, plan 0 here is {own}"):
        loads(json.dumps(content))


def test_the_later_the_faster_and_the_plans_own_clock_where_nothing_is_known(plans: PlanSet) -> None:
    for rank in range(8):
        tables = tables_of(plans, rank, 0)
        assert tables is not None
        for table in tables:
            weighted_s = np.linspace(table.above_s[0] - 0.01, table.above_s[-1] + 0.01, 7)
            alone = table._replace(weights=(1.0, 0.0), most_late_s=math.inf)
            clocks = [alone.decide(late_s, 0.0).then_mhz for late_s in weighted_s]
            assert clocks == sorted(clocks)
            assert clocks[0] == table.then_mhz[0]
            assert clocks[-1] == table.then_mhz[-1]
            for late_s, before_s in [(math.nan, 0.0), (0.0, math.nan), (2.0 * table.most_late_s + 1.0, 0.0)]:
                assert table.decide(late_s, before_s) == ClockAnswer(table.own_mhz, table.own_mhz)


@pytest.mark.parametrize("changes", [1, 2])
def test_a_computation_that_changes_its_clock_on_the_way_ends_when_it_is_to(
    plans: PlanSet, changes: int
) -> None:
    """At the clock asked for ahead until others are in force, for any lateness that clocks make up for."""
    assert plans.feedback is not None
    changed, plans = 0, replace(plans, feedback=replace(plans.feedback, changes=changes))
    for rank in range(8):
        tables = tables_of(plans, rank, 0)
        assert tables is not None
        for (_, instruction), table in zip(plans.computations_of(rank), tables, strict=True):
            options = plans.options[instruction.stage, instruction.kind]
            time_s = dict(zip(options.clock_mhz.tolist(), options.time_s.tolist(), strict=True))
            most_s = table.above_s[-1] - table.above_s[0]
            alone = table._replace(weights=(1.0, 0.0), most_late_s=math.inf)
            for late_s in np.linspace(table.above_s[0] - most_s, table.above_s[-1] + most_s, 60):
                answer, ahead_s = alone.decide(float(late_s), 0.0), time_s[table.ahead_mhz]
                before, first_s = LATENCY.longest_s / ahead_s, time_s[answer.first_mhz]
                rest = 1.0 - before - answer.after_s / first_s
                assert rest > 0.0
                assert answer.first_mhz == table.ahead_mhz or answer.first_mhz <= answer.then_mhz
                lasts_s = LATENCY.longest_s + answer.after_s + rest * time_s[answer.then_mhz]
                assert lasts_s == pytest.approx(table.lasts_s + answer.later_s, abs=WHOLE_S)
                changed += answer.after_s > 0.0
    assert changed > 0


@pytest.mark.thorough
def test_what_is_drawn_is_what_the_emulator_runs(plans: PlanSet, profile: Profile) -> None:
    assert plans.feedback is not None
    with_j, with_s = played(plans, profile)
    assert 100.0 * (1.0 - with_j) == pytest.approx(plans.feedback.saving_pct, abs=0.15)
    assert 100.0 * (with_s - 1.0) == pytest.approx(plans.feedback.slowdown_pct, abs=0.05)


TROUBLES = pytest.mark.parametrize(
    "trouble",
    [
        Disturbance(Trouble.SLOW, 0, 1.5, rank=3, first=20, last=21),
        Disturbance(Trouble.SLOW, 0, 1.1, rank=3, first=20),
        Disturbance(Trouble.SLOW, 0, 1.3, rank=3),
        Disturbance(Trouble.LINK, 0, 0.005, rank=3),
        Disturbance(Trouble.INPUT, 0, 0.5, first=20, last=21),
    ],
    ids=["impulse", "step", "straggling stage", "a rank always late", "an iteration that starts late"],
)


@pytest.mark.thorough
@TROUBLES
def test_troubles_cost_no_more_time_with_feedback(
    plans: PlanSet, profile: Profile, trouble: Disturbance
) -> None:
    (_, with_s), (_, without_s) = (
        played(one, profile, (trouble,)) for one in (plans, replace(plans, feedback=None))
    )
    assert with_s - without_s < 0.0015


@pytest.fixture(scope="module")
def calm_s(plans: PlanSet, profile: Profile) -> Floats:
    return lasting_s(plans, profile, ())


@pytest.mark.thorough
@TROUBLES
def test_troubles_set_nothing_swinging(
    plans: PlanSet, profile: Profile, calm_s: Floats, trouble: Disturbance
) -> None:
    """What is over leaves nothing behind; of what stays no iteration answers the one before."""
    with_s, without_s = (
        lasting_s(one, profile, (trouble,)) for one in (plans, replace(plans, feedback=None))
    )
    settled = slice(22, None)
    if trouble.last is not None:
        assert with_s[20] > 1.1 * calm_s[20]
        np.testing.assert_allclose(with_s[trouble.last :], calm_s[trouble.last :], rtol=1e-9)
    assert with_s[settled].std() <= 1.05 * without_s[settled].std(), "iterations scatter no more than without"
    off_s = with_s[settled] - with_s[settled].mean()
    assert abs(off_s[1:] @ off_s[:-1]) < 0.2 * (off_s @ off_s), "0.2 is 2.7 standard errors of 178 iterations"
