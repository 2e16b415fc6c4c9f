"""The problem in whole numbers: ticks for time, and each table's hull as rungs that a rising price climbs.

Units are decimal, as fine as sums along a path leave room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.solver.hull import Hull, hull_of
from perseus_ds.solver.paths import Graph, graph_of, longest
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem

LONGEST = 2**61
"""Largest sum that may occur: one bit below int64, so that the difference of two such sums fits."""
LARGEST = 10**15
"""Largest single number: below 2**53, so that a measured decimal becomes its whole number exactly."""
SMALLEST = 1000
"""Fewest units that a positive number may be rounded to: a thousandth of it is the worst error."""
DIGITS = 290
"""Largest power of ten, up or down, that a float can hold with room to multiply."""
UNBOUNDED = np.iinfo(np.int64).max
"""Room on a rung that no flow fills: no sum is ever formed with it, it only loses comparisons."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole units per second (or watt): ``10 ** digits``."""

    digits: int

    def whole(self, values: Floats) -> Ints:
        """Round to the nearest unit."""
        return np.rint(np.asarray(values) * self._up / self._down).astype(np.int64)

    def real(self, count: Ints) -> Floats:
        """Return to seconds (or watts)."""
        return np.asarray(np.asarray(count, dtype=np.int64) / self._up * self._down)

    @property
    def _up(self) -> float:
        return 10.0 ** max(self.digits, 0)

    @property
    def _down(self) -> float:
        return 10.0 ** max(-self.digits, 0)


def unit_for(what: str, values: Floats, *, total: float) -> Unit:
    """Choose the finest decimal unit in which every value and their largest possible sum fit.

    Raises:
        SolverError: the values span so much that the small ones would vanish.
    """
    positive = values[values > 0.0]
    if not len(positive):
        return Unit(0)
    largest, smallest = float(positive.max()), float(positive.min())
    room = min(math.log10(LARGEST / largest), math.log10(LONGEST) - math.log10(max(total, largest)))
    digits = math.floor(room)
    if abs(digits) > DIGITS or smallest < SMALLEST * 10.0**-digits:
        raise SolverError(
            f"{what} from {smallest:.3g} to {largest:.3g} with a sum of up to {total:.3g} overflow the"
            f" integer scale: the limit is a sum of {LONGEST / SMALLEST:.1e} times the smallest",
            hint="leave out what is too small to matter",
        )
    return Unit(digits)


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
    prices_w = [hull.price_w for hull in hulls]
    price = _price(problem, prices_w)
    rungs = _rungs(hulls, prices_w, tick, price)
    return Whole(problem, graph, hulls, tick, price, rungs, tick.whole(problem.delay_s))


def _tick(problem: Problem) -> Unit:
    """No path is longer than all activities and delays one after the other."""
    slowest = np.array([table.duration_s.max() for table in problem.tables])
    total = float(slowest[problem.table_of].sum() + problem.delay_s.sum())
    every = [table.duration_s for table in problem.tables]
    return unit_for("durations in seconds", np.concatenate([*every, problem.delay_s]), total=total)


def _price(problem: Problem, prices_w: Sequence[Floats]) -> Unit:
    """No cut carries more than the highest price of every activity."""
    highest = np.array([of_hull[0] if len(of_hull) else 0.0 for of_hull in prices_w])
    total = float(highest[problem.table_of].sum())
    return unit_for("prices of time in watts", highest, total=total)


def _rungs(hulls: Sequence[Hull], prices_w: Sequence[Floats], tick: Unit, price: Unit) -> Rungs:
    """Lengths and tops of all hulls' rungs; one that in whole numbers holds nothing is left out."""
    sizes = np.array([len(hull.option) for hull in hulls])
    first = np.concatenate(([0], np.cumsum(sizes)))
    length = tick.whole(np.concatenate([hull.duration_s[::-1] for hull in hulls]))
    top = np.full(first[-1], UNBOUNDED)
    below = np.ones(first[-1], np.bool_)
    below[first[1:] - 1] = False  # the fastest rung of each has no top
    top[below] = np.maximum(price.whole(np.concatenate([of_hull[::-1] for of_hull in prices_w])), 1)
    before = np.concatenate(([0], top[:-1]))
    before[first[:-1]] = 0
    holds = top > before
    kept = np.concatenate(([0], np.cumsum(holds)))[first]
    return Rungs(kept.astype(np.int32), length[holds], top[holds])
