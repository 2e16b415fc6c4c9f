"""Low priority for what takes long: a short plan is made at once, a long one leaves the training first."""

from __future__ import annotations

import os
import signal

PROMPT_S = 3.0
"""Processor seconds at the job's own priority: enough for most plans, and once in a job."""
NICE = 10


def step_back_after(cpu_s: float) -> None:
    """Lower this process's priority once it has used so many processor seconds; main thread only.

    At low priority from the start a plan of one processor second took a minute on a host whose processors
    were all busy.
    """

    def step_back(*_: object) -> None:
        os.nice(NICE)

    signal.signal(signal.SIGPROF, step_back)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
