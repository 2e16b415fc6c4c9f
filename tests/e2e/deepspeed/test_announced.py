"""What is announced to a running job from outside, and what it shows through DeepSpeed's own monitor."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import STAGES, Lifecycle, block, copy_of, happened, lines, train_until
from ranks import config, run_ranks
from replicas import Book, planned_job, straggle

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORWARD_S = (0.4, 0.5)
SLOWED, ENDED, ITERATIONS = 8, 20, 30


def announce(run_dir: Path, slowdown: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perseus_ds", "notify", str(run_dir)]
    command += ["--pipeline", "1", "--slowdown", slowdown]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def announced(rank: int, content: dict[str, Any]) -> Book:
    """Somebody tells the job before the first slow iteration, and when it is over."""
    run_dir = Path(content["perseus"]["run_dir"])

    def act(rank: int, iteration: int) -> None:
        if rank == 0 and iteration in (SLOWED, ENDED):
            done = announce(run_dir, "1.2" if iteration == SLOWED else "1")
            assert done.returncode == 0, done.stderr

    return straggle(rank, content, 2, {1: [(SLOWED, ENDED, 1.2)]}, ITERATIONS, act=act)


def test_an_announced_straggler_is_answered_within_two_iterations(tmp_path: Path) -> None:
    content = planned_job(tmp_path, ranks=4, forward_s=FORWARD_S)
    said = run_ranks(4, announced, content)
    played = [row[0] for row in said[0].value.plans]
    first = next(index for index in range(SLOWED, ENDED) if played[index] != played[0])
    back = next(index for index in range(ENDED, ITERATIONS) if played[index] == played[0])
    sys.stdout.write(f"\nanswered after {first - SLOWED} iterations, over after {back - ENDED}")
    assert first - SLOWED <= 2
    assert back - ENDED <= 2
    assert any("announced" in line for line in lines(said[0]))
    assert [one.value.plans for one in said[1:]] == [said[0].value.plans] * 3


def series(folder: Path) -> dict[str, list[float]]:
    """The CSV monitor's files, by what they show."""
    found = {}
    for file in sorted(folder.rglob("Perseus_*.csv")):
        _, *rows = csv.reader(file.read_text().splitlines())
        found[file.stem.removeprefix("Perseus_")] = [float(value) for _, value in rows]
    return found


def test_the_csv_monitor_shows_what_is_played_and_saved(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "run")
    monitor = {"enabled": True, "output_path": str(tmp_path / "csv"), "job_name": "job"}
    content = config(gradient_clipping=1.0, perseus=block(run_dir), csv_monitor=monitor, steps_per_print=2)
    run_ranks(4, train_until, content, STAGES, happened("measured"))
    shown = series(tmp_path / "csv")
    assert set(shown) == {
        "plan",
        "straggler_time_s",
        "slack_s",
        "rank0_energy_per_iteration_j",
        "rank0_power_w",
        "energy_per_iteration_j",
        "power_w",
        "saving_pct",
        "slowdown_pct",
    }
    assert len(shown["plan"]) >= 3
    assert set(shown["slack_s"]) == {0.0}
    assert 50 < shown["rank0_power_w"][-1] < 500
    assert shown["power_w"][-1] > shown["rank0_power_w"][-1]
    assert shown["saving_pct"][-1] > 0
