"""Production traces through the real controller and GPT-3's frontier: who is accused, what pacing saves."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))
NO_DATA = pytest.mark.skipif(not (DATA / "straggler_traces").exists(), reason=f"no traces of jobs in {DATA}")
pytestmark = [pytest.mark.thorough, NO_DATA]


@cache
def replayed(*options: str, script: str = "traces.py") -> dict[str, Any]:
    bench = ROOT / "scripts" / "bench" / "straggler" / script
    done = subprocess.run([sys.executable, bench, *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_true_straggler_is_answered_within_3_iterations_at_its_own_time() -> None:
    found = replayed()["AR"]
    assert found["accused"] == [0]
    assert found["answered_after_iterations"] <= 3
    assert abs(found["sync_time_off_pct"]["mean"]) <= 1.0, "single iterations vary by 1 % in themselves"
    assert found["job_pct"] <= 0.1
    silent = replayed("--silent")["AR"]
    assert silent["accused"] == [0]
    assert 8 <= silent["answered_after_iterations"] <= 10, "after half a window where the profile is silent"


@pytest.mark.parametrize("profile", [(), ("--silent",)], ids=["told", "silent"])
@pytest.mark.parametrize("job", ["ST", "SE"])
def test_nobody_is_accused_because_work_varies(job: str, profile: tuple[str, ...]) -> None:
    found = replayed(*profile)[job]
    assert found["accused"] == []
    assert found["job_pct"] <= 0.1


def test_a_production_trace_is_paced_by_its_loads() -> None:
    found = replayed("--replicas", "4", script="pacing.py")["SE"]
    assert found["before"]["saving_pct"] >= max(25.6, found["never"]["saving_pct"])
    assert all(one["job_pct"] <= 0.2 for one in found.values())
