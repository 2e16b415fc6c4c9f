"""``python -m perseus_ds.plan PROFILE REQUEST PLAN``: what a job's background planner runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.kernels import read_timelines
from perseus_ds.plan.build import build
from perseus_ds.plan.plan_file.store import write_plans
from perseus_ds.plan.request import read_request
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.step_back import PROMPT_S, step_back_after
from perseus_ds.profile import read_profile


def main(arguments: list[str]) -> int:
    """Plan and write; a refusal is one line and exit code 1."""
    profile_file, request_file, plan = map(Path, arguments)
    try:
        request = read_request(request_file)
        profile = read_profile(profile_file)
        timelines = () if request.timelines is None else read_timelines(Path(request.timelines))
        plans = build(
            profile,
            request.schedule,
            blocking_power_w=request.blocking_power_w,
            reserve_pct=request.reserve_pct,
            switching=replace(
                Switching.of(profile), split=request.split, waits=request.waits, budget=request.budget
            ),
            timelines=timelines,
            verify=True,
            fingerprint=request.fingerprint,
        )
        write_plans(plans, plan)
    except PerseusError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    step_back_after(PROMPT_S)
    sys.exit(main(sys.argv[1:]))
