"""What a plan can be expected to save on this job's GPUs, from the profile that it was made of."""

from __future__ import annotations

from perseus_ds.device import ClockChange
from perseus_ds.errors import PerseusError
from perseus_ds.plan import Expected, FrequencyPlan, expected
from perseus_ds.profile import read_profile
from perseus_ds.runtime.job import differences
from perseus_ds.runtime.lifecycle.job_context import JobContext


def expected_of(context: JobContext, plan: FrequencyPlan, group: int) -> Expected:
    """Saving and slowdown to hold a measurement against; the plan's own where its profile is not there.

    The planner has worked it out, beside the training, for as many replicas and this objective. Else rank 0
    does: the run directory is its own.
    """
    known = plan.of.expected.get(plan.index)
    if known is not None and plan.of.fingerprint.get("replicas") == str(context.job.replicas):
        return known
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    if context.job.rank != 0:
        return own
    try:
        profile = read_profile(context.directory.profile_of(group))
    except PerseusError:
        return own
    foreign = differences(context.job.profile_fingerprint(group), profile.fingerprint)
    if foreign or not profile.blocking_w:
        return own
    return expected(
        plan,
        profile,
        ClockChange.of(context.capabilities),
        variation=profile.variation(),
        replicas=context.job.replicas,
    )
