"""A job whose computations vary and whose plan corrects itself, and what it must come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs import SURE, block

from perseus_ds.plan import read_plans
from perseus_ds.plan.feedback.made import MOST_PCT
from perseus_ds.run_directory import RunDirectory, read_summary


def course(run_dir: Path) -> dict[str, Any]:
    """Block of a job of four stages that profiles, plans with feedback, and audits once."""
    return block(
        run_dir,
        objective={"feedback": "automatic"},
        simulated={"noise": 0.02, "switch_latency_s": 0.01, "forward_s": [0.4, 0.4, 0.4, 0.43]},
        profile={"min_window_s": 20.0, "max_clocks": 16, "warmup_iterations": 2, "settle_s": 0.0},
        audit={"every_iterations": 60, "iterations": 20, "settle_s": 0.0},
    )


def is_as_expected(run_dir: Path) -> None:
    """Compare saving and time with what the plan with feedback lets expect, both with their errors."""
    plans = read_plans(run_dir / "plan.json")
    assert plans.feedback is not None
    hope = plans.expected[plans.feedback.plan]
    summary = read_summary(RunDirectory(run_dir).summary)
    assert abs(summary.saving_pct - hope.saving_pct) <= hope.within_pct + SURE * summary.saving_se_pct
    off_pct = abs(summary.slowdown_pct - hope.slowdown_pct)
    assert off_pct <= hope.slowdown_within_pct + SURE * summary.slowdown_se_pct
    assert hope.slowdown_pct <= MOST_PCT, (hope, plans.feedback.slowdown_pct, summary)
