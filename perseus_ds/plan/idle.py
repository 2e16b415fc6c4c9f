"""Where a rank is idle in an iteration: between computations, at its beginning, and at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import Computation
from perseus_ds.schedule import Instruction, Kind, Schedule

BEGINNING = -1
"""The position of the idle time before a rank's first computation."""

_QUIET_AT_THE_END = frozenset({Kind.REDUCE_GRADS, Kind.STEP, Kind.LOAD, Kind.COMMIT})

Seconds = NDArray[np.float64]


def columns_of(schedule: Schedule) -> list[range]:
    """Columns of each rank's computations among those of all ranks, rank after rank."""
    counts = [sum(i.kind.is_computation for i in order) for order in schedule.orders]
    ends = np.cumsum(counts).tolist()
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


class Idle(NamedTuple):
    """One idle time of a rank: after the computation at ``position``, until the one at ``until`` begins.

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
        """When it begins and ends.

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
        if places:
            around = order[: places[0]], order[places[-1] + 1 :]
            found += _around(rank, columns, *around, fixed_s, ranks[-1].stop + rank)
    return found


def _around(  # noqa: PLR0917 - one rank's order, cut at its first and last computation
    rank: int,
    columns: range,
    before: Sequence[Instruction],
    after: Sequence[Instruction],
    fixed_s: Mapping[Computation, float],
    beginning: int,
) -> list[Idle]:
    """What lies around a rank's computations: one idle time, or one at its end and one at its beginning."""
    last, position = columns[-1], len(columns) - 1
    if all(_quiet(i) for i in (*after, *before)):
        return [Idle(rank, last, position, 0, again=True)]
    found = []
    if all(i.kind.is_transfer or i.kind in _QUIET_AT_THE_END for i in after):
        step = next((place for place, i in enumerate(after) if i.kind is Kind.STEP), len(after))
        first_s, last_s = _lasts_s(after[:step], fixed_s), _lasts_s(after[step:], fixed_s)
        found.append(Idle(rank, last, position, None, first_s=first_s, last_s=last_s))
    if all(_quiet(i) for i in before):
        found.append(Idle(rank, beginning, BEGINNING, 0, first_s=_lasts_s(before, fixed_s)))
    return found


def _quiet(instruction: Instruction) -> bool:
    """Whether it runs as fast at any clock."""
    return instruction.kind.is_transfer or instruction.kind in {Kind.LOAD, Kind.COMMIT}


def _lasts_s(order: Sequence[Instruction], fixed_s: Mapping[Computation, float]) -> float:
    return sum(fixed_s.get((i.stage, i.kind), 0.0) for i in order if not i.kind.is_transfer)
