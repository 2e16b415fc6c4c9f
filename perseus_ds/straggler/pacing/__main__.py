"""``python -m perseus_ds.straggler.pacing PROFILE REQUEST PLAN``: add what a plan comes to by loads.

A job's background planner runs it where the profile's windows saw loads. A plan whose iterations cannot be
run by their loads stays as it is.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from perseus_ds.errors import InfeasibleError, PerseusError
from perseus_ds.own_process import OwnProcess
from perseus_ds.plan import PlanSet, read_plans, read_request, select, write_plans
from perseus_ds.plan.following import why_not
from perseus_ds.plan.request import PlanRequest
from perseus_ds.plan.step_back import PROMPT_S, step_back_after
from perseus_ds.profile import Profile, read_profile
from perseus_ds.straggler.pacing.on_paper import expected_by_loads


def main(arguments: list[str]) -> int:
    """Work it out and write; a refusal is one line and exit code 1."""
    profile, request, plan = map(Path, arguments)
    try:
        plans = read_plans(plan)
        found = _with_loads(plans, read_profile(profile), read_request(request))
        if found is not plans:
            write_plans(found, plan)
    except PerseusError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _with_loads(plans: PlanSet, profile: Profile, request: PlanRequest) -> PlanSet:
    if request.objective is None or not profile.blocking_w:
        return plans
    if why_not(plans, profile, splits=request.split == "auto") is not None:
        return plans
    try:
        plan = select(plans, request.objective)
    except InfeasibleError:  # the job says so itself
        return plans
    replicas, change = int(request.fingerprint.get("replicas", 1)), request.change or plans.change
    found = expected_by_loads(plan, profile, request.objective, change, replicas=replicas)
    if found is None:
        return plans
    without, with_it = found
    return replace(plans, expected={plan.index: without}, by_loads={plan.index: with_it})


if __name__ == "__main__":
    OwnProcess.declare()
    step_back_after(PROMPT_S)
    sys.exit(main(sys.argv[1:]))
