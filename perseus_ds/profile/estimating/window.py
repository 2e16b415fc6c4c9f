"""What one rank saw at one clock: when each instruction ran, and how the energy counter moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseus_ds.profile.estimating.counter import CounterTrace
from perseus_ds.schedule import Instruction, Kind, Load


@dataclass(frozen=True, slots=True)
class Interval:
    """One instruction from its release to its end, on the device's time base.

    ``load`` is how much it worked on, None where nobody counts it. An interval that ``waits`` contains a wait
    for others, and its duration shows nothing of a clock.
    """

    instruction: Instruction
    start_s: float
    end_s: float
    load: Load | None = None
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
    def size(self) -> float:
        """The tokens of its load, 0 where nobody counts them."""
        return 0.0 if self.load is None else self.load.tokens

    @property
    def duration_s(self) -> float:
        """Time from release to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A few whole iterations at one clock; ``achieved_mhz`` and ``event_reasons`` were read meanwhile.

    ``temperature_c`` is the mean of what was read, None where nothing was.

    ``outside`` are the stretches (start, end) between iterations, in which the host did something else.
    ``loads`` states for every model stage to which load durations must be brought, where microbatches differ
    and somebody counts theirs.
    """

    clock_mhz: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    counter: CounterTrace
    achieved_mhz: int | None = None
    event_reasons: int = 0
    temperature_c: float | None = None
    outside: tuple[tuple[float, float], ...] = ()
    loads: Mapping[int, Load] = field(default_factory=dict)
