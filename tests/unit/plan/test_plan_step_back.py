"""A planner begins at the job's priority and steps back when it takes long."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, time
from perseus_ds.plan.step_back import NICE, step_back_after
before = os.nice(0)
step_back_after({after_s})
while time.process_time() < {until_s}:
    pass
print(os.nice(0) - before == {times} * NICE)
"""


def stepped(after_s: float, until_s: float, times: int) -> str:
    """Use the processor for so long; whether the priority went down so often by then."""
    script = SCRIPT.format(after_s=after_s, until_s=until_s, times=times)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.strip()


def test_it_steps_back_once_and_no_more() -> None:
    assert stepped(after_s=0.1, until_s=3.0, times=1) == "True"


def test_before_that_it_has_the_jobs_priority() -> None:
    assert stepped(after_s=60.0, until_s=1.5, times=0) == "True"
