"""What planning is asked for a job: its schedule, its objective, and the profile's waiting power."""

from __future__ import annotations

from perseus_ds.device import ClockChange
from perseus_ds.plan import PlanRequest
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.profile import read_profile
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.planned.given_timelines import prepared


def plan_request(context: JobContext, job: Job, group: int) -> PlanRequest:
    """Ask for a plan of one group, from its profile in the run directory; ``job`` is of one size of batches.

    Raises:
        ProfileError: there is no profile that can be read, or timelines that were given cannot be.
    """
    objective = context.config.objective
    profile = read_profile(context.directory.profile_of(group))
    assert profile.blocking_power_w is not None
    return PlanRequest(
        job.schedule,
        fingerprint=job.plan_fingerprint(group),
        blocking_power_w=profile.blocking_power_w,
        reserve_pct=objective.reserve_pct,
        split=objective.split,
        waits=objective.waits,
        budget=ChangeBudget(objective.changes_per_s, objective.node_changes_per_s),
        timelines=prepared(context),
        objective=objective,
        change=ClockChange.of(context.capabilities),
    )
