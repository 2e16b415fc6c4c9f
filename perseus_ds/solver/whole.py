"""The problem in whole numbers: ticks for time, and each table's hull as rungs that a rising price climbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perseus_ds.solver.hull import Hull, hull_of
from perseus_ds.solver.paths import Graph, graph_of, longest
from perseus_ds.solver.problem import Indices, Ints, Problem
from perseus_ds.solver.ticks import Unit, unit_for

UNBOUNDED = np.iinfo(np.int64).max
"""Room on a rung that no flow fills: no sum is ever formed with it, it only loses comparisons."""


class Rungs(NamedTuple):
    """All hulls, one behind the other, slowest point first.

    A unit of flow through an activity is a unit of price that its duration is worth. Up to ``top[r]`` of
    it the activity stays at rung ``r`` and lasts ``length[r]`` ticks; the fastest rung has no top.

    Shape: ``first`` [tables + 1]; ``length``, ``top`` [rungs].
    """

    first: Indices
    length: Ints
    top: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A problem, ordered and in whole numbers.

    Shape: ``delay`` [precedences]; ``slowest``, ``fastest`` [activities], both in ticks.
    """

    problem: Problem
    graph: Graph
    hulls: tuple[Hull, ...]
    tick: Unit
    price: Unit
    rungs: Rungs
    delay: Ints

    @property
    def slowest(self) -> Ints:
        """Ticks of every activity at its least cost."""
        return self.rungs.length[self.rungs.first[:-1]][self.problem.table_of]

    @property
    def fastest(self) -> Ints:
        """Ticks of every activity at its shortest duration."""
        return self.rungs.length[self.rungs.first[1:] - 1][self.problem.table_of]

    def longest(self, duration: Ints) -> int:
        """Ticks of the longest path."""
        return longest(self.graph, self.delay, duration)

    def within(self, time_s: float) -> int:
        """Whole ticks that do not exceed a time; at T_min all of them, finer than seconds can state."""
        wanted = int(self.tick.whole(np.array(time_s)))
        wanted -= int(float(self.tick.real(np.array(wanted))) > time_s)
        return max(wanted, self.longest(self.fastest))


def whole_of(problem: Problem) -> Whole:
    """Choose units and translate.

    Raises:
        SolverError: a cycle, or numbers that do not fit.
    """
    graph = graph_of(problem)
    hulls = tuple(hull_of(table) for table in problem.tables)
    tick = _tick(problem)
    price = _price(problem, hulls)
    rungs = _pack([_climb(hull, tick, price) for hull in hulls])
    return Whole(problem, graph, hulls, tick, price, rungs, tick.whole(problem.delay_s))


def _tick(problem: Problem) -> Unit:
    """No path is longer than all activities and delays one after the other."""
    slowest = np.array([table.duration_s.max() for table in problem.tables])
    total = float(slowest[problem.table_of].sum() + problem.delay_s.sum())
    every = [table.duration_s for table in problem.tables]
    return unit_for("durations in seconds", np.concatenate([*every, problem.delay_s]), total=total)


def _price(problem: Problem, hulls: tuple[Hull, ...]) -> Unit:
    """No cut carries more than the highest price of every activity."""
    highest = np.array([hull.price_w[0] if len(hull.price_w) else 0.0 for hull in hulls])
    total = float(highest[problem.table_of].sum())
    return unit_for("prices of time in watts", highest, total=total)


def _climb(hull: Hull, tick: Unit, price: Unit) -> tuple[Ints, Ints]:
    """Lengths and tops of one hull's rungs; a rung that in whole numbers holds nothing is left out."""
    length = tick.whole(hull.duration_s)[::-1]
    top = np.append(np.maximum(price.whole(hull.price_w), 1)[::-1], UNBOUNDED)
    holds = np.diff(top, prepend=0) > 0
    return length[holds], top[holds]


def _pack(climbs: list[tuple[Ints, Ints]]) -> Rungs:
    sizes = [len(length) for length, _ in climbs]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    lengths, tops = zip(*climbs, strict=True)
    return Rungs(first, np.concatenate(lengths), np.concatenate(tops))
