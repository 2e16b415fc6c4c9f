"""Context of all steps of a job's lifecycle, the profile that it may find, and what it asks of planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from perseus_ds.config import Objective, PerseusConfig
from perseus_ds.device.clock_change import Calibration, ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import DeviceError, PerseusError
from perseus_ds.plan.file import PlanRequest
from perseus_ds.plan.record import (
    GPUS_PER_NODE,
    ChangeBudget,
    ClockSegments,
    InstructionTimelines,
    read_timelines,
    write_timelines,
)
from perseus_ds.profile import Profile, read_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job, differences

# What a rank reckons with: how long the GPUs of this job take to change a clock, as measured or declared.

Answer = Calibration | DeviceError


@dataclass(slots=True)
class SwitchLatency:
    """Latency of this rank's GPU: as it declares, until ``calibration`` has measured it."""

    able: Capabilities
    calibration: Calibration | None = None

    @property
    def change(self) -> ClockChange:
        """Return how far ahead clocks are asked for: no higher one comes late, and no lower one early.

        A higher one may wait for the other GPUs of its node, as it did when all changed at once; a lower one
        may not have to.
        """
        change, found = ClockChange.of(self.able), self.calibration
        if found is None or found.down_s is None:
            return change
        down_s = max(0.0, found.down_s - change.call_s)
        return replace(change, settle_down_s=min(change.settle_down_s, down_s))


def join_calibrations(
    able: Capabilities, alone: Answer, everyone: Sequence[Answer], log: EventLog
) -> tuple[Capabilities, Calibration | None]:
    """Return what this rank should reckon with, after rank 0's GPU was measured alone and all at once."""
    known = [one for one in everyone if isinstance(one, Calibration)]
    latencies_s = [one.switch_latency_s for one in known if one.switch_latency_s is not None]
    if not latencies_s or not isinstance(alone, Calibration):
        why, declared_s = _why_not([alone, *everyone]), able.switch_latency_s
        log.event(
            "calibrated",
            f"how long a clock change takes could not be measured ({why}): reckoning with {_ms(declared_s)}",
            declared_s=declared_s,
            why=why,
        )
        return able, None
    periods_s = [one.counter_period_s for one in known if one.counter_period_s is not None]
    found = replace(
        alone,
        together_s=max(latencies_s),
        counter_period_s=median(periods_s) if periods_s else None,
        unreached=alone.unreached + sum(one.unreached for one in known if one is not alone),
        idle=alone.idle + sum(one.idle for one in known if one is not alone),
    )
    log.event(
        "calibrated",
        f"a clock change takes {_ms(found.switch_latency_s)} on one GPU and {_ms(found.together_s)} when all "
        "change at once",
        **asdict(found),
        memory_why_not=able.memory_why_not,
    )
    # read rarely, a counter seems slower, never quicker
    period_s = min(filter(None, (able.counter_period_s, found.counter_period_s)), default=None)
    call_s = able.switch_call_s if found.call_s is None else found.call_s
    latency_s = found.together_s or able.switch_latency_s
    reckoned = replace(able, switch_latency_s=latency_s, switch_call_s=call_s, counter_period_s=period_s)
    return reckoned, found


def _why_not(answers: Sequence[Answer]) -> str:
    """Explain why no latency was found: a refusal, an idle device, one that was held back, or a busy host."""
    errors = [str(one) for one in answers if isinstance(one, DeviceError)]
    known = [one for one in answers if isinstance(one, Calibration)]
    if errors:
        return errors[0]
    if any(one.idle for one in known):
        return "the GPU was idle, and an idle one clocks down by itself"
    return "a clock was not reached" if any(one.unreached for one in known) else "this host looked too rarely"


def _ms(duration_s: float | None) -> str:
    return "an unknown time" if duration_s is None else f"{1e3 * duration_s:.3g} ms"


@dataclass(frozen=True, slots=True)
class JobContext:
    """The job, what the user wants of it, what this rank's GPU can do, and the ways to others.

    Whatever else a step needs (marks, counters, books) it is handed by itself.
    """

    job: Job
    config: PerseusConfig
    reckoning: SwitchLatency
    channel: ControlChannel
    directory: RunDirectory
    log: EventLog

    @property
    def capabilities(self) -> Capabilities:
        """Return what this rank's GPU can do, as far as is known by now."""
        return self.reckoning.able

    @property
    def simulated(self) -> bool:
        """Return whether GPUs are simulated: the setting alone brings one."""
        return self.config.device == "simulated"

    @property
    def whose_time(self) -> str:
        """Words to stand behind a duration: simulated GPUs have a time of their own."""
        return " (simulated)" if self.simulated else ""


def find_profile(job: Job, directory: RunDirectory) -> Profile | str:
    """Read the profile, on rank 0, whose the run directory is; or state why there is none of this job."""
    try:
        profile = read_profile(directory.profile)
    except PerseusError as error:
        return str(error)
    wrong = differences(job.profile_fingerprint, profile.fingerprint)
    return f"{directory.profile} is of another job: {wrong}" if wrong else profile


def profile_in(context: JobContext) -> Profile | None:
    """Read the profile of this job, on rank 0; None where there is none."""
    found = find_profile(context.job, context.directory)
    return None if isinstance(found, str) else found


# What planning is asked for a job: its schedule, its objective, waiting power, the timelines given.

_DRIVER_SHARE = 0.5  # of a node's driver lock, which reads of energy and clocks need too
_LEAST_QUEUE_S = 0.002  # below, waiting for each other is what a host's own noise is


def plan_request(context: JobContext, job: Job) -> PlanRequest:
    """Ask for a plan, from the profile in the run directory; ``job`` is of one size of batches.

    Raises:
        ProfileError: there is no profile that can be read, or timelines that were given cannot be.
    """
    objective = context.config.objective
    profile = read_profile(context.directory.profile)
    assert profile.blocking_power_w is not None
    return PlanRequest(
        job.schedule,
        fingerprint=job.fingerprint,
        blocking_power_w=profile.blocking_power_w,
        reserve_pct=objective.reserve_pct,
        split="never" if job.replayed else objective.split,
        waits="never" if job.replayed else objective.waits,
        budget=ChangeBudget(None if objective.allows_dates else 0.0, dated=objective.allows_dates)
        if job.replayed
        else budget_of(objective, profile.calibration, context.capabilities, ranks=job.ranks),
        timelines=_prepare_timelines(context),
        objective=objective,
        change=context.reckoning.change,
    )


def budget_of(
    objective: Objective,
    calibration: Calibration | None,
    able: Capabilities,
    *,
    ranks: int,
) -> ChangeBudget:
    """Return what the user allows; by itself half of a driver's lock, where GPUs wait for it in turns.

    ``calibration`` is of the job's GPUs, alone and all at once.
    """
    per_node = objective.node_changes_per_s
    if per_node is None and calibration is not None:
        queue_s = ClockChange.of(able, calibration, gpus=min(ranks, GPUS_PER_NODE)).queue_s
        per_node = _DRIVER_SHARE / queue_s if queue_s >= _LEAST_QUEUE_S else None
    return ChangeBudget(objective.changes_per_s, per_node)


def _prepare_timelines(context: JobContext) -> str | None:
    """Write the timelines that this job's device can run to the run directory; None where there are none."""
    given = context.config.objective.timelines
    if given is None:
        return None
    kept, reasons = playable(
        read_timelines(Path(given)),
        context.capabilities,
        memory=context.simulated,
        stages=context.job.schedule.stages,
    )
    if reasons:
        context.log.line_once(f"{given}: {len(reasons)} timelines are left out: {reasons[0]}")
    if not kept:
        return None
    path = context.directory.given_timelines
    write_timelines(tuple(kept), path)
    return str(path)


def playable(
    given: Sequence[InstructionTimelines], able: Capabilities, *, memory: bool, stages: int
) -> tuple[list[InstructionTimelines], list[str]]:
    """Leave out what asks for clocks that the device has not, or whose memory clock is not set by us.

    Returns: what is kept, and the reason for each timeline that is left out.
    """
    kept: list[InstructionTimelines] = []
    reasons: list[str] = []
    for one in given:
        told = [_why_not_played(line, able, memory=memory) for line in one.timelines]
        if one.stage >= stages:
            told = [f"there is no stage {one.stage}"] * len(one.timelines)
        reasons += [reason for reason in told if reason is not None]
        lines = tuple(line for line, why in zip(one.timelines, told, strict=True) if why is None)
        if lines:
            kept.append(replace(one, timelines=lines))
    return kept, reasons


def _why_not_played(line: ClockSegments, able: Capabilities, *, memory: bool) -> str | None:
    for step in line.steps:
        clock_mhz, memory_mhz = step.pair.clock_mhz, step.pair.memory_mhz
        if clock_mhz is not None and clock_mhz not in able.clocks_mhz:
            return f"{clock_mhz} MHz is not a clock of this GPU"
        if memory_mhz is None:
            continue
        if able.memory_why_not is not None:
            return f"its memory clock cannot be set: {able.memory_why_not}"
        if not memory:
            return "memory clocks are set on simulated GPUs only"
        if memory_mhz not in able.memory_clocks_mhz:
            return f"{memory_mhz} MHz is not a memory clock of this GPU"
    return None
