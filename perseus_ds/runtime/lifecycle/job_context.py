"""What every step of a job's lifecycle stands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.config import PerseusConfig
from perseus_ds.device import Calibration, Capabilities, RequestCounts
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.accounting import EnergyAccount
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.observe.conflict_monitor import ConflictMonitor
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.runtime.observe.publishing import Durations


@dataclass(frozen=True, slots=True)
class JobContext:
    """The job, what the user wants of it, and the parts that all steps share.

    ``virtual_time``: this rank's GPU has a time of its own, which passes only while it is used.
    ``clock_requests`` counts what this rank asked of its GPU.
    ``overrun_share`` is of how many of this rank's computations in scaled time the host was too slow.
    """

    job: Job
    config: PerseusConfig
    capabilities: Capabilities
    calibration: Calibration | None
    simulated: bool
    virtual_time: bool
    channel: ControlChannel
    watch: EnergyWatch
    account: EnergyAccount
    durations: Durations
    arrivals: Arrivals
    conflict_monitor: ConflictMonitor
    directory: RunDirectory
    log: EventLog
    overrun_share: Callable[[], float]
    clock_requests: RequestCounts
