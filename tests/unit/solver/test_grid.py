"""Where plans stand on a frontier."""

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.plan import build
from perseus_ds.plan.problem import Switching
from perseus_ds.schedule import textbook
from perseus_ds.solver.frontier import REACH


@pytest.mark.thorough
@pytest.mark.parametrize(("split", "times"), [("automatic", 2.0), ("never", 2.1)])
def test_plans_stand_closest_where_the_cost_falls_most(split: str, times: float) -> None:
    """From one to the next by twice what a look-up may lose at most; evenly in time it were four times.

    Plans of whole clocks are found and not computed: one of them is 2.05 times above the next.
    """
    schedule = textbook("1f1b", stages=3, microbatches=4)
    profile = textbook_profile([1.0, 1.05, 1.2])
    plans = build(profile, schedule, blocking_power_w=60.0, switching=Switching(split=split))
    fall_j = -np.diff(plans.effective_energy_j)
    assert (fall_j <= times * REACH * plans.energy_j[1:]).all()
