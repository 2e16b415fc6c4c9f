"""Look-up of a plan by the time it may take, against playing every plan and trying all of them."""

import numpy as np
import pytest
from stragglers import planned

from perseus_ds.config import Objective
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.straggler.frontier_index import FrontierIndex


@pytest.fixture(scope="module")
def frontier_index() -> FrontierIndex:
    return FrontierIndex.of(planned(), Objective())


def test_what_a_plan_predicts_is_its_longest_path(frontier_index: FrontierIndex) -> None:
    plans = planned()
    for index in range(0, len(plans), 17):
        longest_s = max(played.end_s for played in play(plans.plan(index)))
        assert frontier_index.expected_s[index] == pytest.approx(longest_s, rel=1e-12)
    assert frontier_index.baseline_s == pytest.approx(
        max(played.end_s for played in play_baseline(plans)), rel=1e-12
    )


def test_the_reserve_is_not_expected(frontier_index: FrontierIndex) -> None:
    plans = planned()
    assert (frontier_index.expected_s <= plans.iteration_time_s * (1.0 + 1e-12)).all()
    assert frontier_index.expected_s[-1] < plans.iteration_time_s[-1] / 1.005


def test_every_look_up_is_the_best_of_all(frontier_index: FrontierIndex) -> None:
    plans = planned()
    for limit_s in np.linspace(0.9 * frontier_index.fastest_s, 1.1 * frontier_index.expected_s[-1], 300):
        chosen = frontier_index.within(float(limit_s))
        if limit_s <= frontier_index.fastest_s:
            assert chosen == frontier_index.fastest
            continue
        fits = frontier_index.expected_s <= limit_s
        assert fits[chosen]
        assert plans.effective_energy_j[chosen] == plans.effective_energy_j[fits].min()


def test_without_an_aim_it_is_the_objectives_plan() -> None:
    relaxed = FrontierIndex.of(planned(), Objective("max_slowdown", max_slowdown_pct=10.0))
    assert relaxed.objective != relaxed.fastest
    assert relaxed.fastest_s < relaxed.objective_s <= 1.1 * relaxed.fastest_s * (1.0 + 1e-9)


def test_a_straggler_leaves_a_relaxed_objective_for_its_fastest_plan() -> None:
    relaxed = FrontierIndex.of(planned(), Objective("max_slowdown", max_slowdown_pct=10.0))
    assert relaxed.within(relaxed.fastest_s) == relaxed.fastest
