"""Pacing to the longest replica: how slow each may be, and who is behind its plan."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from stragglers import index

from perseus_ds.straggler.controller import ReplicaStatus
from perseus_ds.straggler.pacing import Pacing, margins_s
from perseus_ds.straggler.replica_plans import Pace, ReplicaPlans

REPLICAS = 4
VARIED = [1.0, 1.1, 1.3, 0.9]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def loads(load: list[float]) -> Floats:
    """Report of all replicas, in parts of the objective's plan's time."""
    return index().objective_s * np.array(load)


def planned_s(plans: ReplicaPlans) -> Floats:
    """Predictions of the present plans for themselves."""
    return index().predicted_s(np.array(plans.plans))


def begun(error: float | None = 0.01) -> ReplicaPlans:
    plans = ReplicaPlans(index(), REPLICAS, forecast_error=error)
    plans.will_run(0)
    return plans


def ran(own_s: Floats) -> ReplicaStatus:
    return ReplicaStatus(own_s, np.zeros(len(own_s), np.bool_), np.ones(len(own_s)))


def test_the_margin_is_what_the_error_asks_for() -> None:
    def slowest_s(error: float) -> float:
        plans = begun(error)
        plans.pace(0, loads(VARIED))
        return float(planned_s(plans)[1])

    assert slowest_s(0.001) > slowest_s(0.01) > slowest_s(0.03)


@pytest.mark.parametrize("nothing", [math.nan, -1.0, -math.inf, math.inf, 0.0])
def test_one_that_tells_nothing_is_not_slowed_and_the_others_still_are(nothing: float) -> None:
    plans = begun()
    assert plans.pace(0, loads([1.0, nothing, 1.3, 0.9]))
    assert plans.plans[1] == plans.plans[2] == index().objective
    assert index().objective not in (plans.plans[0], plans.plans[3])


@pytest.mark.parametrize("error", [math.nan, -0.01, 0.0, math.inf, 0.15, None])
def test_nobody_is_slowed_by_what_is_not_known_well(error: float | None) -> None:
    assert not begun(error).pace(0, loads([1.0, 1.1, 1.15, 0.95]))


def test_nobody_waits_for_itself_alone_unannounced_or_in_the_next_iteration() -> None:
    assert not begun().pace(0, loads([1.0, math.nan, math.nan, math.nan]))
    assert not begun().pace(7, loads(VARIED))
    plans = begun()
    plans.pace(0, loads(VARIED))
    plans.will_run(1)
    assert set(plans.plans) == {index().objective}


def play(
    rounds: int, *, error: float, told: float, seed: int = 0, most_pct: float = 0.2
) -> tuple[float, float, ReplicaPlans]:
    """Iterations of loads that vary by 12 %; return how much longer the job took, and how much plans took."""
    random = np.random.default_rng(seed)
    plans = ReplicaPlans(index(), 8, forecast_error=told, max_cost_pct=most_pct)
    job = free = slowed = 0.0
    for n in range(rounds):
        plans.will_run(n)
        load = np.exp(0.12 * random.standard_normal(8))
        truth = load * np.exp(error * random.standard_normal(8))
        plans.pace(n, loads(load.tolist()))
        own_s = truth * planned_s(plans)
        job, free = job + own_s.max(), free + truth.max() * index().objective_s
        slowed += float((planned_s(plans) / index().objective_s).mean())
        plans.observe(n, ran(own_s))
    return 100.0 * (job / free - 1.0), slowed / rounds, plans


def test_the_job_is_hardly_slower_and_not_paced_without_any_room_for_the_cost() -> None:
    cost_pct, slowed, _ = play(400, error=0.01, told=0.01)
    assert cost_pct <= 0.2
    assert slowed >= 1.1
    cost_pct, _, plans = play(300, error=0.05, told=0.005, most_pct=0.02)
    assert plans.account["cost_pct"] <= 0.05
    assert cost_pct <= 0.2


@pytest.mark.thorough
def test_an_error_told_too_small_or_too_large_is_learned_and_the_bound_holds() -> None:
    cost_pct, slowed, plans = play(1000, error=0.05, told=0.005)
    assert plans.account["cost_pct"] <= 0.2
    assert cost_pct <= 0.25, "the measured cost, which knows no truth"
    assert slowed >= 1.02
    _, slowed, _ = play(400, error=0.005, told=0.04)
    _, at_once, _ = play(400, error=0.005, told=0.005)
    assert slowed >= 1.0 + 0.8 * (at_once - 1.0)


def test_an_iteration_of_unknown_load_judges_nobody_where_loads_are_reported() -> None:
    """The first iterations of a plan run before loads are reported: a light one makes nobody fast."""
    plans = ReplicaPlans(index(), REPLICAS, forecast_error=0.01)
    for n in range(3):
        plans.will_run(n)
        if n == 2:
            plans.pace(n, loads(VARIED))
            assert (planned_s(plans) * VARIED <= 1.3 * index().objective_s).all()
        plans.observe(n, ran(np.array([0.7, 1.0, 1.0, 1.0]) * index().objective_s))


def test_a_straggler_is_found_all_the_same_where_loads_are_missing_for_long() -> None:
    plans, slowed = ReplicaPlans(index(), REPLICAS, forecast_error=0.01), np.array([1.0, 1.3, 1.0, 1.0])
    for n in range(60):
        plans.will_run(n)
        plans.observe(n, ran((slowed if n >= 20 else 1.0) * planned_s(plans)))
    assert [one.replica for one in plans.decision.stragglers] == [1]


def test_margins_are_late_by_what_is_accepted_and_nothing_where_predictions_are_exact() -> None:
    apart_s, late_s = np.array([0.02, 0.01, 0.03, 0.02]), 0.002
    margin_s, normal = margins_s(apart_s, late_s), NormalDist()
    sigmas = (margin_s / apart_s).tolist()
    late = sum(a * (normal.pdf(x) - x * normal.cdf(-x)) for a, x in zip(apart_s, sigmas, strict=True))
    assert late == pytest.approx(late_s, rel=0.01)
    assert margins_s(apart_s, 0.0).min() >= 5.0 * apart_s.min()
    assert margins_s(np.zeros(4), late_s).max() == 0.0


def test_the_longest_never_waits_and_no_replica_is_made_faster_than_its_objective() -> None:
    """Also where a straggler is known: it counts as long as it takes."""
    plans, slowed = ReplicaPlans(index(), REPLICAS, forecast_error=0.01), np.array([1.0, 1.3, 1.0, 1.0])
    for n in range(41):
        plans.will_run(n)
        plans.pace(n, loads([1.0] * REPLICAS))
        plans.observe(n, ran(slowed * planned_s(plans)))
    assert plans.plans[1] == index().objective
    assert (planned_s(plans)[[0, 2, 3]] > 1.1 * index().objective_s).all()


# Who is behind its plan, and what a straggler loses by clocks that are asked for ahead: nothing.


def told(pace: Pace, *ratios: list[float]) -> list[bool]:
    for ratio in ratios:
        pace.observe(np.array(ratio))
    return pace.behind.tolist()


def test_twice_in_a_row_behind_is_behind_and_twice_on_time_is_not() -> None:
    pace = Pace(2)
    assert told(pace, [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.0], [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.1]) == [False, True]
    assert told(pace, [1.0, 1.0]) == [False, True]
    assert told(pace, [1.01, 1.01]) == [False, False]
    pace = Pace(1)
    assert told(pace, [1.2], [np.nan], [0.0], [1.2]) == [True], "what is not known says nothing"
    assert told(pace, [np.nan], [np.nan]) == [True]


def test_paced_replicas_are_together_as_late_as_is_allowed_on_average() -> None:
    """Predictions err by 1 % each; a replica is late by how much longer it takes than the longest."""
    predicted_s, random = np.array([10.0, 9.0, 8.0]), np.random.default_rng(0)
    paced_s = predicted_s * Pacing(0.01).stretches(predicted_s)
    assert paced_s[0] == predicted_s[0]
    assert (predicted_s < paced_s)[1:].all()
    errors_s = 0.01 * np.sqrt(predicted_s * predicted_s.mean())
    took_s = paced_s + errors_s * random.standard_normal((400_000, 3))
    late_s = np.maximum(0.0, took_s[:, 1:] - took_s[:, :1]).sum(axis=1).mean()
    assert late_s == pytest.approx(0.0005 * predicted_s[0], rel=0.05)
