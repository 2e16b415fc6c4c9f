"""The number of changes asked of a node's driver that serves one GPU after the other."""

import pytest

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import Calibration
from perseus_ds.device.gpu import Capabilities
from perseus_ds.runtime.plans import budget_of

ABLE = Capabilities((1410, 1200), (1593,), True, None, 0.1, 0.037, 0.01)


def calibrated(together_s: float) -> Calibration:
    return Calibration(
        call_s=0.01, up_s=0.037, down_s=0.03, together_s=together_s, counter_period_s=0.1, unreached=0
    )


def test_half_of_the_drivers_lock_is_ours_by_itself() -> None:
    """Eight GPUs that change at once wait for seven calls of 10 ms: there are 100 changes a second."""
    budget = budget_of(Objective(), calibrated(0.037 + 7 * 0.01), ABLE, ranks=8)
    assert budget.per_node_per_s == pytest.approx(50.0)
    assert budget.per_gpu_per_s is None


@pytest.mark.parametrize("together_s", [0.037, 0.040])
def test_where_nobody_waits_there_is_no_budget(together_s: float) -> None:
    assert budget_of(Objective(), calibrated(together_s), ABLE, ranks=8).per_node_per_s is None
    assert budget_of(Objective(), None, ABLE, ranks=8).per_node_per_s is None


def test_what_the_user_says_holds() -> None:
    asked = Objective(node_changes_per_s=7.0)
    assert budget_of(asked, calibrated(0.2), ABLE, ranks=8).per_node_per_s == 7.0
