"""``python -m perseus_ds.plan PROFILE REQUEST PLAN``: what a job's background planner runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perseus_ds.errors import InfeasibleError, PerseusError, SlowChangeError
from perseus_ds.plan.between import with_plan_within
from perseus_ds.plan.build import build
from perseus_ds.plan.plan_file.store import write_plans
from perseus_ds.plan.playing.expected import expected, with_power_ratio
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.request import PlanRequest, read_request
from perseus_ds.plan.select import select
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.step_back import PROMPT_S, step_back_after
from perseus_ds.plan.timelines import InstructionTimelines, read_timelines
from perseus_ds.profile import Profile, read_profile, smoothed


def main(arguments: list[str]) -> int:
    """Plan and write; a refusal is one line and exit code 1."""
    profile_file, request_file, plan = map(Path, arguments)
    try:
        request = read_request(request_file)
        profile = smoothed(read_profile(profile_file), scatter=True)
        plans = _built(profile, request)
        plans = with_plan_within(plans, request.objective)
        plans = with_power_ratio(plans, profile, request.change or plans.change)
        write_plans(_with_expected(plans, profile, request), plan)
    except PerseusError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _built(profile: Profile, request: PlanRequest) -> PlanSet:
    """Plan as requested, or one clock for each GPU where a change of clock outlasts an iteration."""
    timelines = () if request.timelines is None else read_timelines(Path(request.timelines))
    switching = Switching.of(profile)
    switching = replace(switching, split=request.split, waits=request.waits, budget=request.budget)

    def made(switching: Switching, timelines: Sequence[InstructionTimelines]) -> PlanSet:
        return build(
            profile,
            request.schedule,
            blocking_power_w=request.blocking_power_w,
            reserve_pct=request.reserve_pct,
            switching=switching,
            timelines=timelines,
            verify=True,
            fingerprint=request.fingerprint,
        )

    try:
        return made(switching, timelines)
    except SlowChangeError:
        return made(replace(switching, budget=replace(request.budget, per_gpu_per_s=0.0)), ())


def _with_expected(plans: PlanSet, profile: Profile, request: PlanRequest) -> PlanSet:
    """Work out what to expect of the job's plan here: on its own thread training would wait for it."""
    if request.objective is None or not profile.blocking_w:
        return plans
    try:
        plan = select(plans, request.objective)
    except InfeasibleError:  # the job says so itself
        return plans
    found = expected(
        plan,
        profile,
        request.change or plans.change,
        variation=profile.variation(),
        replicas=int(request.fingerprint.get("replicas", 1)),
    )
    return replace(plans, expected={plan.index: found})


if __name__ == "__main__":
    step_back_after(PROMPT_S)
    sys.exit(main(sys.argv[1:]))
