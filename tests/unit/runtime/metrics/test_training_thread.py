"""Metrics add nothing to the training thread: it makes the same calls with them and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone_job import alone
from own_calls import calls_at_a_plan, planned

ITERATIONS = 60


@pytest.mark.slow
def test_the_training_thread_makes_the_same_calls(tmp_path: Path) -> None:
    with alone(tmp_path / "store"):
        plan = planned(tmp_path / "planned")
        without = calls_at_a_plan(plan, tmp_path / "without", {"enabled": False}, ITERATIONS)
        more = calls_at_a_plan(plan, tmp_path / "with", {"enabled": True}, ITERATIONS)
    assert without.total() > 100 * ITERATIONS
    assert without == more
