"""Low clocks in waits: which waits are long enough to go down and be back before what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Instruction, Kind, Schedule

# Where a rank is idle in an iteration: between computations, at its beginning, and at its end.

BEGINNING = -1
"""The position of the idle time before a rank's first computation."""

_QUIET_AT_THE_END = frozenset({Kind.REDUCE_GRADS, Kind.STEP})

Seconds = NDArray[np.float64]


def columns_of(schedule: Schedule) -> list[range]:
    """Columns of each rank's computations among those of all ranks, rank after rank."""
    counts = [sum(i.kind.is_computation for i in order) for order in schedule.orders]
    ends = np.cumsum(counts).tolist()
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


class Idle(NamedTuple):
    """An idle time of a rank: after the computation at ``position``, until the one at ``until`` begins.

    Positions count the rank's computations in running order; ``BEGINNING`` is the iteration's own, and
    ``until`` None its end. ``again``: what follows is the next iteration's. ``column`` names it among
    all ranks: the column of the computation before, behind them all for a rank's beginning. ``first_s`` and
    ``last_s`` are what the rank does itself as it begins and before it ends (a reduction, a step).
    """

    rank: int
    column: int
    position: int
    until: int | None
    again: bool = False
    first_s: float = 0.0
    last_s: float = 0.0

    def span_s(self, start_s: Seconds, end_s: Seconds, total_s: Seconds) -> tuple[Seconds, Seconds]:
        """Return when it begins and ends.

        Shape: ``start_s``, ``end_s`` [computations of the rank, ...]; ``total_s`` [...], also returned.
        """
        begins_s = 0.0 * total_s if self.position == BEGINNING else end_s[self.position]
        from_s = begins_s + self.first_s
        if self.until is None:
            return from_s, total_s - self.last_s
        return from_s, start_s[self.until] + (total_s if self.again else 0.0)


def idles(schedule: Schedule, fixed_s: Mapping[Computation, float]) -> list[Idle]:
    """List all idle times, however short, rank after rank.

    Between computations there may be transfers and loading. Where nothing else follows the last, the next
    iteration's first ends the idle time. Else the end of an iteration is idle from the reduction of gradients
    until all ranks step together, and its beginning until the first computation. Where a rank does
    anything else in between the clock is left alone: that might become slower.
    """
    found: list[Idle] = []
    ranks = columns_of(schedule)
    for rank, (order, columns) in enumerate(zip(schedule.orders, ranks, strict=True)):
        places = [place for place, i in enumerate(order) if i.kind.is_computation]
        found += [
            Idle(rank, columns[position], position, position + 1)
            for position, (here, there) in enumerate(pairwise(places))
            if all(_quiet(i) for i in order[here + 1 : there])
        ]
        if not places:
            continue
        before, after = order[: places[0]], order[places[-1] + 1 :]
        last, position = columns[-1], len(columns) - 1
        if all(_quiet(i) for i in (*after, *before)):
            found.append(Idle(rank, last, position, 0, again=True))
            continue
        if all(_quiet(i) or i.kind in _QUIET_AT_THE_END for i in after):
            step = next((place for place, i in enumerate(after) if i.kind is Kind.STEP), len(after))
            first_s, last_s = _lasts_s(after[:step], fixed_s), _lasts_s(after[step:], fixed_s)
            found.append(Idle(rank, last, position, None, first_s=first_s, last_s=last_s))
        if all(_quiet(i) for i in before):
            beginning = ranks[-1].stop + rank
            found.append(Idle(rank, beginning, BEGINNING, 0, first_s=_lasts_s(before, fixed_s)))
    return found


def _quiet(instruction: Instruction) -> bool:
    """Return whether it runs as fast at any clock."""
    return instruction.kind.is_transfer or instruction.kind in {Kind.LOAD, Kind.COMMIT}


def _lasts_s(order: Sequence[Instruction], fixed_s: Mapping[Computation, float]) -> float:
    return sum(fixed_s.get((i.stage, i.kind), 0.0) for i in order if not i.kind.is_transfer)


GUARD_SHARE, GUARD_S = 0.05, 0.002
"""Time before the planned end at which the clock is up again: a share of the wait, and seconds."""
LEAST_WAIT_S = 0.05
"""Shorter waits are left alone: they come and go with what varies, and what follows would begin slowly."""


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
        """Return how long before its end the wait is at a high clock again."""
        return GUARD_SHARE * wait_s + GUARD_S

    def low_s(self, wait_s: Seconds) -> Seconds:
        """Return how long each wait is at the low clock; 0 where it is too short to go down and up.

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
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))

    def __len__(self) -> int:
        return len(self.plan)

    def of_plan(self, plan: int) -> frozenset[int]:
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
