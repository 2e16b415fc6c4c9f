"""Pacing to the longest replica: how slow each may be, by the progress reported at an iteration's marks."""

import math

import numpy as np
import pytest
from straggler_cluster import index

from perseus_ds.straggler import Outlook, ProgressMarks, ReplicaPlans, ReplicaStatus

MARKS = ProgressMarks((-1, 3, 7), (0.0, 0.25, 0.5), (0.1, 0.35, 0.6))
ALONE = ProgressMarks((-1,), (0.0,), (0.1,))
REPLICAS = 4


def outlook(left: list[float], *, elapsed: float = 0.0, error: float = 0.01, by_load: bool = True) -> Outlook:
    """All replicas, in parts of the objective's plan's time."""
    whole_s = index().objective_s
    count = len(left)
    return Outlook(
        np.full(count, elapsed * whole_s),
        whole_s * np.array(left),
        np.full(count, error),
        np.full(count, by_load),
    )


def planned_s(plans: ReplicaPlans) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What the present plans predict for themselves."""
    return index().expected_s[list(plans.plans)]


def begun(marks: ProgressMarks = ALONE, replicas: int = REPLICAS) -> ReplicaPlans:
    plans = ReplicaPlans([index()] * replicas, marks=marks)
    plans.will_run(0)
    return plans


def ran(own_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> ReplicaStatus:
    return ReplicaStatus(own_s, np.zeros(len(own_s), np.bool_), np.ones(len(own_s)))


def test_all_meet_at_the_longest_of_the_iteration() -> None:
    plans, load = begun(), np.array([1.0, 1.1, 1.3, 0.9])
    assert plans.told(0, outlook(load.tolist()))
    takes_s = load * planned_s(plans)
    longest_s = 1.3 * index().objective_s
    assert plans.plans[2] == index().objective
    assert (takes_s <= longest_s).all()
    assert takes_s[[0, 1]] == pytest.approx(longest_s, rel=0.06)


def test_the_next_iteration_begins_at_the_objective_s_plan() -> None:
    plans = begun()
    plans.told(0, outlook([1.0, 1.1, 1.3, 0.9]))
    plans.will_run(1)
    assert set(plans.plans) == {index().objective}


def test_the_margin_is_what_the_error_asks_for() -> None:
    def slowest_s(error: float) -> float:
        plans = begun()
        plans.told(0, outlook([1.0, 1.1, 1.3, 0.9], error=error))
        return float(planned_s(plans)[1])

    assert slowest_s(0.001) > slowest_s(0.01) > slowest_s(0.03)


def test_who_knows_too_little_slows_nobody() -> None:
    plans = begun()
    assert not plans.told(0, outlook([1.0, 1.1, 1.15, 0.95], error=0.15))


@pytest.mark.parametrize("nothing", [math.nan, -1.0, -math.inf, math.inf, 0.0])
def test_one_that_tells_nothing_is_not_slowed_and_the_others_still_are(nothing: float) -> None:
    plans = begun()
    assert plans.told(0, outlook([1.0, nothing, 1.3, 0.9]))
    assert plans.plans[1] == plans.plans[2] == index().objective
    assert index().objective not in (plans.plans[0], plans.plans[3])


@pytest.mark.parametrize("error", [math.nan, -0.01, 0.0, math.inf])
def test_an_error_that_is_none_is_no_knowledge(error: float) -> None:
    assert not begun().told(0, outlook([1.0, 1.1, 1.3, 0.9], error=error))


def test_one_that_alone_tells_something_waits_for_nobody() -> None:
    nan = math.nan
    assert not begun().told(0, outlook([1.0, nan, nan, nan]))


def test_until_the_next_mark_nobody_becomes_so_slow_that_it_could_not_catch_up() -> None:
    """At the end of what it is slowed in, full speed still brings it in time."""
    plans, load = begun(MARKS), np.array([1.0, 1.28, 1.3, 0.9])
    plans.told(0, outlook(load.tolist(), error=0.02))
    slowed = planned_s(plans) / index().objective_s
    assert (load * (1.0 + (slowed - 1.0) * MARKS.until(0)) <= 1.3).all()


def test_late_ones_speed_up_within_the_iteration() -> None:
    plans = begun(MARKS)
    plans.told(0, outlook([1.0, 1.3, 1.3, 0.9]))
    first = plans.plans
    told = outlook([0.75, 0.97, 0.97, 0.67])
    elapsed_s = index().objective_s * np.array([0.55, 0.33, 0.33, 0.33])
    assert plans.told(0, Outlook(elapsed_s, told.left_s, told.error, told.by_load))
    assert plans.plans[0] == index().objective, "it needs all that is left"
    assert plans.plans[3] != index().objective
    assert first[0] != index().objective


def test_without_loads_nobody_is_slowed() -> None:
    assert not begun().told(0, outlook([1.0, 1.1, 1.3, 0.9], by_load=False))


def test_an_iteration_that_was_not_announced_is_not_answered() -> None:
    plans = begun()
    assert not plans.told(7, outlook([1.0, 1.1, 1.3, 0.9]))


def play(
    rounds: int, *, error: float, told: float, seed: int = 0, most_pct: float = 0.2
) -> tuple[float, float, ReplicaPlans]:
    """Iterations of loads that vary by 12 %; return how much longer the job took, and how much plans took."""
    random = np.random.default_rng(seed)
    plans = ReplicaPlans([index()] * 8, marks=ALONE, max_cost_pct=most_pct)
    job = free = slowed = 0.0
    for n in range(rounds):
        plans.will_run(n)
        load = np.exp(0.12 * random.standard_normal(8))
        truth = load * np.exp(error * random.standard_normal(8))
        plans.told(n, outlook(load.tolist(), error=told))
        own_s = truth * planned_s(plans)
        job, free = job + own_s.max(), free + truth.max() * index().objective_s
        slowed += float((planned_s(plans) / index().objective_s).mean())
        plans.observe(n, ran(own_s))
    return 100.0 * (job / free - 1.0), slowed / rounds, plans


def test_nobody_is_called_slow_because_of_its_load() -> None:
    _, _, plans = play(300, error=0.01, told=0.01)
    assert plans.decision is not None
    assert plans.decision.stragglers == ()


def test_the_job_is_hardly_slower() -> None:
    cost_pct, slowed, _ = play(400, error=0.01, told=0.01)
    assert cost_pct <= 0.2
    assert slowed >= 1.1


@pytest.mark.thorough
def test_an_error_told_too_small_is_learned_and_the_bound_holds() -> None:
    cost_pct, slowed, plans = play(1000, error=0.05, told=0.005)
    assert plans.cost_pct <= 0.2
    assert cost_pct <= 0.25, "the measured cost, which knows no truth"
    assert slowed >= 1.02


@pytest.mark.thorough
def test_an_error_told_too_large_is_learned() -> None:
    _, slowed, _ = play(400, error=0.005, told=0.04)
    _, at_once, _ = play(400, error=0.005, told=0.005)
    assert slowed >= 1.0 + 0.8 * (at_once - 1.0)


def test_no_pacing_without_any_room_for_its_cost() -> None:
    cost_pct, _, plans = play(300, error=0.05, told=0.005, most_pct=0.02)
    assert plans.cost_pct <= 0.05
    assert cost_pct <= 0.2


def test_marks_are_as_many_as_there_are_computations() -> None:
    marks = ProgressMarks.of([1.0, 2.0, 3.0, 4.0], 4.0)
    assert marks.after == (-1, 0, 1, 2)
    assert marks.share == (0.0, 0.25, 0.5, 0.75)
    assert marks.answered == (0.25, 0.5, 0.75, 1.0)
    assert ProgressMarks.of([1.0, 4.0], 4.0).after == (-1, 0)
    assert [round(marks.until(mark), 3) for mark in range(4)] == [0.5, 0.667, 1.0, 1.0]


def test_an_iteration_of_unknown_load_judges_nobody_where_loads_are_reported() -> None:
    """The first iterations of a plan run before loads are reported: a light one makes nobody fast."""
    plans = ReplicaPlans([index()] * REPLICAS, marks=ALONE, by_loads=True)
    for n in range(3):
        plans.will_run(n)
        if n == 2:
            plans.told(n, outlook([1.0, 1.1, 1.3, 0.9]))
            assert (planned_s(plans) * [1.0, 1.1, 1.3, 0.9] <= 1.3 * index().objective_s).all()
        plans.observe(n, ran(np.array([0.7, 1.0, 1.0, 1.0]) * index().objective_s))


def test_a_straggler_is_found_all_the_same_where_loads_are_missing_for_long() -> None:
    plans = ReplicaPlans([index()] * REPLICAS, marks=ALONE, by_loads=True)
    slowed = np.array([1.0, 1.3, 1.0, 1.0])
    for n in range(60):
        plans.will_run(n)
        plans.observe(n, ran((slowed if n >= 20 else 1.0) * planned_s(plans)))
    assert plans.decision is not None
    assert [one.replica for one in plans.decision.stragglers] == [1]
