"""A plan's feedback: how late a computation begins decides its clock; looked up, not computed.

The planner makes it (`made`), the plan file carries it, emulator, expectation and job follow it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.files.digest import digest_of
from perseus_ds.plan.record import FeedbackWeights, PlanSet

_DIGITS = 16


class ClockTable(NamedTuple):
    """What one computation does about its lateness.

    The lateness of a computation and that of the one before it on its rank are weighed by ``weights``. Where
    the sum is less than ``above_s[k]`` and not less than the one before it in the list, it goes on at
    ``clock_mhz[k]``. The last clock is for all that is more. At a lateness beyond ``most_late_s`` nothing is
    corrected: variation alone does not bring that about: then it is the plan's own clock, ``own_mhz``.
    ``ahead_mhz`` is asked for before it begins; it lasts ``lasts_s`` there.
    """

    begin_s: float
    weights: tuple[float, float]
    above_s: tuple[float, ...]
    clock_mhz: tuple[int, ...]
    ahead_mhz: int
    own_mhz: int
    lasts_s: float
    most_late_s: float

    def clock(self, late_s: float, before_s: float) -> int:
        """Look the clock up; the plan's own where a lateness is unknown, or beyond what variation explains.

        Units: seconds, NaN where unknown. ``before_s`` is 0 for a rank's first computation.
        Cost: about a microsecond.
        """
        if not abs(late_s) <= self.most_late_s or not math.isfinite(before_s):
            return self.own_mhz
        weighted_s = self.weights[0] * late_s + self.weights[1] * before_s
        return self.clock_mhz[bisect_left(self.above_s, weighted_s)]


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
        table = _table(options.time_s[used], options.clock_mhz[used], weights, column, weights.weights[key])
        own_mhz = max(int(options.clock_mhz[portion.option]) for portion in portions[instruction])
        found.append(table._replace(own_mhz=own_mhz))
    return tuple(found)


def _table(
    time_s: NDArray[np.float64],
    clock_mhz: NDArray[np.int64],
    weights: FeedbackWeights,
    column: int,
    own: tuple[float, float],
) -> ClockTable:
    """The later, the faster: thresholds half way between the durations of neighbouring clocks.

    Shape: ``time_s``, ``clock_mhz`` [points], fastest first.
    """
    lasts_s = float(weights.lasts_s[column])
    slow_first, clocks = time_s[::-1], tuple(clock_mhz[::-1].tolist())
    above_s = tuple((lasts_s - (slow_first[1:] + slow_first[:-1]) / 2.0).tolist())
    ahead = bisect_left(above_s, 0.0)
    return ClockTable(
        begin_s=float(weights.begin_s[column]),
        weights=own,
        above_s=above_s,
        clock_mhz=clocks,
        ahead_mhz=clocks[ahead],
        own_mhz=clocks[ahead],
        lasts_s=float(slow_first[ahead]),
        most_late_s=float(weights.most_late_s[column]),
    )
