"""Plans in which every lane (a GPU) keeps one level (a clock) for all that it runs, but perhaps for its ends.

From all levels highest, the lane is lowered that saves most for each second that the longest path grows by.
Of all plans on the way those are kept that no other beats. A lane's part of the longest path bounds how much
that grows at least, so that few lanes are tried.

Source: Minoux 1978 (accelerated greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.schedule.dag import LongestPaths
from perseus_ds.solver.discrete import Lanes
from perseus_ds.solver.frontier import Frontier, bounds_at
from perseus_ds.solver.problem import Floats, Indices, Plans, Problem, blended, undominated

_ROUNDING = 1e-9


def one_level(
    frontier: Frontier, times_s: Floats, lanes: Lanes, *, kept: Sequence[Sequence[tuple[int, int]]] = ()
) -> Plans:
    """Choose a level for every lane, for every wanted time; drop plans that another beats.

    Each of ``kept`` is a further way to run lanes: so many of each lane's first and last activities stay at
    the highest level.

    Shape: ``kept`` [ways, lanes].
    Cost: one or a few passes over the graph for each level of each lane, in each way.
    """
    each = [_Lane.of(frontier.whole.problem, order, lanes.level_of) for order in lanes.orders]
    found = _lowered(frontier, each)
    for ends in kept:
        found += _lowered(frontier, [lane.keeping(*own) for lane, own in zip(each, ends, strict=True)])
    every_s, every_j, options = (np.array(column) for column in zip(*found, strict=True))
    best = undominated(every_s, every_j)
    within = np.searchsorted(every_s[best], np.unique(times_s) * (1.0 + _ROUNDING), side="right") - 1
    best = best[np.unique(np.maximum(within, 0))]
    bound_j = bounds_at(frontier, np.maximum(every_s, frontier.t_min_s))
    return Plans(every_s, every_j, bound_j, options, options, np.ones(options.shape)).at(best)


def _lowered(frontier: Frontier, lanes: Sequence[_Lane]) -> list[tuple[float, float, Indices]]:
    """Return time, cost and options of every plan on the way down."""
    problem = frontier.whole.problem
    paths = LongestPaths(frontier.whole.graph, problem.delay_s.tolist())
    choice, level = np.zeros(len(problem), np.int32), [0] * len(lanes)
    for lane in lanes:
        choice[lane.order] = lane.option[0]
    lasts_s, _ = blended(problem, choice, choice, np.ones(len(problem)))
    found = list[tuple[float, float, Indices]]()
    while True:
        ends_s = paths.ends(lasts_s)
        time_s, cost_j = paths.over(ends_s), sum(one.cost_j[at] for one, at in zip(lanes, level, strict=True))
        found.append((time_s, cost_j, choice.copy()))
        on_path = np.zeros(len(problem), np.bool_)
        on_path[paths.longest(ends_s)] = True
        which = _best(paths, lanes, level, lasts_s=lasts_s, on_path=on_path, time_s=time_s)
        if which is None:
            return found
        level[which] += 1
        lane, at = lanes[which], level[which]
        choice[lane.order], lasts_s[lane.order] = lane.option[at], lane.duration_s[at]


class _Lane(NamedTuple):
    """Activities of a lane, and at each level their options, durations and whole cost; the fastest first.

    A level that is slower and saves nothing is left out.

    Shape: ``order`` [activities]; ``option``, ``duration_s``, ``each_j`` [levels, activities].
    """

    order: Indices
    option: Indices
    duration_s: Floats
    each_j: Floats
    cost_j: list[float]

    @classmethod
    def of(cls, problem: Problem, order: Indices, level_of: Sequence[Indices]) -> _Lane:
        tables = problem.table_of[order].tolist()
        levels = sorted(set.intersection(*(set(level_of[table].tolist()) for table in set(tables))))
        at = [{table: level_of[table].tolist().index(one) for table in set(tables)} for one in levels]
        option = np.array([[options[table] for table in tables] for options in at], np.int32)
        duration_s, each_j = (
            np.array([[own[t][o] for t, o in zip(tables, row, strict=True)] for row in option])
            for own in zip(*((one.duration_s, one.cost_j) for one in problem.tables), strict=True)
        )
        kept = undominated(duration_s.sum(axis=1), each_j.sum(axis=1))
        return cls(order, option[kept], duration_s[kept], each_j[kept], each_j[kept].sum(axis=1).tolist())

    def keeping(self, first: int, last: int) -> _Lane:
        """Return it with so many activities at the highest level at each level of the others."""
        at = np.arange(len(self.order))
        ends = (at < first) | (at >= len(at) - last)
        option, duration_s, each_j = (
            np.where(ends, own[0], own) for own in (self.option, self.duration_s, self.each_j)
        )
        return _Lane(self.order, option, duration_s, each_j, each_j.sum(axis=1).tolist())


def _best(
    paths: LongestPaths,
    lanes: Sequence[_Lane],
    level: Sequence[int],
    *,
    lasts_s: Floats,
    on_path: NDArray[np.bool_],
    time_s: float,
) -> int | None:
    """Return the lane whose next level saves most for each second; None where none saves anything."""
    rates = list[tuple[float, int]]()
    for which, (lane, at) in enumerate(zip(lanes, level, strict=True)):
        if at + 1 < len(lane.cost_j) and (saved_j := lane.cost_j[at] - lane.cost_j[at + 1]) > 0.0:
            longer_s = lane.duration_s[at + 1] - lane.duration_s[at]
            rates.append((saved_j / max(float(longer_s[on_path[lane.order]].sum()), _ROUNDING), which))
    best, highest = None, 0.0
    for most, which in sorted(rates, reverse=True):
        if most <= highest:
            break
        lane, at, trial_s = lanes[which], level[which], lasts_s.copy()
        trial_s[lane.order] = lane.duration_s[at + 1]
        later_s = paths.over(paths.ends(trial_s)) - time_s
        rate = (lane.cost_j[at] - lane.cost_j[at + 1]) / max(later_s, _ROUNDING)
        if rate > highest:
            best, highest = which, rate
    return best
