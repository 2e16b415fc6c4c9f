"""Low clocks in waits: which waits are long enough to go down and be back before what follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.schedule import Instruction, Schedule

GUARD_SHARE, GUARD_S = 0.05, 0.002
"""How much earlier than planned the clock is up again: a share of the wait, and seconds; durations vary."""
LEAST_WAIT_S = 0.05
"""Shorter waits are left alone: they come and go with what varies, and what follows would begin slowly."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WaitClock:
    """The clock that a wait goes down to, what it saves, and how long it takes to get there and back.

    ``power_w`` is what a waiting GPU takes at ``clock_mhz``, ``high_power_w`` what it takes otherwise.

    Raises:
        PlanError: powers that are no powers, or a low clock that takes more.
    """

    clock_mhz: int
    power_w: float
    high_power_w: float
    change: ClockChange

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high_power_w) and 0.0 <= self.power_w <= self.high_power_w):
            raise PlanError(
                f"waiting takes {self.power_w!r} W at {self.clock_mhz} MHz and {self.high_power_w!r} W else",
                hint="expected a low clock that takes less",
            )

    @property
    def down_s(self) -> float:
        """From asking for the low clock to having it."""
        return self.change.call_s + self.change.settle_down_s

    @property
    def up_s(self) -> float:
        """From asking for a higher clock to having it."""
        return self.change.call_s + self.change.settle_up_s

    def guard_s(self, wait_s: Seconds) -> Seconds:
        """How long before its end the wait is at a high clock again."""
        return GUARD_SHARE * wait_s + GUARD_S

    def low_s(self, wait_s: Seconds) -> Seconds:
        """How long each wait is at the low clock; 0 where it is too short to be down before it has to go up.

        The old clock runs on while a change is under way: high on the way down, low on the way up.
        """
        up_asked_s = wait_s - self.guard_s(wait_s) - self.up_s
        long_enough = (up_asked_s > self.down_s) & (wait_s >= LEAST_WAIT_S)
        return np.where(long_enough, up_asked_s + self.up_s - self.down_s, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The waits of all plans that go down, each named by the computation before it; column by column.

    ``low_s`` is how long the low clock is in force.

    Shape: three vectors of one length.
    """

    plan: NDArray[np.int32]
    column: NDArray[np.int32]
    low_s: Seconds

    @classmethod
    def none(cls) -> Waits:
        """No wait changes its clock."""
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))

    def __len__(self) -> int:
        return len(self.plan)

    def of_plan(self, plan: int) -> frozenset[int]:
        """Columns of the computations that a low wait follows."""
        return frozenset(self.column[self.plan == plan].tolist())

    def total_s(self, plans: int) -> Seconds:
        """Seconds at the low clock, all ranks together.

        Shape: [plans].
        """
        return np.bincount(self.plan, weights=self.low_s, minlength=plans).astype(np.float64)

    def of(self, plans: NDArray[np.int32]) -> Waits:
        """Keep some plans, renumbered in the order given (ascending)."""
        kept = np.isin(self.plan, plans)
        number = np.searchsorted(plans, self.plan[kept]).astype(np.int32)
        return Waits(number, self.column[kept], self.low_s[kept])


def low_waits(
    schedule: Schedule, start_s: Seconds, end_s: Seconds, time_s: Seconds, clock: WaitClock
) -> Waits:
    """Find every wait that goes down.

    Shape: ``start_s``, ``end_s`` [computations, plans] in running order; ``time_s`` [plans].
    """
    rows = []
    for column, following, again in idle_pairs(schedule):
        wait_s = start_s[following] + (time_s if again else 0.0) - end_s[column]
        low_s = clock.low_s(wait_s)
        plan = np.flatnonzero(low_s > 0.0)
        rows.append((plan, np.full(len(plan), column), low_s[plan]))
    if not rows:
        return Waits.none()
    plans, columns, lows_s = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.lexsort((plans, columns))
    return Waits(plans[order].astype(np.int32), columns[order].astype(np.int32), lows_s[order])


def idle_pairs(schedule: Schedule) -> Iterator[tuple[int, int, bool]]:
    """Yield the columns of computations with nothing but transfers between them on their rank.

    The last is followed by the first, of the next iteration: the third says so. Where the rank does anything
    else in between (a step, a reduction, loading) the clock is left alone: that might become slower.
    """
    first = 0
    for order in schedule.orders:
        idle = _idle_after(order)
        count = len(idle)
        columns = range(first, first + count)
        for (here, quiet), there in zip(zip(columns, idle, strict=True), [*columns[1:], first], strict=False):
            if quiet:
                yield here, there, there == first
        first += count


def _idle_after(order: tuple[Instruction, ...]) -> list[bool]:
    """For every computation of a rank, whether only transfers follow until the next one."""
    places = [place for place, i in enumerate(order) if i.kind.is_computation]
    if not places:
        return []
    around = [*places, places[0] + len(order)]
    twice = order + order
    return [all(i.kind.is_transfer for i in twice[a + 1 : b]) for a, b in pairwise(around)]
