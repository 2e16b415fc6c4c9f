"""What every step of a job's lifecycle stands on."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.config import PerseusConfig
from perseus_ds.device import Capabilities
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.reckoning import Reckoning
from perseus_ds.runtime.observe.event_log import EventLog


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
