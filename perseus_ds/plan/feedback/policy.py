"""A plan's feedback: how late a computation begins decides its clocks; looked up, not computed.

The planner makes it (`made`), the plan file carries it, emulator, expectation and job follow it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.files.digest import digest_of
from perseus_ds.plan.record import FeedbackWeights, PlanSet

_DIGITS = 16


class ClockAnswer(NamedTuple):
    """The clock that is asked for as a computation begins, and the one ``after_s`` later.

    It ends ``later_s`` later than on average, and what is asked for ahead of its end is due so much later.
    """

    first_mhz: int
    then_mhz: int
    after_s: float = 0.0
    later_s: float = 0.0


class ClockTable(NamedTuple):
    """What one computation does about its lateness.

    ``ahead_mhz`` is asked for before it begins, and on average it lasts ``lasts_s``. The lateness of a
    computation and that of the one before it on its rank are weighed by ``weights``, and ``beyond_s`` is
    added. Where the sum is above ``above_s[k - 1]`` and not above ``above_s[k]``, it goes on at
    ``first_mhz[k]`` and then at ``then_mhz[k]``. The last row is for all that is more. The second clock is
    asked for as it begins where the sum is ``at_once_s[k]``, and for each second of another sum ``delay[k]``
    seconds later. So it lasts ``share`` of the sum less.

    At a lateness beyond ``most_late_s`` nothing is corrected, for variation alone does not bring that about:
    then it is the plan's own clock, ``own_mhz``. Corrections move the end by ``sooner_s`` to ``later_s``.
    """

    begin_s: float
    weights: tuple[float, float]
    above_s: tuple[float, ...]
    first_mhz: tuple[int, ...]
    then_mhz: tuple[int, ...]
    at_once_s: tuple[float, ...]
    delay: tuple[float, ...]
    ahead_mhz: int
    own_mhz: int
    lasts_s: float
    most_late_s: float
    beyond_s: float = 0.0
    share: float = 0.0
    sooner_s: float = 0.0
    later_s: float = 0.0

    def decide(self, late_s: float, before_s: float) -> ClockAnswer:
        """Look up what to do; the plan's own clock where a lateness is unknown or no variation explains it.

        Units: seconds, NaN where unknown. ``before_s`` is 0 for a rank's first computation.
        Cost: about a microsecond.
        """
        if not abs(late_s) <= self.most_late_s or not math.isfinite(before_s):
            return ClockAnswer(self.own_mhz, self.own_mhz)
        weighted_s = self.beyond_s + self.weights[0] * late_s + self.weights[1] * before_s
        place = bisect_left(self.above_s, weighted_s)
        return ClockAnswer(
            self.first_mhz[place],
            self.then_mhz[place],
            max(0.0, self.delay[place] * (weighted_s - self.at_once_s[place])),
            min(self.later_s, max(self.sooner_s, -self.share * weighted_s)),
        )


def plan_digest(plans: PlanSet, index: int) -> str:
    """Name one plan by all that its clocks follow from."""
    split = plans.splits.of_plan(index)
    content: Mapping[str, object] = {
        "orders": [" ".join(map(str, order)) for order in plans.schedule.orders],
        "choice": plans.choice[index].tolist(),
        "splits": [[column, *split[column]] for column in sorted(split)],
        "clocks_mhz": [options.clock_mhz.tolist() for options in plans.options.values()],
    }
    return digest_of(content)[:_DIGITS]


def tables_of(plans: PlanSet, rank: int, plan: int) -> tuple[ClockTable, ...] | None:
    """Lay out the tables of one rank's computations, in running order; None where a plan has no feedback."""
    weights, found, portions = plans.feedback, [], plans.plan(plan).portions()
    if weights is None or weights.plan != plan:
        return None
    for column, instruction in plans.computations_of(rank):
        key = instruction.stage, instruction.kind
        options, used = plans.options[key], np.array(weights.options[key])
        clocks = list(zip(options.time_s[used].tolist(), options.clock_mhz[used].tolist(), strict=True))
        table = _table(clocks, weights, column, weights.weights[key], plans.change)
        own_mhz = max(int(options.clock_mhz[portion.option]) for portion in portions[instruction])
        found.append(table._replace(own_mhz=own_mhz))
    return tuple(found)


_Clock = tuple[float, int]
"""How long a computation lasts at a clock of so many MHz."""


def _table(
    clocks: Sequence[_Clock],
    weights: FeedbackWeights,
    column: int,
    own: tuple[float, float],
    change: ClockChange,
) -> ClockTable:
    """The later, the sooner to the next faster clock; where that is not enough at once, to one beyond it.

    ``clocks`` has the fastest first. The rows of the table have the slowest first.
    """
    learned_s, least_s, most_s = float(weights.lasts_s[column]), clocks[0][0], clocks[-1][0]
    lasts_s = min(max(learned_s, least_s), most_s)
    share = max(0.0, 1.0 - change.longest_s / lasts_s)
    at = min(range(len(clocks)), key=lambda place: abs(clocks[place][0] - lasts_s))
    rows = _rows(_Around(clocks, at, change), weights.changes if share else 0)

    def sum_of(ends_s: float) -> float:
        return (lasts_s - ends_s) / share if share else 0.0

    return ClockTable(
        begin_s=float(weights.begin_s[column]),
        weights=own,
        above_s=tuple(sum_of(row.until_s) for row in rows[:-1]),
        first_mhz=tuple(row.first_mhz for row in rows),
        then_mhz=tuple(row.then_mhz for row in rows),
        at_once_s=tuple(sum_of(row.at_once_s) for row in rows),
        delay=tuple(-share * row.delay for row in rows),
        ahead_mhz=clocks[at][1],
        own_mhz=clocks[at][1],
        lasts_s=lasts_s,
        most_late_s=float(weights.most_late_s[column]),
        beyond_s=lasts_s - learned_s,
        share=share,
        sooner_s=share * (least_s - lasts_s) if len(rows) > 1 else 0.0,
        later_s=share * (most_s - lasts_s) if len(rows) > 1 else 0.0,
    )


class _TableRow(NamedTuple):
    """Two clocks, for durations of at least ``until_s``, where the next row begins; the first has no next.

    With the second asked for at once the computation lasts ``at_once_s``. It is asked for ``delay`` seconds
    later for each second that the computation is to last longer.
    """

    first_mhz: int
    then_mhz: int
    at_once_s: float
    delay: float
    until_s: float


class _Around:
    """What a computation lasts that begins at ``clocks[at]`` and changes to others of them, fastest first."""

    def __init__(self, clocks: Sequence[_Clock], at: int, change: ClockChange) -> None:
        self.own = clocks[at]
        self.part_s = change.call_s + change.stall_s
        self._change = change
        known = [one for one in clocks if one == self.own or self._latency_s(one) + self.part_s < self.own[0]]
        self.slow_first = known[::-1]

    def _latency_s(self, clock: _Clock) -> float:
        return 0.0 if clock == self.own else self._change.latency_s(self.own[1], clock[1])

    def lasts_s(self, clock: _Clock) -> float:
        """How long it lasts where it changes to a clock at once."""
        latency_s = self._latency_s(clock)
        return latency_s + (1.0 - latency_s / self.own[0]) * clock[0]

    def row(self, first: _Clock, then: _Clock, until_s: float) -> _TableRow:
        """Go on at a first clock, asked for at once, and then at a second."""
        if first == then:
            return _TableRow(first[1], then[1], self.lasts_s(first), 0.0, until_s)
        (first_s, first_mhz), (then_s, then_mhz) = first, then
        latency_s = self._latency_s(first)
        later_s = self._change.latency_s(first_mhz, then_mhz) - latency_s
        at_once_s = latency_s + (1.0 - latency_s / self.own[0]) * then_s + later_s * (1.0 - then_s / first_s)
        return _TableRow(first_mhz, then_mhz, at_once_s, first_s / (first_s - then_s), until_s)


def _rows(around: _Around, changes: int) -> list[_TableRow]:
    """The rows of a table, the slowest first; no part of a computation is shorter than a change."""
    rows, own, part_s = [], around.own, around.part_s
    for slow, fast in pairwise(around.slow_first) if changes else ():
        step_s = slow[0] - fast[0]
        if changes > 1:
            rows.append(around.row(slow, slow, around.lasts_s(slow) - part_s * step_s / fast[0]))
            rows.append(around.row(slow, fast, around.lasts_s(fast) + part_s * step_s / slow[0]))
        elif slow == own:
            rows.append(around.row(own, own, own[0] - part_s * step_s / fast[0]))
        elif fast == own:
            rows.append(around.row(own, slow, own[0] + part_s * step_s / slow[0]))
        else:
            rows.append(around.row(own, slow, around.lasts_s(fast if slow[0] > own[0] else slow)))
    last = around.slow_first[-1] if changes else own
    return [*rows, around.row(last if changes > 1 else own, last, -math.inf)]
