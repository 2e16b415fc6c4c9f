"""Jobs that we recognise and stay away from, each with a clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
from jobs import block, lines
from ranks import batches, build, config, losses, run_ranks

from perseus_ds.adapters.deepspeed import crashes_with_timers

SUPPORT = str(Path(__file__).parents[2] / "support")

pytestmark = pytest.mark.e2e


def built_only(rank: int, content: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Build an engine, and train a step where that can be done."""
    engine = build(content, stages=2)
    data = batches()
    steps = 0 if "autotuning" in content else 2  # autotuning turns on the timers that crash the job
    return [float(engine.train_batch(data)).hex() for _ in range(steps)], "_exec_schedule" in vars(engine)


def test_autotuning_switches_us_off(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path / "run"), autotuning={"enabled": True})
    said = run_ranks(2, built_only, content)
    assert [one.value[1] for one in said] == [False, False]
    [line] = lines(said[0])
    assert "autotuning" in line
    assert not (tmp_path / "run").exists()


# A job of two stages with DeepSpeed's own timers on: one process per rank, as the launcher starts them.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import ranks

def job(rank, content):
    engine = ranks.build(content, stages=2)
    return ranks.losses(engine, 3)

if __name__ == "__main__":
    for said in ranks.run_ranks(2, job, json.loads(sys.argv[2])):
        print(said.output)
"""


def timed(perseus: dict[str, Any] | None) -> subprocess.CompletedProcess[str]:
    content = config(perseus=perseus, wall_clock_breakdown=True)
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            PROGRAM,
            SUPPORT,
            json.dumps(content),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_deepspeeds_timers_crash_the_job_without_us() -> None:
    """Why we say a line about them. When this fails DeepSpeed is mended: tell `crashes_with_timers`."""
    assert crashes_with_timers(deepspeed.__version__)
    done = timed(None)
    assert done.returncode != 0
    assert "already been" in done.stderr


def warned(rank: int, content: Mapping[str, Any]) -> str:
    engine = build(content, stages=2)
    try:
        engine.train_batch(batches())
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


def test_the_user_is_told_beforehand(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path), wall_clock_breakdown=True)
    said = run_ranks(2, warned, content)
    assert "wall_clock_breakdown" in lines(said[0])[0]
    assert "both off" in lines(said[0])[0]


def of_another_release(rank: int, content: Mapping[str, Any]) -> list[str]:
    deepspeed.__version__ = "99.0"  # as that of an image that is newer than this package
    return losses(build(content, stages=2), 2)


def test_a_release_that_was_not_tested_is_served_and_said(tmp_path: Path) -> None:
    said = run_ranks(2, of_another_release, config(perseus=block(tmp_path / "run", mode="observe")))
    assert [line for line in lines(said[0]) if "DeepSpeed 99.0" in line] != []
    assert "2 stages" in lines(said[0])[0]
    assert lines(said[1]) == []
