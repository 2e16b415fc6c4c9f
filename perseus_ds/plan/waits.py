"""Low clocks in waits: which waits are long enough to go down and be back before what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan.idle import Idle

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
    """The waits of all plans that go down, each named by its column (``Idle``); column by column.

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
        """Columns of its low waits."""
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
    idle_times: Sequence[Idle],
    ranks: Sequence[range],
    *,
    start_s: Seconds,
    end_s: Seconds,
    time_s: Seconds,
    clock: WaitClock,
) -> Waits:
    """Find every wait that goes down.

    Shape: ``ranks`` the columns of each; ``start_s``, ``end_s`` [computations, plans] in running order;
    ``time_s`` [plans].
    """
    rows = []
    for idle in idle_times:
        own = slice(ranks[idle.rank].start, ranks[idle.rank].stop)
        begin_s, until_s = idle.span_s(start_s[own], end_s[own], time_s)
        low_s = clock.low_s(until_s - begin_s)
        plan = np.flatnonzero(low_s > 0.0)
        rows.append((plan, np.full(len(plan), idle.column), low_s[plan]))
    if not rows:
        return Waits.none()
    plans, columns, lows_s = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.lexsort((plans, columns))
    return Waits(plans[order].astype(np.int32), columns[order].astype(np.int32), lows_s[order])
