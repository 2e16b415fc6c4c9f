"""What one rank saw at one clock: when each instruction ran, and how the energy counter moved.

The counter moves in steps and is read as a continuous quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.schedule import Instruction, Kind, Load


class CounterTrace:
    """The moments at which a counter was seen to change, with the value it changed to.

    A data-centre GPU's counter moves about every 100 ms: between two changes energy is interpolated,
    and no single instruction is ever read off it.

    Units: seconds on the device's time base; joules.
    Source: arXiv 2312.02741 (update periods); shared by every estimate of energy here.
    """

    def __init__(self, time_s: Sequence[float], energy_j: Sequence[float]) -> None:
        self.time_s: NDArray[np.float64] = np.asarray(time_s, np.float64)
        self.energy_j: NDArray[np.float64] = np.asarray(energy_j, np.float64)

    def __len__(self) -> int:
        return len(self.time_s)

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether the counter moved before ``start_s`` and after ``end_s``."""
        return len(self) > 1 and bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def energy_between(self, start_s: float, end_s: float) -> float:
        """Joules used from ``start_s`` to ``end_s``.

        Raises:
            IncompleteProfileError: the counter was not watched over all of it.
        """
        if not self.covers(start_s, end_s):
            raise IncompleteProfileError(
                f"the energy counter moved {len(self)} times and not on both sides of the "
                f"{end_s - start_s:.3g} s measured",
                hint="measure for longer than the counter's period",
            )
        start_j, end_j = np.interp([start_s, end_s], self.time_s, self.energy_j)
        return float(end_j - start_j)


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
