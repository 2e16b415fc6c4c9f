"""``python -m perseus_ds.plan PROFILE REQUEST PLAN``: what a job's background planner runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from perseus_ds.errors import InfeasibleError, PerseusError, SlowChangeError
from perseus_ds.plan.expected import expected, with_power_ratio
from perseus_ds.plan.file import PlanRequest, read_request, write_plans
from perseus_ds.plan.frontier import build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import PlanSet, read_timelines
from perseus_ds.plan.select import select, with_plan_within
from perseus_ds.profile import Profile, read_profile, smooth

# Low priority for what takes long: a short plan is made at once, a long one leaves the training first.

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


def main(arguments: list[str]) -> int:
    """Plan and write; a refusal is one line and exit code 1."""
    profile_file, request_file, plan = map(Path, arguments)
    try:
        request = read_request(request_file)
        profile = smooth(read_profile(profile_file), scatter=True)
        plans = with_plan_within(_built(profile, request), request.objective)
        change = request.change or plans.change
        plans = with_power_ratio(plans, profile, change)
        if request.objective is not None and profile.blocking_w:  # here: the job's own thread would wait
            with suppress(InfeasibleError):  # the job says so itself
                chosen, replicas = select(plans, request.objective), int(plans.fingerprint.get("replicas", 1))
                found = expected(chosen, profile, change, variation=profile.variation(), replicas=replicas)
                plans = replace(plans, expected={chosen.index: found})
        write_plans(plans, plan)
    except PerseusError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _built(profile: Profile, request: PlanRequest) -> PlanSet:
    """Plan as requested, or one clock for each GPU where a change of clock outlasts an iteration."""
    timelines = () if request.timelines is None else read_timelines(Path(request.timelines))
    switching = Switching.of(profile)
    switching = replace(switching, split=request.split, waits=request.waits, budget=request.budget)
    made = partial(
        build,
        profile,
        request.schedule,
        blocking_power_w=request.blocking_power_w,
        reserve_pct=request.reserve_pct,
        verify=True,
        fingerprint=request.fingerprint,
    )
    try:
        return made(switching=switching, timelines=timelines)
    except SlowChangeError:
        return made(
            switching=replace(switching, budget=replace(request.budget, per_gpu_per_s=0.0, dated=False))
        )


if __name__ == "__main__":
    step_back_after(PROMPT_S)
    sys.exit(main(sys.argv[1:]))
