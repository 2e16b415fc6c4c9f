"""A looser budget never gives a job a worse first plan than a stricter one: every pair of six budgets."""

from itertools import pairwise

import numpy as np
import pytest

from perseus_ds.plan import build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook

STAGES, MICROBATCHES, CLOCKS = 3, 5, 5
PER_S = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)


def uneven(seed: int) -> Profile:
    """Stages of lengths and curves of their own."""
    rng = np.random.default_rng(seed)
    points = {}
    for stage in range(STAGES):
        for kind, scale_s in ((Kind.FORWARD, 0.05), (Kind.BACKWARD, 0.1)):
            stretch = np.linspace(1.0, 1.5, CLOCKS)
            base_s, lean = scale_s * (1.0 + 0.3 * rng.random()), 0.4 + rng.random()
            energy_j = 300.0 * base_s * (lean + 1.0 / stretch**3)
            points[stage, kind] = tuple(
                Point(1400 - 100 * at, float(base_s * stretch[at]), float(energy_j[at]))
                for at in range(CLOCKS)
            )
    return Profile(points=points, blocking_power_w=80.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("node", [False, True])
def test_a_looser_budget_never_starts_with_a_worse_plan(seed: int, *, node: bool) -> None:
    """End to end: 15 pairs each, by GPU and by node."""
    schedule = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
    energy_j = []
    for per_s in PER_S:
        budget = ChangeBudget(None, STAGES * per_s) if node else ChangeBudget(per_s)
        plans = build(uneven(seed), schedule, blocking_power_w=83.64, switching=Switching(budget=budget))
        energy_j.append(float(plans.effective_energy_j[0]))
    assert all(loose <= strict * (1.0 + 1e-9) for strict, loose in pairwise(energy_j))
    assert energy_j[-1] < energy_j[0]
