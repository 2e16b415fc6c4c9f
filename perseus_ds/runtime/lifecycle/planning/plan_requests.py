"""What planning is asked for a job: its schedule, its objective, waiting power, the timelines given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import Calibration, ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.plan import PlanRequest
from perseus_ds.plan.record import (
    GPUS_PER_NODE,
    ChangeBudget,
    ClockSegments,
    InstructionTimelines,
    read_timelines,
    write_timelines,
)
from perseus_ds.profile import read_profile
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext

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
        split=objective.split,
        waits=objective.waits,
        budget=budget_of(
            objective,
            profile.calibration,
            context.capabilities,
            ranks=job.ranks,
        ),
        timelines=_prepared(context),
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
    """What the user allows; by itself half of a driver's lock, where GPUs wait for it in turns.

    ``calibration`` is of the job's GPUs, alone and all at once.
    """
    per_node = objective.node_changes_per_s
    if per_node is None and calibration is not None:
        queue_s = ClockChange.of(able, calibration, gpus=min(ranks, GPUS_PER_NODE)).queue_s
        per_node = _DRIVER_SHARE / queue_s if queue_s >= _LEAST_QUEUE_S else None
    return ChangeBudget(objective.changes_per_s, per_node)


@dataclass(frozen=True, slots=True)
class Playable:
    """What can be run, how many timelines are left out, and why the first of them is."""

    instructions: tuple[InstructionTimelines, ...]
    left_out: int = 0
    reason: str = ""


def _prepared(context: JobContext) -> str | None:
    """Write the timelines that this job's device can run to the run directory; None where there are none.

    Raises:
        ProfileError: the file cannot be read.
    """
    given = context.config.objective.timelines
    if given is None:
        return None
    found = playable(
        read_timelines(Path(given)),
        context.capabilities,
        memory=context.simulated,
        stages=context.job.schedule.stages,
    )
    if found.left_out:
        context.log.line_once(f"{given}: {found.left_out} timelines are left out: {found.reason}")
    if not found.instructions:
        return None
    path = context.directory.given_timelines
    write_timelines(found.instructions, path)
    return str(path)


def playable(
    given: Sequence[InstructionTimelines], able: Capabilities, *, memory: bool, stages: int
) -> Playable:
    """Leave out what asks for clocks that the device has not, or whose memory clock is not set by us."""
    kept, reasons = [], []
    for one in given:
        told = [_why_not(line, able, memory=memory) for line in one.timelines]
        if one.stage >= stages:
            told = [f"there is no stage {one.stage}"] * len(one.timelines)
        reasons += [reason for reason in told if reason is not None]
        lines = tuple(line for line, why in zip(one.timelines, told, strict=True) if why is None)
        if lines:
            kept.append(replace(one, timelines=lines))
    return Playable(tuple(kept), len(reasons), reasons[0] if reasons else "")


def _why_not(line: ClockSegments, able: Capabilities, *, memory: bool) -> str | None:
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
