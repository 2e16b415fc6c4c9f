"""What every step of a job's lifecycle stands on, and the profile that it may find."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.config import PerseusConfig
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PerseusError
from perseus_ds.profile import Profile, read_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.lifecycle.reckoning import Reckoning


@dataclass(frozen=True, slots=True)
class JobContext:
    """The job, what the user wants of it, what this rank's GPU can do, and the ways to others.

    Whatever else a step needs (marks, counters, books) it is handed by itself.
    """

    job: Job
    config: PerseusConfig
    reckoning: Reckoning
    channel: ControlChannel
    directory: RunDirectory
    log: EventLog

    @property
    def capabilities(self) -> Capabilities:
        """What this rank's GPU can do, as far as is known by now."""
        return self.reckoning.able

    @property
    def simulated(self) -> bool:
        """Whether GPUs are simulated: the setting alone brings one."""
        return self.config.device == "simulated"

    @property
    def whose_time(self) -> str:
        """Words to stand behind a duration: simulated GPUs have a time of their own."""
        return " (simulated)" if self.simulated else ""


def profile_in(context: JobContext) -> Profile | None:
    """Read the profile, on rank 0, whose the run directory is; None where it has none of this job."""
    try:
        profile = read_profile(context.directory.profile)
    except PerseusError:
        return None
    return None if differences(context.job.profile_fingerprint, profile.fingerprint) else profile
