"""Metrics add nothing to the training thread: it makes the same calls with them and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from lone_job import alone, names_of
from own_calls import calls_at_a_plan, planned

ITERATIONS = 60
UNKNOWN = "rank_report.py: RankBooks.__init__.<locals>.<lambda>"
SUMMARY = {
    "assembly.py: Assembly._publish.<locals>.<lambda>",
    "ledger.py: EnergyLedger.energy_j",
    "worth.py: _priced",
    "worth.py: _priced.<locals>.<dictcomp>",
}
"""An audit's summary also has the whole job's energy and its price; without metrics it is unknown."""


@pytest.mark.slow
def test_the_training_thread_makes_the_same_calls(tmp_path: Path) -> None:
    with alone(tmp_path / "store"):
        plan = planned(tmp_path / "planned")
        without = calls_at_a_plan(plan, tmp_path / "without", {"enabled": False}, ITERATIONS)
        more = calls_at_a_plan(plan, tmp_path / "with", {"enabled": True, "every_s": 1.0}, ITERATIONS)
    audits = names_of(tmp_path / "with").count("measured")
    assert without.total() > 100 * ITERATIONS
    assert without - more == {UNKNOWN: audits}
    assert more - without == dict.fromkeys(SUMMARY, audits)
