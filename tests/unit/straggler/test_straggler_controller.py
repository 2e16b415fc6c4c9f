"""Single decisions of the controller, what answers may cost, and the look-up of a plan by its time."""

from dataclasses import replace

import numpy as np
import pytest
from stragglers import index, planned, play, slow

from perseus_ds.config import Objective
from perseus_ds.plan.clock_requests import play as play_plan
from perseus_ds.plan.record import ChangeBudget, Splits
from perseus_ds.plan.select import plan_numbered, with_plan_at
from perseus_ds.straggler.controller import HORIZON, Cause, ReplicaStatus, SlowdownBudget, StragglerController
from perseus_ds.straggler.frontier_index import FrontierIndex

Observed = tuple[ReplicaStatus, np.ndarray]


def observation(own_s: list[float], announced: list[float] | None = None) -> Observed:
    """All run as planned."""
    told = np.ones(len(own_s)) if announced is None else np.array(announced)
    return ReplicaStatus(np.array(own_s), np.zeros(len(own_s), np.bool_), told), np.array(own_s)


def calm(plan_s: float, fastest_s: float, replicas: int) -> StragglerController:
    """Return a controller after 32 iterations in which nobody was slow."""
    controller = StragglerController(np.full(replicas, plan_s), np.full(replicas, fastest_s), scatter=0.001)
    for _ in range(32):
        assert np.isnan(controller.observe(*observation([plan_s] * replicas)).limit_s).all()
    return controller


def test_an_announced_straggler_goes_to_its_fastest_plan_if_any_and_the_others_meet_it_there() -> None:
    """All run 1.1 s on purpose and could 1 s; at full speed one that is 1.3 times slower needs 1.3 s."""
    found = calm(1.1, 1.0, 4).observe(*observation([1.1] * 4, [1.0, 1.3, 1.0, 1.0]))
    assert [(one.replica, one.cause) for one in found.stragglers] == [(1, Cause.ANNOUNCED)]
    assert found.limit_s[1] == 1.0
    assert found.sync_time_s == pytest.approx(1.3)
    assert found.waiting == (0, 2, 3)
    for replica in found.waiting:
        assert 1.28 < found.limit_s[replica] < 1.3
    found = calm(1.0, 1.0, 2).observe(*observation([1.0] * 2, [1.3, 1.0]))
    assert np.isnan(found.limit_s[0])
    assert found.waiting == (1,)


@pytest.mark.thorough
@pytest.mark.parametrize("scatter", [0.005, np.nan])
def test_replicas_that_differ_by_less_than_an_answer_pays_for_are_never_named(scatter: float) -> None:
    paces, planned_s = np.array([0.996, 1.0, 1.004]), np.ones(3)
    noise = np.random.default_rng(0).standard_normal((30_000, 3))
    controller = StragglerController(planned_s, planned_s, scatter=scatter)
    for one in paces * (1.0 + 0.005 * noise):
        status = ReplicaStatus(one, np.zeros(3, np.bool_), planned_s)
        assert controller.observe(status, planned_s).stragglers == ()
        assert not controller.slow.any()


# What answers may cost: measured against the objective's plan, set aside before an answer is given.

TWO = np.ones(2)
MOST_PCT = 0.2


def test_only_what_the_slowed_one_is_late_counts_and_is_forgotten_after_a_thousand_iterations() -> None:
    cost = SlowdownBudget(max_pct=MOST_PCT, reaction_delay=2)
    cost.observe(np.array([1.19, 1.2]), np.array([1.19, 1.0]), TWO)
    assert cost.lost == 0.0
    cost.observe(np.array([1.19, 1.0]), np.array([1.19, 1.0]), TWO)
    assert cost.lost == pytest.approx(0.19)
    assert cost.room == pytest.approx((0.9 * 2.0 - 0.19) / 2), "a tenth is kept for noise"
    for _ in range(HORIZON - 1):
        cost.observe(TWO, TWO, TWO)
    assert cost.lost == pytest.approx(0.19)
    cost.observe(TWO, TWO, TWO)
    assert cost.lost == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("own_s", [(np.nan, 1.0), (np.inf, 1.0), (0.0, 1.0)])
def test_what_is_not_known_costs_nothing(own_s: tuple[float, float]) -> None:
    cost = SlowdownBudget(max_pct=MOST_PCT, reaction_delay=2)
    cost.observe(np.array(own_s), np.array([1.2, 1.0]), TWO)
    assert cost.lost == 0.0


@pytest.mark.thorough
def test_a_replica_that_flaps_in_long_spells_is_not_answered_beyond_the_bound() -> None:
    """Spells of 14 iterations in 28, each worth an answer by itself, would cost 1.4 %."""
    played = play(700, *(slow(n, n + 14) for n in range(14, 700, 28)))
    slowed = (played.plan[:, 0] != played.plan[0, 0]).nonzero()[0]
    assert len(slowed) > 20
    assert slowed[-1] < 400, "answers end when their time is spent"
    lost = played.job_s / played.free.job_s - 1.0
    assert 100.0 * np.convolve(lost, np.ones(len(lost))).max() / HORIZON <= MOST_PCT


# Look-up of a plan by the time it may take, against playing every plan and trying all of them.


def test_what_a_plan_predicts_is_its_longest_path_without_the_reserve() -> None:
    plans, expected_s = planned(), index().expected_s
    for number in range(0, len(plans), 17):
        longest_s = max(played.end_s for played in play_plan(plans.plan(number)))
        assert expected_s[number] == pytest.approx(longest_s, rel=1e-12)
    assert (expected_s <= plans.iteration_time_s * (1.0 + 1e-12)).all()
    assert expected_s[-1] < plans.iteration_time_s[-1] / 1.005


def test_where_plans_may_not_be_mixed_every_look_up_is_the_best_of_all() -> None:
    plans, kept = planned(), replace(index(), mixes=False)
    for limit_s in np.linspace(0.9 * kept.fastest_s, 1.1 * kept.expected_s[-1], 300):
        chosen = int(kept.within(float(limit_s)))
        if limit_s <= kept.fastest_s:
            assert chosen == kept.fastest
            continue
        fits = kept.expected_s <= limit_s
        assert fits[chosen]
        assert plans.effective_energy_j[chosen] == plans.effective_energy_j[fits].min()


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_mixture_is_within_0_02_percent_of_any_plan(place: float) -> None:
    plans, first_s, last_s = planned(), index().fastest_s, float(index().expected_s[-1])
    meets_s = first_s + place * (last_s - first_s)
    number = index().within(meets_s)
    chosen = plan_numbered(plans, number)
    predicted_s = float(index().predicted_s(np.array([number]))[0])
    runs_s = max(played.end_s for played in play_plan(chosen))
    assert runs_s <= predicted_s * (1.0 + 1e-9) <= meets_s * (1.0 + 1e-9)
    assert runs_s == pytest.approx(predicted_s, rel=1e-4)
    planned_s = float(np.interp(meets_s, index().expected_s, plans.iteration_time_s))
    around = with_plan_at(plans, planned_s)
    waiting_j = plans.blocking_total_w * planned_s
    bound_j = float(np.interp(planned_s, around.iteration_time_s, around.effective_bound_j))
    assert chosen.of.effective_energy_j[chosen.index] + waiting_j <= 1.0002 * (bound_j + waiting_j)


def test_plans_are_mixed_from_the_fastest_on() -> None:
    first_s, second_s = index().expected_s[index().fastest : index().fastest + 2].tolist()
    assert index().fastest < index().within(0.5 * (first_s + second_s)) < index().fastest + 1


def test_a_budget_of_changes_forbids_mixtures() -> None:
    for more in ({"budget": ChangeBudget(per_gpu_per_s=1.0)}, {"splits": Splits.none()}):
        assert not FrontierIndex.of(replace(planned(), **more), Objective()).mixes


def test_without_an_aim_it_is_the_objectives_plan_which_a_straggler_leaves_for_its_fastest() -> None:
    relaxed = FrontierIndex.of(planned(), Objective("max_slowdown", max_slowdown_pct=10.0))
    assert relaxed.objective != relaxed.fastest
    assert relaxed.fastest_s < relaxed.objective_s <= 1.1 * relaxed.fastest_s * (1.0 + 1e-9)
    assert relaxed.within(relaxed.fastest_s) == relaxed.fastest
