"""The profile of this job in the run directory, where there is one that can be read."""

from __future__ import annotations

from perseus_ds.errors import PerseusError
from perseus_ds.profile import Profile, read_profile
from perseus_ds.runtime.job import differences
from perseus_ds.runtime.lifecycle.job_context import JobContext


def profile_in(context: JobContext, group: int) -> Profile | None:
    """Read a group's profile, on rank 0, whose the run directory is; None where it has none of this job."""
    try:
        profile = read_profile(context.directory.profile_of(group))
    except PerseusError:
        return None
    return None if differences(context.job.profile_fingerprint(group), profile.fingerprint) else profile
