"""Margins below the longest replica: late by as much as accepted, where that saves the most energy."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from perseus_ds.straggler.frontier_index import WorthOfTime
from perseus_ds.straggler.pacing.outlook import margins_s

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))
WORTH_W = np.array([6000.0, 3000.0, 900.0, 100.0])
APART_S = np.array([0.02, 0.01, 0.03, 0.02])
LATE_S = 0.002


def late_s(margin_s: NDArray[np.float64]) -> float:
    """What normal numbers exceed their margins by on average, all together."""
    sigmas, normal = margin_s / APART_S, NormalDist()
    return float(
        sum(
            apart_s * (normal.pdf(x) - x * normal.cdf(-x)) for apart_s, x in zip(APART_S, sigmas, strict=True)
        )
    )


def test_all_together_are_late_by_what_is_accepted() -> None:
    assert late_s(margins_s(APART_S, np.log(WORTH_W), LATE_S)) == pytest.approx(LATE_S, rel=0.1)


def test_where_a_second_is_worth_the_same_all_stay_as_many_deviations_below() -> None:
    margin_s = margins_s(APART_S, np.zeros(4), LATE_S)
    assert margin_s / APART_S == pytest.approx(margin_s[0] / APART_S[0])


def test_no_other_margins_as_late_cost_less_energy() -> None:
    margin_s = margins_s(APART_S, np.log(WORTH_W), LATE_S)
    as_late_s, random = late_s(margin_s), np.random.default_rng(0)
    costs_j = []
    for _ in range(300):
        other = np.clip(margin_s / APART_S + random.normal(0.0, 0.5, 4), 0.0, 6.0)
        low, high = -3.0, 3.0
        for _ in range(40):
            shift = (low + high) / 2.0
            low, high = (shift, high) if late_s((other + shift) * APART_S) > as_late_s else (low, shift)
        costs_j.append(float(WORTH_W @ ((other + high) * APART_S)))
    assert float(WORTH_W @ margin_s) <= 1.001 * min(costs_j)


def test_nothing_is_late_where_nothing_is_accepted_and_nobody_waits_for_exact_ones() -> None:
    assert margins_s(APART_S, np.log(WORTH_W), 0.0).min() >= 5.0 * APART_S.min()
    assert margins_s(np.zeros(4), np.log(WORTH_W), LATE_S).max() == 0.0


def test_a_second_is_worth_the_slope_of_the_hull() -> None:
    time_s, cost_j = np.array([2.0, 2.1, 2.2, 2.4]), np.array([100.0, 95.0, 80.0, 70.0])
    worth = WorthOfTime.of(time_s, cost_j)
    found_w = np.exp(worth.log_w(np.array([0.9, 1.0, 1.08, 1.12, 1.5])))
    assert found_w == pytest.approx([100.0, 100.0, 100.0, 50.0, 50.0]), "the second plan is above the hull"


def test_without_slower_plans_all_are_worth_the_same() -> None:
    assert WorthOfTime.of(np.array([2.0]), np.array([9.0])).log_w(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]


@pytest.mark.thorough
@pytest.mark.skipif(not (DATA / "straggler_traces").exists(), reason=f"no production traces in {DATA}")
def test_a_production_trace_is_paced_to_within_half_a_point_of_what_exact_times_save() -> None:
    bench = ROOT / "scripts" / "bench" / "straggler" / "pacing.py"
    done = subprocess.run(
        [sys.executable, bench, "--replicas", "4"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)["SE"]
    assert found["before, corrected within"]["saving_pct"] >= 26.0
    assert found["before"]["saving_pct"] >= 25.8
    assert found["as computed"]["saving_pct"] >= found["never"]["saving_pct"]
    assert all(one["job_pct"] <= 0.2 for one in found.values())
