"""Ways to run an instruction along a timeline of clocks, as a kernel scheduler gives them to the planner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from perseus_ds.device import ClockPair
from perseus_ds.errors import ProfileError
from perseus_ds.run_directory.whole_file import read_record, write_record
from perseus_ds.schedule import Kind

FORMAT = "perseus-kernel-timelines"


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """From this moment of the instruction on, its kernels run at this pair.

    ``offset_s`` counts from the instruction's beginning, as planned; ``launch`` is the first launch.
    """

    launch: int
    offset_s: float
    pair: ClockPair


@dataclass(frozen=True, slots=True)
class ClockSegments:
    """One way to run an instruction, and what it costs; the first step begins with it.

    Raises:
        ProfileError: a number that cannot be, or steps that do not ascend from the beginning.
    """

    time_s: float
    energy_j: float
    steps: tuple[TimelineStep, ...]

    def __post_init__(self) -> None:
        for name, value in (("time", self.time_s), ("energy", self.energy_j)):
            if not (math.isfinite(value) and value > 0):
                raise ProfileError(f"a timeline: {name} is {value}", hint="expected a finite number above 0")
        offsets = [step.offset_s for step in self.steps]
        if not offsets or offsets[0] != 0.0:
            raise ProfileError("a timeline does not begin with its instruction", hint="first offset_s is 0")
        if not all(a < b < self.time_s for a, b in pairwise(offsets)):
            raise ProfileError("the steps of a timeline do not ascend within its time")


@dataclass(frozen=True, slots=True)
class AtDefault:
    """Time and energy at the default pair of clocks.

    Raises:
        ProfileError: a number that is not above 0.
    """

    time_s: float
    energy_j: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value > 0 for value in (self.time_s, self.energy_j)):
            raise ProfileError(
                f"at the default pair: {self.time_s} s, {self.energy_j} J", hint="expected numbers above 0"
            )


@dataclass(frozen=True, slots=True)
class InstructionTimelines:
    """The ways to run one instruction of a stage, fastest first: its options for a pipeline planner.

    ``default`` is what it takes at the default pair by the same measurement, where that is known.
    ``spared_w`` is what a GPU that waits spares (W) at memory clocks below its own. ``temperature_c`` is
    what all energies were brought to; None: each timeline was measured as warm as it makes the GPU.
    """

    stage: int
    kind: Kind
    timelines: tuple[ClockSegments, ...]
    default: AtDefault | None = None
    spared_w: tuple[tuple[int, float], ...] = ()
    temperature_c: float | None = None

    def __post_init__(self) -> None:
        name = f"{self.kind.name.lower()} of stage {self.stage}"
        if not self.timelines:
            raise ProfileError(f"{name} has no timeline")
        for memory_mhz, watts in self.spared_w:
            if memory_mhz < 1 or not 0.0 <= watts < math.inf:
                raise ProfileError(
                    f"{name}: waiting at a memory clock of {memory_mhz} MHz spares {watts} W",
                    hint="expected MHz above 0 and watts from 0 on",
                )


@dataclass(frozen=True, slots=True)
class _TimelinesFile:
    instructions: tuple[InstructionTimelines, ...]


def write_timelines(instructions: tuple[InstructionTimelines, ...], path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_record(path, FORMAT, _TimelinesFile, _TimelinesFile(instructions))


def read_timelines(path: Path) -> tuple[InstructionTimelines, ...]:
    """Read the timelines of instructions, ours or those of another kernel scheduler.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return read_record(path, FORMAT, _TimelinesFile, remedy="plan again").instructions
