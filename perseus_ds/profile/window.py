"""What one rank saw at one clock: when each instruction ran, and how the energy counter moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseus_ds.profile.counter import CounterTrace
from perseus_ds.schedule import Instruction, Kind


@dataclass(frozen=True, slots=True)
class Interval:
    """One instruction from its release to its end, on the device's time base.

    ``size`` is how much it worked on (elements), 0 where the framework does not tell; what ``waits`` contains
    a wait for others, and its duration tells nothing of a clock.
    """

    instruction: Instruction
    start_s: float
    end_s: float
    size: int = 0
    waits: bool = False

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
    ``sizes`` says for every model stage to which size (elements) durations are to be brought, where
    microbatches differ and the framework tells theirs.
    """

    clock_mhz: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    counter: CounterTrace
    achieved_mhz: int | None = None
    event_reasons: int = 0
    outside: tuple[tuple[float, float], ...] = ()
    sizes: Mapping[int, float] = field(default_factory=dict)
