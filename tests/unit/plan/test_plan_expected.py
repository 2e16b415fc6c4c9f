"""Time and energy of a plan when clocks change as they do, by hand; errors of the profile and the saving."""

from dataclasses import replace

import numpy as np
import pytest
from schedules import two_plans
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import FrequencyPlan, PlanSet, build
from perseus_ds.plan.expected import EntryError, expected, few_clocks, profile_error
from perseus_ds.plan.file import dumps, loads
from perseus_ds.plan.frontier import fastest
from perseus_ds.plan.problem import FREE, PlanProblem, problem_of
from perseus_ds.plan.record import Expected, Options, Segment, baseline_of
from perseus_ds.plan.reserve import margins_s
from perseus_ds.plan.select import with_plan_at
from perseus_ds.profile import Point, Profile, smooth
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile
from perseus_ds.solver.problem import blend

TWO = two_plans()
FORWARD, BACKWARD = (TWO.options[0, kind] for kind in (Kind.FORWARD, Kind.BACKWARD))
SAME = {1400: 50.0, 1000: 50.0}
BY_CLOCK = {1400: 60.0, 1000: 40.0}
HALF_A_SECOND = ClockChange(0.0, 0.5, 0.5)
BASELINE_J = 1600.0


def plan_of(choice: list[int], iteration_time_s: float, computed_j: float) -> FrequencyPlan:
    """0F, 0B, 1F, 1B at their first or second clock."""
    tables = FORWARD, BACKWARD, FORWARD, BACKWARD
    busy_s = sum(float(table.time_s[option]) for table, option in zip(tables, choice, strict=True))
    return replace(
        TWO,
        iteration_time_s=np.array([iteration_time_s]),
        effective_energy_j=np.array([computed_j - 50.0 * busy_s]),
        choice=np.array([choice], np.uint8),
    ).plan(0)


# 0F 0-1 at 1400 | 1F 1-2.4, 1B 2.4-5.2, 0B 5.2-8 at 1000 MHz
WITH_A_WAIT = plan_of([0, 1, 1, 1], 8.0, 1200.0)
# 0F 0-1, 1F 1-2 at 1400 | 1B 2-4.8, 0B 4.8-7.6 at 1000 MHz
WITHOUT_A_WAIT = plan_of([0, 1, 0, 1], 7.6, 1240.0)
RESERVED = replace(WITH_A_WAIT.of, iteration_time_s=np.array([8.07]), reserve_pct=1.0).plan(0)


def profile_of(plan: FrequencyPlan, waiting_w: dict[int, float]) -> Profile:
    points = {
        key: tuple(map(Point, own.clock_mhz.tolist(), own.time_s.tolist(), own.energy_j.tolist()))
        for key, own in plan.of.options.items()
    }
    return Profile(points, blocking_w=waiting_w)


def expected_j(plan: FrequencyPlan, change: ClockChange, waiting_w: dict[int, float]) -> float:
    saving_pct = expected(plan, profile_of(plan, waiting_w), change).saving_pct
    return BASELINE_J * (1.0 - saving_pct / 100.0)


@pytest.mark.parametrize(
    ("plan", "change", "waiting_w", "wanted_j"),
    [
        # free changes and one power of waiting: the plan's own
        (WITH_A_WAIT, ClockChange(), SAME, 1600.0),
        (WITHOUT_A_WAIT, ClockChange(), SAME, WITHOUT_A_WAIT.energy_j),
        # a GPU waits at the clock of what follows: rank 0 for 4.2 s, rank 1 for 3.8 s, both at 1000 MHz
        (WITH_A_WAIT, ClockChange(), BY_CLOCK, 1200 + 8.0 * 40),
        # a clock that was not profiled waits like the nearest one
        (WITH_A_WAIT, ClockChange(), {1395: 60.0, 990: 40.0}, 1200 + 8.0 * 40),
        # half a second of rank 0's wait is spent at 1400 MHz; the way up is asked for ahead
        (WITH_A_WAIT, HALF_A_SECOND, BY_CLOCK, 1200 + 7.5 * 40 + 0.5 * 60),
        # of 1B 0.02 s is run at 1400 MHz, a hundredth of its work: it ends at 4.792 s, 0B at 7.592 s
        (
            WITHOUT_A_WAIT,
            HALF_A_SECOND,
            BY_CLOCK,
            (220 + 0.5 * 60 + 3.292 * 40 + 400)
            + (220 + 0.01 * 430 + 0.99 * 400 + 0.5 * 40 + 2.3 * 60 + 1.0 * 60),
        ),
        # nobody waits for the end of the reserve
        (RESERVED, ClockChange(), BY_CLOCK, 1200 + 8.0 * 40),
    ],
)
def test_what_a_plan_takes(
    plan: FrequencyPlan, change: ClockChange, waiting_w: dict[int, float], wanted_j: float
) -> None:
    assert expected_j(plan, change, waiting_w) == pytest.approx(wanted_j)


LINE = ((1400, 810), 0.6), ((1000, 405), 0.8)


def behind_timelines(spared_w: dict[int, float]) -> FrequencyPlan:
    """As the plan with a wait, but 0B and 1B run along a timeline that ends at 405 MHz of memory."""
    line = tuple(Segment(clock, memory, share * 2.8 / 1.4) for (clock, memory), share in LINE)
    time_s, energy_j = np.append(BACKWARD.time_s, 2.8), np.append(BACKWARD.energy_j, 300.0)
    backward = replace(BACKWARD, time_s=time_s, energy_j=energy_j, timelines=(line,), spared_w=spared_w)
    plans = WITH_A_WAIT.of
    options = {key: backward if key[1] is Kind.BACKWARD else one for key, one in plans.options.items()}
    return replace(plans, options=options, choice=np.array([[0, 2, 1, 2]], np.uint8)).plan(0)


def test_behind_timelines_a_gpu_waits_at_their_memory_clock_and_begins_late() -> None:
    """Rank 0 waits 4.2 s for 0B at 1400 and 810 MHz; rank 1 3.8 s, 1 s before and 2.8 s behind, for 1F.

    For 2 % of 1.2 s both are still at 810 MHz where 405 MHz are planned. Where a change lasts half a second
    1F lasts 1.4 s, 1B's clocks are in force 0.028 s after it: 0.028 / 2.8 was done at 1000 MHz.
    """
    own = expected_j(behind_timelines({}), ClockChange(), BY_CLOCK)
    spared = expected_j(behind_timelines({810: 10.0, 405: 20.0}), ClockChange(), BY_CLOCK)
    assert own - spared == pytest.approx(4.2 * 10.0 - 2 * 0.024 * 10.0)
    late = expected_j(behind_timelines({}), HALF_A_SECOND, SAME)
    on_time = expected_j(behind_timelines({}), ClockChange(), SAME)
    guard_j = 0.024 * (430.0 / 2.0 - 400.0 / 2.8)
    assert late - on_time == pytest.approx((400.0 - 300.0 - guard_j) * 0.028 / 2.8)


def test_a_cooler_gpu_leaks_less() -> None:
    """1 600 J in 6 s are 266.7 W, 1 600 J in 8 s 200 W: of 66.7 W both leak a tenth less, and that too."""
    cool = replace(profile_of(WITH_A_WAIT, SAME), leakage=0.1)
    spared_j = 8.0 * 0.1 * (1600 / 6 - 1600 / 8) / 0.9
    found = expected(WITH_A_WAIT, cool, ClockChange())
    assert BASELINE_J * (1.0 - found.saving_pct / 100.0) == pytest.approx(1600.0 - spared_j)


def test_a_cooler_gpu_leaks_less_behind_timelines_of_one_temperature_alone() -> None:
    plan = behind_timelines({})
    leaking = replace(profile_of(plan, SAME), leakage=0.03)
    options = {key: replace(one, leaks_alike=True) for key, one in plan.of.options.items()}
    alike = replace(plan.of, options=options).plan(0)
    cool, warm = (expected(one, leaking, ClockChange()).saving_pct for one in (plan, alike))
    assert cool == expected(plan, profile_of(plan, SAME), ClockChange()).saving_pct
    took = 1.0 - cool / 100.0
    times = 8.0 / 6.0
    assert warm - cool == pytest.approx(100.0 * times * 0.03 / 0.97 * (1.0 - took / times), rel=0.02)


VARY = dict.fromkeys(((stage, kind) for stage in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)), 0.02)


def test_what_varies_makes_a_plan_without_slack_last_longer() -> None:
    """Stage 0 computes 3.0 s a microbatch, as stage 1; else it waits for half of it."""
    light = Options(np.array([1400, 1000]), np.array([0.5, 1.0]), np.array([110.0, 90.0]))
    half = Options(np.array([1400, 1000]), np.array([1.0, 2.0]), np.array([215.0, 200.0]))
    options = dict(zip(VARY, (light, half, FORWARD, BACKWARD), strict=True))
    plans = replace(WITH_A_WAIT.of, schedule=textbook("1f1b", stages=2, microbatches=3), options=options)
    choice = np.array([[0, 0, 1, 1, 1, 0] + [0] * 6], np.uint8)
    full = replace(plans, choice=choice, iteration_time_s=np.array([10.5])).plan(0)
    known = profile_of(full, SAME)
    still = expected(full, known, ClockChange())
    varied = expected(full, known, ClockChange(), variation=VARY)
    beside = expected(full, known, ClockChange(), variation=VARY, replicas=8)
    sized = expected(full, replace(known, size_variation=0.3), ClockChange(), variation=VARY)
    assert varied.slowdown_pct > still.slowdown_pct + 0.01
    assert beside.slowdown_pct > still.slowdown_pct
    assert sized.slowdown_pct > varied.slowdown_pct + 0.3


def of_unsure(plan: FrequencyPlan, key: tuple[int, Kind], option: int, **errors: float) -> Expected:
    """What is expected where one point is known to these errors."""
    profile = profile_of(plan, SAME)
    points = list(profile.points[key])
    points[option] = replace(points[option], **errors)
    return expected(plan, replace(profile, points={**profile.points, key: tuple(points)}), ClockChange())


def test_the_interval_is_that_of_the_energies_that_either_side_runs() -> None:
    """One point is unsure: 0F at 1400 MHz runs once on both sides, which take alike, and cancels."""
    left_out = 1.96 * 0.05
    within = [(1.96**2 + left_out**2) ** 0.5] * 2 + [left_out]
    unsure = ((1, Kind.BACKWARD), 1), ((1, Kind.BACKWARD), 0), ((0, Kind.FORWARD), 0)
    found = [of_unsure(WITH_A_WAIT, *one, energy_se_j=16.0).within_pct for one in unsure]
    assert found == pytest.approx(within)


@pytest.mark.parametrize(
    ("key", "option", "error_pct"),
    [
        ((1, Kind.BACKWARD), 1, 2.8 / 6.0),  # runs in the plan alone
        ((1, Kind.BACKWARD), 0, 8.0 * 2.0 / 36.0),  # in the baseline alone
        ((0, Kind.FORWARD), 0, 8.0 / 36.0 - 1.0 / 6.0),  # in both: most of it cancels
        ((0, Kind.FORWARD), 1, 0.0),  # in neither
    ],
)
def test_time_is_as_sure_as_the_longest_path(key: tuple[int, Kind], option: int, error_pct: float) -> None:
    """8 s where 6 s were, and one of their durations is known to 1 %."""
    time_se_s = 0.01 * float(WITH_A_WAIT.of.options[key].time_s[option])
    found = of_unsure(WITH_A_WAIT, key, option, time_se_s=time_se_s)
    assert found.slowdown_within_pct == pytest.approx(1.96 * (error_pct**2 + 0.04**2) ** 0.5, rel=0.15)
    assert found.slowdown_pct == pytest.approx(100.0 * (8.0 / 6.0 - 1.0), abs=0.15)


def test_of_two_paths_as_long_one_is_longer() -> None:
    """Where 0B0 is slowed to 3 s, 1F1 and 1B1 beside it take 3 s too: both ways 9 s.

    An error of s in 0B0 makes that s / sqrt(2 pi) longer on average.
    """
    slow = replace(BACKWARD, time_s=np.array([2.0, 3.0]))
    plans = replace(WITH_A_WAIT.of, schedule=textbook("1f1b", stages=2, microbatches=2))
    options = {**plans.options, (0, Kind.BACKWARD): slow}
    choice = np.array([[0, 0, 1, 0, 0, 0, 0, 0]], np.uint8)
    plan = replace(plans, options=options, choice=choice, iteration_time_s=np.array([9.0])).plan(0)
    unsure, sure = (of_unsure(plan, (0, Kind.BACKWARD), 1, time_se_s=error_s) for error_s in (0.3, 0.0))
    assert unsure.slowdown_pct == pytest.approx(100.0 * 0.3 / (2 * np.pi) ** 0.5 / 9.0, rel=0.2)
    assert sure.slowdown_pct == pytest.approx(0.0)


def test_few_executions_are_known_as_all_clocks_say_that_they_vary() -> None:
    """Two of each, alike by chance; 2 % is how they vary: the error of a mean of two is 1.4 %."""
    profile = profile_of(WITH_A_WAIT, SAME)
    twice = {key: tuple(replace(one, samples=2) for one in own) for key, own in profile.points.items()}
    found = expected(WITH_A_WAIT, replace(profile, points=twice), ClockChange(), variation=VARY)
    after_s, before_s = (1.4, 2.8, 2.8), (1.0, 2.0, 2.0)  # 1F, 1B, 0B; 0F runs at one clock in both
    variance = sum((one / 6.0) ** 2 for one in after_s) + sum((8.0 * one / 36.0) ** 2 for one in before_s)
    assert found.slowdown_within_pct == pytest.approx(1.96 * 1.414 * variance**0.5, rel=0.15)


# Errors of a profile: seen in its standard errors, else in the scatter of its points; what they cost.

SCHEDULE = textbook("1f1b", stages=8, microbatches=12)


def few(clocks: int, known: Profile) -> Profile:
    """The same profile at so many of its clocks, spread over them all."""
    kept = np.linspace(0, len(known.clocks_mhz) - 1, clocks).round().astype(int)
    return replace(known, points={key: tuple(known.of(*key)[at] for at in kept) for key in known.points})


def off_by(share: float, *, told: bool = False, clocks: int = 38, seed: int = 11) -> Profile:
    """The simulated A100's profile with errors of that size in each of its 38 x 16 times and energies."""
    known, draw = few(clocks, gpt3_profile()), np.random.default_rng(seed)

    def wrong(point: Point) -> Point:
        time_s, energy_j = np.array([point.time_s, point.energy_j]) * (1.0 + share * draw.standard_normal(2))
        stated = share if told else 0.0
        errors = {"time_se_s": stated * point.time_s, "energy_se_j": stated * point.energy_j}
        return replace(point, time_s=time_s, energy_j=energy_j, **errors)

    return replace(known, points={key: tuple(map(wrong, own)) for key, own in known.points.items()})


def error_of(profile: Profile) -> EntryError | None:
    """Return the error of a profile as `perseus-ds plan` finds it: points are drawn to their curves first."""
    known = smooth(profile, scatter=True)
    return profile_error(known, build(known, SCHEDULE, blocking_power_w=BLOCKING_POWER_W))


def truly_slower_pct(true: PlanProblem, believed: Profile) -> float:
    """Return the slowdown, in truth, of the plan that loses no time by a believed profile."""

    def highest_s(problem: PlanProblem) -> float:
        return baseline_of(problem.schedule, problem.options, problem.fixed_s, 0.0).iteration_time_s

    planned = problem_of(believed, SCHEDULE, BLOCKING_POWER_W).with_margins(margins_s(believed))
    plans = fastest(planned, FREE, also_s=highest_s(planned))
    within = plans.time_s <= max(highest_s(planned), plans.time_s[0]) * (1.0 + 1e-9)
    plan = plans.at(np.flatnonzero(within)[-1:].astype(np.int32))
    lasts_s = blend(true.activities, plan.choice, plan.other, plan.share)[0][0]
    starts_s = true.dag.earliest_starts(lasts_s.tolist(), true.fixed_s)
    return 100.0 * (float((np.array(starts_s) + lasts_s).max()) / highest_s(true) - 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("share", "most_pct"), [(0.005, 0.1), (0.02, 0.3)])
def test_errors_are_seen_and_what_they_still_cost(share: float, most_pct: float, *, told: bool) -> None:
    """Averaged out over neighbouring clocks, and with a margin, they cost little; more errors cost more."""
    found = error_of(off_by(share, told=told))
    assert found.measured
    assert 0.1 < found.time_pct / (100.0 * share) < 0.6
    assert found.slowdown_pct is not None
    assert 0.2 * most_pct < found.slowdown_pct < 1.3 * most_pct


def test_exact_profiles_and_stated_errors_are_not_doubted_and_three_points_show_no_scatter() -> None:
    found = error_of(gpt3_profile())
    assert found.time_pct < 0.02
    assert found.slowdown_pct is None
    assert not found.matters
    assert few_clocks(few(6, gpt3_profile())) is None
    assert few_clocks(off_by(0.02, told=True, clocks=5)) is None
    assert error_of(few(3, gpt3_profile())) is None
    doubt = few_clocks(few(3, gpt3_profile()))
    assert (doubt.clocks, doubt.scatter_pct) == (3, None)


@pytest.mark.parametrize("clocks", [4, 5, 6])
def test_few_clocks_with_errors_are_doubted_and_planned_with_a_margin(clocks: int) -> None:
    """Believed as they are, the plan that loses no time loses 1 to 1.7 % on average at 2 % of error."""
    true = problem_of(few(clocks, gpt3_profile()), SCHEDULE, BLOCKING_POWER_W)
    slower_pct = []
    for seed in range(4):
        read = off_by(0.02, clocks=clocks, seed=seed)
        doubt = few_clocks(read)
        assert doubt.scatter_pct is not None
        assert 1.0 < doubt.scatter_pct < 4.0
        slower_pct.append(truly_slower_pct(true, smooth(read, scatter=True)))
    assert np.mean(slower_pct) < 0.5


# How sure a plan's saving is: held against profiles drawn with the same errors.

DRAWS = 2000


def known_to(share: float) -> Profile:
    """Two stages whose times and energies are known to so much."""

    def stated(point: Point) -> Point:
        return replace(point, time_se_s=share * point.time_s, energy_se_j=share * point.energy_j)

    known = textbook_profile([1.0, 1.15])
    return replace(known, points={key: tuple(map(stated, own[::3])) for key, own in known.points.items()})


def plans_of(profile: Profile) -> PlanSet:
    return build(profile, textbook("1f1b", stages=2, microbatches=4), blocking_power_w=70.0)


@pytest.fixture(scope="module")
def known() -> Profile:
    return smooth(known_to(0.01))


@pytest.fixture(scope="module")
def plans(known: Profile) -> PlanSet:
    return plans_of(known)


def within_by_draws_pct(plans: PlanSet, index: int, known: Profile) -> float:
    """Price one plan and its baseline with energies drawn as the curves' errors state."""
    draw, portions = np.random.default_rng(0), plans.plan(index).portions()
    off_j = {
        key: (errors.energy @ draw.standard_normal((len(known.of(*key)), DRAWS)))
        * np.array([[point.energy_j] for point in known.of(*key)])
        for key, errors in known.errors.items()
    }
    before_j, after_j = np.full(DRAWS, plans.baseline.energy_j), np.full(DRAWS, plans.energy_j[index])
    for instruction, parts in portions.items():
        own_j = off_j[instruction.stage, instruction.kind]
        before_j += own_j[0]
        after_j += sum(share * own_j[option] for option, share in parts)
    return float(196.0 * (1.0 - after_j / before_j).std())


def test_as_wide_as_drawn_profiles_scatter(plans: PlanSet, known: Profile) -> None:
    within_pct = plans.saving_within_pct
    for index in (0, len(plans) // 2, len(plans) - 1):
        assert within_pct[index] == pytest.approx(within_by_draws_pct(plans, index, known), rel=0.08)
    assert plans_of(known_to(0.0)).saving_within_pct is None


def test_is_kept_where_plans_are_added_and_written(plans: PlanSet) -> None:
    at = len(plans) // 2
    more = with_plan_at(plans, float(plans.iteration_time_s[at : at + 2].mean()))
    kept, before = loads(dumps(more)).saving_within_pct, plans.saving_within_pct
    assert np.delete(kept, at + 1).tolist() == before.tolist()
    assert min(kept[at], kept[at + 2]) <= kept[at + 1] <= max(kept[at], kept[at + 2])
