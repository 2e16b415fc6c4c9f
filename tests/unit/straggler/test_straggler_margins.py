"""Production traces, paced by their loads: what pacing saves there at next to no time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))


@pytest.mark.thorough
@pytest.mark.skipif(not (DATA / "straggler_traces").exists(), reason=f"no production traces in {DATA}")
def test_a_production_trace_is_paced_by_its_loads() -> None:
    bench = ROOT / "scripts" / "bench" / "straggler" / "pacing.py"
    done = subprocess.run(
        [sys.executable, bench, "--replicas", "4"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)["SE"]
    assert found["before"]["saving_pct"] >= 25.6
    assert found["before"]["saving_pct"] >= found["never"]["saving_pct"]
    assert all(one["job_pct"] <= 0.2 for one in found.values())
