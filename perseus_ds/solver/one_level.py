"""Plans in which every lane (a GPU) keeps one level (a clock) for all that it runs.

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
from perseus_ds.solver.frontier import Frontier, bounds_at
from perseus_ds.solver.problem import Floats, Indices, Plans, Problem, undominated

_ROUNDING = 1e-9


def one_level(
    problem: Problem,
    frontier: Frontier,
    times_s: Floats,
    orders: Sequence[Indices],
    level_of: Sequence[Indices],
) -> Plans:
    """Choose a level for every lane, for every wanted time; drop plans that another beats.

    ``orders`` are the activities of each lane, ``level_of`` the level of each option of every table.

    Cost: one or a few passes over the graph for each level of each lane.
    """
    choice = np.zeros(len(problem.table_of), np.int32)
    lanes = [_Lane.of(problem, order, level_of) for order in orders]
    for lane in lanes:
        choice[lane.order] = lane.option[0]
    paths = _Paths(problem, frontier, choice)
    found, time_s, cost_j = [choice.copy()], [paths.time_s], [sum(lane.cost_j[0] for lane in lanes)]
    level = [0] * len(lanes)
    while (which := paths.best(lanes, level)) is not None:
        lane = lanes[which]
        level[which] += 1
        paths.take(lane.order, lane.duration_s[level[which]])
        choice[lane.order] = lane.option[level[which]]
        found.append(choice.copy())
        time_s.append(paths.time_s)
        cost_j.append(sum(one.cost_j[at] for one, at in zip(lanes, level, strict=True)))
    every_s, every_j, options = np.array(time_s), np.array(cost_j), np.array(found)
    best = undominated(every_s, every_j)
    within = np.searchsorted(every_s[best], np.unique(times_s) * (1.0 + _ROUNDING), side="right") - 1
    best = best[np.unique(np.maximum(within, 0))]
    bound_j = bounds_at(frontier, np.maximum(every_s, frontier.t_min_s))
    return Plans(every_s, every_j, bound_j, options, options, np.ones(options.shape)).at(best)


class _Lane(NamedTuple):
    """Activities of a lane, and at each level their options, durations and whole cost; the fastest first.

    A level that is slower and saves nothing is left out.

    Shape: ``order`` [activities]; ``option``, ``duration_s`` [levels, activities]; ``cost_j`` [levels].
    """

    order: Indices
    option: Indices
    duration_s: Floats
    cost_j: list[float]

    @classmethod
    def of(cls, problem: Problem, order: Indices, level_of: Sequence[Indices]) -> _Lane:
        tables = problem.table_of[order].tolist()
        levels = sorted(set.intersection(*(set(level_of[table].tolist()) for table in set(tables))))
        at = [{table: level_of[table].tolist().index(one) for table in set(tables)} for one in levels]
        option = np.array([[options[table] for table in tables] for options in at], np.int32)
        duration_s, cost_j = (
            np.array([[own[t][o] for t, o in zip(tables, row, strict=True)] for row in option])
            for own in zip(*((one.duration_s, one.cost_j) for one in problem.tables), strict=True)
        )
        kept = undominated(duration_s.sum(axis=1), cost_j.sum(axis=1))
        return cls(order, option[kept], duration_s[kept], cost_j[kept].sum(axis=1).tolist())


class _Paths:
    """The longest path, now and with a lane lowered."""

    def __init__(self, problem: Problem, frontier: Frontier, choice: Indices) -> None:
        self._graph = frontier.whole.graph
        self._paths = LongestPaths(self._graph, problem.delay_s.tolist())
        self._delay_s = problem.delay_s[self._graph.before_arc]
        self._place = [self._paths.place(node) for node in range(len(choice))]
        self._lasts_s = np.array(
            [problem.tables[t].duration_s[o] for t, o in zip(problem.table_of, choice, strict=True)]
        )
        self.time_s = self._length_s()

    def best(self, lanes: Sequence[_Lane], level: Sequence[int]) -> int | None:
        """Return the lane whose next level saves most for each second; None where none saves anything."""
        on_path, rates = self._longest(), list[tuple[float, int]]()
        for which, (lane, at) in enumerate(zip(lanes, level, strict=True)):
            if at + 1 < len(lane.cost_j) and (saved_j := lane.cost_j[at] - lane.cost_j[at + 1]) > 0.0:
                longer_s = lane.duration_s[at + 1] - lane.duration_s[at]
                rates.append((saved_j / max(float(longer_s[on_path[lane.order]].sum()), _ROUNDING), which))
        best, highest = None, 0.0
        for most, which in sorted(rates, reverse=True):
            if most <= highest:
                break
            lane, at = lanes[which], level[which]
            longer_s = self._with(lane.order, lane.duration_s[at + 1]) - self.time_s
            rate = (lane.cost_j[at] - lane.cost_j[at + 1]) / max(longer_s, _ROUNDING)
            if rate > highest:
                best, highest = which, rate
        return best

    def take(self, order: Indices, duration_s: Floats) -> None:
        """Lower a lane."""
        self._lasts_s[order] = duration_s
        self.time_s = self._length_s()

    def _with(self, order: Indices, duration_s: Floats) -> float:
        before_s = self._lasts_s[order]
        self._lasts_s[order] = duration_s
        length_s = self._length_s()
        self._lasts_s[order] = before_s
        return length_s

    def _length_s(self) -> float:
        return self._paths.over(self._paths.ends(self._lasts_s))

    def _longest(self) -> NDArray[np.bool_]:
        """Return which activities the longest path goes through."""
        ends_s = np.array(self._paths.ends(self._lasts_s))[self._place]
        first, before = self._graph.first_before, self._graph.before
        found, node = np.zeros(len(ends_s), np.bool_), int(ends_s.argmax())
        while True:
            found[node] = True
            rows = slice(first[node], first[node + 1])
            if rows.start == rows.stop:
                return found
            node = int(before[rows][(ends_s[before[rows]] + self._delay_s[rows]).argmax()])
