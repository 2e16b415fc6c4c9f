"""Plans in which every lane (a GPU) keeps one level (a clock) for all that it runs, but perhaps for its ends.

From all levels highest, the lane is lowered that saves most for each second that the longest path grows by. A
lane's part of the longest path bounds how much that grows at least, so that few lanes are tried. Then levels
are exchanged between lanes, and those plans are kept that no other beats.

Source: Minoux 1978 (accelerated greedy); Paquete, Chiarandini and Stuetzle 2004 (Pareto local search).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perseus_ds.schedule.dag import LongestPaths
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats, Indices, Lanes, Plans, Problem, blend, pareto_front

_ROUNDING = 1e-9
_WORK = 100_000
"""Activities that the plans of exchanges may have together: as many as small problems need."""
_LISTED = 4
"""Plans that can be tried in the time that listing the moves of one takes."""


def one_level(
    frontier: Frontier, times_s: Floats, lanes: Lanes, *, kept: Sequence[Sequence[tuple[int, int]]] = ()
) -> Plans:
    """Choose a level for every lane, for every wanted time; drop plans that another beats.

    Each of ``kept`` is a further way to run lanes: so many of each lane's first and last activities stay at
    the highest level.

    Shape: ``kept`` [ways, lanes].
    Cost: one or a few passes over the graph for each level of each lane, in each way, and those of exchanges.
    """
    each = [_Lane.of(frontier.whole.problem, order, lanes.level_of) for order in lanes.orders]
    ways = [each, *([lane.with_levels(*own) for lane, own in zip(each, ends, strict=True)] for ends in kept)]
    found = list[tuple[float, float, Indices]]()
    for way in ways:
        search = _Search(frontier, way)
        search.lower()
        search.exchange(_WORK // (len(ways) * len(frontier.whole.problem)))
        found += search.every_plan()
    every_s, every_j, options = (np.array(column) for column in zip(*found, strict=True))
    best = pareto_front(every_s, every_j)
    within = np.searchsorted(every_s[best], np.unique(times_s) * (1.0 + _ROUNDING), side="right") - 1
    best = best[np.unique(np.maximum(within, 0))]
    return Plans(every_s, every_j, frontier.bounds_at(every_s), options, options, np.ones(options.shape)).at(
        best
    )


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
        kept = pareto_front(duration_s.sum(axis=1), each_j.sum(axis=1))
        return cls(order, option[kept], duration_s[kept], each_j[kept], each_j[kept].sum(axis=1).tolist())

    def with_levels(self, first: int, last: int) -> _Lane:
        """Return it with so many activities at the highest level at each level of the others."""
        at = np.arange(len(self.order))
        ends = (at < first) | (at >= len(at) - last)
        option, duration_s, each_j = (
            np.where(ends, own[0], own) for own in (self.option, self.duration_s, self.each_j)
        )
        return _Lane(self.order, option, duration_s, each_j, each_j.sum(axis=1).tolist())


Level = tuple[int, ...]
"""The level of every lane."""


class _Search:
    """Plans of some lanes: time and cost by the level of each; those that were tried are in ``plans``."""

    def __init__(self, frontier: Frontier, lanes: Sequence[_Lane]) -> None:
        problem = frontier.whole.problem
        self._paths = LongestPaths(frontier.whole.graph, problem.delay_s.tolist())
        self._choice = np.zeros(len(problem), np.int32)
        self._lasts_s, _ = blend(problem, self._choice, self._choice, np.ones(len(problem)))
        self._lanes = lanes
        self.plans = dict[Level, tuple[float, float]]()

    def every_plan(self) -> list[tuple[float, float, Indices]]:
        found = []
        for level, (time_s, cost_j) in self.plans.items():
            for lane, at in zip(self._lanes, level, strict=True):
                self._choice[lane.order] = lane.option[at]
            found.append((time_s, cost_j, self._choice.copy()))
        return found

    def lower(self) -> None:
        """Lower the lane that saves most for each second, from all levels highest until none saves any."""
        level: Level | None = (0,) * len(self._lanes)
        while level is not None:
            self._try(level)
            level = self._lower_one(level)

    def exchange(self, most: int) -> None:
        """Move one lane by a level, or two opposite ways, from plans that no other beats, again and again.

        A move is not tried where its plan is beaten even if only the path that was the longest counts. At
        most so many are, a plan's moves counted as ``_LISTED``.
        """
        done, most = set[Level](), most + len(self.plans)
        while True:
            levels, figures = list(self.plans), np.array([*self.plans.values()])
            best = pareto_front(figures[:, 0], figures[:, 1])
            times_s, costs_j = figures[best].T
            todo = [levels[at] for at in best if levels[at] not in done]
            if not todo:
                return
            for here in todo:
                if len(self.plans) + _LISTED * len(done) >= most:
                    return
                done.add(here)
                for level, least_s, cost_j in self._moves(here):
                    before = int(np.searchsorted(times_s, least_s * (1.0 + _ROUNDING), side="right")) - 1
                    if before < 0 or costs_j[before] > cost_j:
                        self._try(level)

    def _moves(self, here: Level) -> Iterator[tuple[Level, float, float]]:
        """Yield levels, the least that their plan can take, and what it costs."""
        lanes = zip(self._lanes, here, self._parts_s(here), strict=True)
        steps = [
            (which, to, float(own_s[to] - own_s[at]), lane.cost_j[to] - lane.cost_j[at])
            for which, (lane, at, own_s) in enumerate(lanes)
            for to in (at - 1, at + 1)
            if 0 <= to < len(lane.cost_j)
        ]
        lower, higher = ([one for one in steps if (one[3] < 0.0) == saves] for saves in (True, False))
        pairs = [(one, other) for one in lower for other in higher if one[0] != other[0]]
        for move in [*((step,) for step in steps), *pairs]:
            level, (least_s, cost_j) = list(here), self.plans[here]
            for which, to, more_s, more_j in move:
                level[which], least_s, cost_j = to, least_s + more_s, cost_j + more_j
            yield tuple(level), least_s, cost_j

    def _try(self, level: Level) -> None:
        if level not in self.plans:
            time_s = self._paths.over(self._ends_s(level))
            costs_j = [lane.cost_j[at] for lane, at in zip(self._lanes, level, strict=True)]
            self.plans[level] = time_s, sum(costs_j)

    def _ends_s(self, level: Level) -> list[float]:
        for lane, at in zip(self._lanes, level, strict=True):
            self._lasts_s[lane.order] = lane.duration_s[at]
        return self._paths.ends(self._lasts_s)

    def _parts_s(self, level: Level) -> list[Floats]:
        """Return how long each level of each lane takes on the path that is the longest.

        Shape: [lanes][levels].
        """
        on_path = np.zeros(len(self._lasts_s), np.bool_)
        on_path[self._paths.longest(self._ends_s(level))] = True
        return [lane.duration_s[:, on_path[lane.order]].sum(axis=1) for lane in self._lanes]

    def _lower_one(self, here: Level) -> Level | None:
        rates = list[tuple[float, int]]()
        for which, (lane, at, own_s) in enumerate(zip(self._lanes, here, self._parts_s(here), strict=True)):
            if at + 1 < len(lane.cost_j) and (saved_j := lane.cost_j[at] - lane.cost_j[at + 1]) > 0.0:
                rates.append((saved_j / max(float(own_s[at + 1] - own_s[at]), _ROUNDING), which))
        best, highest = None, 0.0
        for most, which in sorted(rates, reverse=True):
            if most <= highest:
                break
            lane, at = self._lanes[which], here[which]
            level = (*here[:which], at + 1, *here[which + 1 :])
            self._try(level)
            later_s = self.plans[level][0] - self.plans[here][0]
            rate = (lane.cost_j[at] - lane.cost_j[at + 1]) / max(later_s, _ROUNDING)
            if rate > highest:
                best, highest = level, rate
        return best
