"""What a plan can be expected to save on this job's GPUs, from the profile that it was made of."""

from __future__ import annotations

from perseus_ds.device import ClockChange
from perseus_ds.errors import PerseusError
from perseus_ds.plan import FrequencyPlan, expected_saving_pct
from perseus_ds.profile import read_profile
from perseus_ds.runtime.job import differences
from perseus_ds.runtime.lifecycle.job_context import JobContext


def expected_pct(context: JobContext, plan: FrequencyPlan, group: int) -> float:
    """The saving to hold a measurement against; the plan's own where its profile is not there.

    Rank 0 alone knows: the run directory is its own.
    """
    if context.job.rank != 0:
        return plan.saving_pct
    try:
        profile = read_profile(context.directory.profile_of(group))
    except PerseusError:
        return plan.saving_pct
    foreign = differences(context.job.profile_fingerprint(group), profile.fingerprint)
    if foreign or not profile.blocking_w:
        return plan.saving_pct
    return expected_saving_pct(plan, ClockChange.of(context.capabilities), profile.blocking_w)
