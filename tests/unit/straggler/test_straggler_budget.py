"""What answers may cost: measured against the objective's plan, set aside before an answer is given."""

import numpy as np
import pytest
from stragglers import Played, Trouble, play

from perseus_ds.straggler.controller import HORIZON, SlowdownBudget

TWO = np.ones(2)
MOST_PCT = 0.2


def lost_pct(played: Played) -> float:
    alike = played.job_s / played.free_s.max(axis=1) - 1.0
    return float(100.0 * np.convolve(alike, np.ones(min(HORIZON, len(alike)))).max() / HORIZON)


def test_only_what_the_slowed_one_is_late_counts() -> None:
    cost = SlowdownBudget(max_pct=MOST_PCT, reaction_delay=2)
    cost.observe(np.array([1.19, 1.2]), np.array([1.19, 1.0]), TWO)
    assert cost.lost == 0.0
    cost.observe(np.array([1.19, 1.0]), np.array([1.19, 1.0]), TWO)
    assert cost.lost == pytest.approx(0.19)
    assert cost.room == pytest.approx((0.9 * 2.0 - 0.19) / 2), "a tenth is kept for noise"


def test_it_is_forgotten_after_a_thousand_iterations() -> None:
    cost = SlowdownBudget(max_pct=MOST_PCT, reaction_delay=2)
    cost.observe(np.array([1.2, 1.0]), np.array([1.2, 1.0]), TWO)
    for _ in range(HORIZON - 1):
        cost.observe(TWO, TWO, TWO)
    assert cost.lost == pytest.approx(0.2)
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
    played = play(700, lambda replica, n: Trouble(1.2 if replica == 1 and n // 14 % 2 else 1.0))
    slowed = (played.plan[:, 0] != played.plan[0, 0]).nonzero()[0]
    assert len(slowed) > 20
    assert slowed[-1] < 400, "answers end when their time is spent"
    assert lost_pct(played) <= MOST_PCT
