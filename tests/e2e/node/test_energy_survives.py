"""The energy of a job that is killed again and again: the sum over all starts is what its GPU took."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
SUPPORT = HERE.parents[1] / "support"
KILLS = 10


def true_j(path: Path) -> float:
    return float(path.read_text() or 0.0) if path.exists() else 0.0


def killed(run_dir: Path, truth: Path, *, after_s: float) -> float:
    """Start the job, kill it some time after its first iterations; what its GPU took."""
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, str(HERE / "energy_job.py"), str(run_dir), str(truth)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as job:
        try:
            until_s = time.monotonic() + 240.0
            while not true_j(truth):
                assert job.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.05)
            time.sleep(after_s)
        finally:
            job.send_signal(signal.SIGKILL)
    return true_j(truth)


def test_energy_over_random_kills_is_what_the_gpu_took(tmp_path: Path) -> None:
    draw = random.Random(28)
    run_dir, taken_j = tmp_path / "run", 0.0
    for kill in range(KILLS):
        taken_j += killed(run_dir, tmp_path / f"truth{kill}", after_s=draw.uniform(1.0, 4.0))
    [ledger] = (run_dir / "metrics" / "energy").glob("*.json")
    counted = json.loads(ledger.read_text())
    assert counted["starts"] == KILLS
    assert counted["energy_j"] == pytest.approx(taken_j, rel=0.005)
    sys.stdout.write(f"{KILLS} kills: {counted['energy_j']:.0f} J counted, {taken_j:.0f} J taken\n")
