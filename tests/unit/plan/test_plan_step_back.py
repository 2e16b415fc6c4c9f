"""A planner begins at the job's priority and steps back when it takes long."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough

SCRIPT = """
import os, time
from perseus_ds.plan.__main__ import NICE, step_back_after
before = os.nice(0)
step_back_after({after_s})
def work(cpu_s):
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        sum(range(1000))
work({work_s})
while {times} and os.nice(0) == before and time.process_time() < 20.0:  # on a busy host its turn comes late
    work(0.1)
work(0.1)
print(os.nice(0) - before == {times} * NICE)
"""


def stepped(after_s: float, work_s: float, times: int) -> str:
    """Use the processor for so long; whether the priority went down so often by then."""
    return said(SCRIPT.format(after_s=after_s, work_s=work_s, times=times))


def said(script: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=environment,
    )
    return done.stdout.strip()


def test_it_steps_back_once_and_no_more() -> None:
    assert stepped(after_s=0.1, work_s=0.5, times=1) == "True"


def test_before_that_it_has_the_jobs_priority() -> None:
    assert stepped(after_s=60.0, work_s=0.5, times=0) == "True"


@pytest.mark.slow
def test_it_does_so_while_the_solver_keeps_the_main_thread() -> None:
    """Compiled code does not come back to the interpreter: a signal's handler would wait for it."""
    script = """
import os, threading, time
from perseus_ds.plan.__main__ import NICE, step_back_after
import numpy as np
main, seen = threading.get_native_id(), []
def look():
    while time.process_time() < 0.4:
        time.sleep(0.01)
    seen.append(os.getpriority(os.PRIO_PROCESS, main) - before)
before = os.getpriority(os.PRIO_PROCESS, main)
step_back_after(0.1)
other = threading.Thread(target=look)
other.start()
matrix = np.ones((3000, 3000))
matrix @ matrix  # one call of most of a second
other.join()
print(seen == [NICE])
"""
    assert said(script) == "True"
