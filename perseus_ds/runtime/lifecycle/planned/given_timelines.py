"""The timelines of kernels that a job was given: those that its GPUs can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perseus_ds.device import Capabilities
from perseus_ds.kernels import InstructionTimelines, read_timelines, write_timelines
from perseus_ds.kernels.segment import Timeline
from perseus_ds.runtime.lifecycle.job_context import JobContext


@dataclass(frozen=True, slots=True)
class Playable:
    """What can be run, how many timelines are left out, and why the first of them is."""

    instructions: tuple[InstructionTimelines, ...]
    left_out: int = 0
    reason: str = ""


def prepared(context: JobContext) -> str | None:
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


def _why_not(line: Timeline, able: Capabilities, *, memory: bool) -> str | None:
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
