"""Low priority for what takes long: a short plan is made at once, a long one leaves the training first."""

from __future__ import annotations

import os
import threading
import time

PROMPT_S = 3.0
"""Processor seconds at the job's own priority: enough for most plans, and once in a job."""
NICE = 10
_LOWEST = 19
_LEAST_PAUSE_S = 0.05


def step_back_after(cpu_s: float) -> None:
    """Lower the priority of the calling thread once this process has used so many processor seconds.

    At low priority from the start a plan of one processor second took a minute on a host whose processors
    were all busy. Linux has a priority for each thread, and a thread sees to it: the solver does not come
    back to the interpreter for seconds.
    """
    caller = threading.get_native_id()

    def watch() -> None:
        while (left_s := cpu_s - time.process_time()) > 0.0:
            time.sleep(max(left_s, _LEAST_PAUSE_S))
        priority = os.getpriority(os.PRIO_PROCESS, caller)
        os.setpriority(os.PRIO_PROCESS, caller, min(priority + NICE, _LOWEST))

    threading.Thread(target=watch, name="perseus-step-back", daemon=True).start()
