"""A plan that corrects itself in a whole job: the same losses, and the saving that was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import block, happened, plain_losses, train_until
from ranks import config, run_ranks

from perseus_ds.plan import read_plans
from perseus_ds.run_directory import RunDirectory, read_summary

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_job_with_feedback_trains_as_without_us_and_saves_what_it_expects(tmp_path: Path) -> None:
    own = block(
        tmp_path,
        objective={"feedback": "automatic"},
        simulated={"noise": 0.02, "switch_latency_s": 0.01, "forward_s": [0.4, 0.4, 0.4, 0.43]},
        profile={"min_window_s": 20.0, "max_clocks": 16, "warmup_iterations": 2, "settle_s": 0.0},
        audit={"every_iterations": 60, "iterations": 20, "settle_s": 0.0},
    )
    said = run_ranks(4, train_until, config(perseus=own), 4, happened("measured"))
    ours = [one.value.losses for one in said]
    assert ours == plain_losses(len(ours[0]))
    plans = read_plans(tmp_path / "plan.json")
    assert plans.feedback is not None
    hope = plans.expected[plans.feedback.plan]
    summary = read_summary(RunDirectory(tmp_path).summary)
    assert abs(summary.saving_pct - hope.saving_pct) <= hope.within_pct + 2 * summary.saving_se_pct
