"""Look-up of a plan by the time it may take, against playing every plan and trying all of them."""

from dataclasses import replace

import numpy as np
import pytest
from stragglers import planned

from perseus_ds.config import Objective
from perseus_ds.plan.clock_requests import play
from perseus_ds.plan.record import ChangeBudget, Splits
from perseus_ds.plan.select import plan_numbered, with_plan_at
from perseus_ds.straggler.frontier_index import FrontierIndex


@pytest.fixture(scope="module")
def frontier_index() -> FrontierIndex:
    return FrontierIndex.of(planned(), Objective())


def test_what_a_plan_predicts_is_its_longest_path_without_the_reserve(frontier_index: FrontierIndex) -> None:
    plans = planned()
    for index in range(0, len(plans), 17):
        longest_s = max(played.end_s for played in play(plans.plan(index)))
        assert frontier_index.expected_s[index] == pytest.approx(longest_s, rel=1e-12)
    assert (frontier_index.expected_s <= plans.iteration_time_s * (1.0 + 1e-12)).all()
    assert frontier_index.expected_s[-1] < plans.iteration_time_s[-1] / 1.005


def test_where_plans_may_not_be_mixed_every_look_up_is_the_best_of_all(frontier_index: FrontierIndex) -> None:
    plans, kept = planned(), replace(frontier_index, mixes=False)
    for limit_s in np.linspace(0.9 * kept.fastest_s, 1.1 * kept.expected_s[-1], 300):
        chosen = int(kept.within(float(limit_s)))
        if limit_s <= kept.fastest_s:
            assert chosen == kept.fastest
            continue
        fits = kept.expected_s <= limit_s
        assert fits[chosen]
        assert plans.effective_energy_j[chosen] == plans.effective_energy_j[fits].min()


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_mixture_of_the_plans_around_is_within_0_02_percent_of_what_any_plan_needs(
    frontier_index: FrontierIndex, place: float
) -> None:
    plans, first_s, last_s = planned(), frontier_index.fastest_s, float(frontier_index.expected_s[-1])
    meets_s = first_s + place * (last_s - first_s)
    number = frontier_index.within(meets_s)
    chosen = plan_numbered(plans, number)
    predicted_s = float(frontier_index.predicted_s(np.array([number]))[0])
    runs_s = max(played.end_s for played in play(chosen))
    assert runs_s <= predicted_s * (1.0 + 1e-9) <= meets_s * (1.0 + 1e-9)
    assert runs_s == pytest.approx(predicted_s, rel=1e-4)
    planned_s = float(np.interp(meets_s, frontier_index.expected_s, plans.iteration_time_s))
    around = with_plan_at(plans, planned_s)
    waiting_j = plans.blocking_total_w * planned_s
    bound_j = float(np.interp(planned_s, around.iteration_time_s, around.effective_bound_j))
    assert chosen.of.effective_energy_j[chosen.index] + waiting_j <= 1.0002 * (bound_j + waiting_j)


def test_a_budget_of_changes_forbids_mixtures() -> None:
    for more in ({"budget": ChangeBudget(per_gpu_per_s=1.0)}, {"splits": Splits.none()}):
        assert not FrontierIndex.of(replace(planned(), **more), Objective()).mixes


def test_without_an_aim_it_is_the_objectives_plan_which_a_straggler_leaves_for_its_fastest() -> None:
    relaxed = FrontierIndex.of(planned(), Objective("max_slowdown", max_slowdown_pct=10.0))
    assert relaxed.objective != relaxed.fastest
    assert relaxed.fastest_s < relaxed.objective_s <= 1.1 * relaxed.fastest_s * (1.0 + 1e-9)
    assert relaxed.within(relaxed.fastest_s) == relaxed.fastest
