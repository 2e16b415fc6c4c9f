"""What one rank saw at one clock: when each instruction ran, and how the energy counter moved."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.profile.counter import CounterTrace
from perseus_ds.schedule import Instruction, Kind


@dataclass(frozen=True, slots=True)
class Interval:
    """One instruction from its release to its end, on the device's time base."""

    instruction: Instruction
    start_s: float
    end_s: float

    @property
    def kind(self) -> Kind:
        """What it was."""
        return self.instruction.kind

    @property
    def computation(self) -> tuple[int, Kind]:
        """What it is measured as: all microbatches of a model stage alike."""
        return self.instruction.stage, self.instruction.kind

    @property
    def duration_s(self) -> float:
        """Time from release to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A few whole iterations at one clock; ``achieved_mhz`` and ``event_reasons`` were read meanwhile.

    ``outside`` are the stretches (start, end) between iterations, in which the host did something else.
    """

    clock_mhz: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    counter: CounterTrace
    achieved_mhz: int | None = None
    event_reasons: int = 0
    outside: tuple[tuple[float, float], ...] = ()
