"""The exact frontier of a problem, and the verb that computes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.network import network_of
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.state import start_of
from perseus_ds.solver.sweep import Breakpoints, room_for, sweep
from perseus_ds.solver.whole import Whole, whole_of

CHUNK = 16


class Result(Enum):
    """How the sweep ended."""

    COMPLETE = "the whole frontier, from the least time to the least cost"
    UNTIL = "the frontier from the least time to the wanted time"


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The exact piecewise-linear frontier of time against cost, time ascending.

    ``price_w[k]`` is what a second less costs just below ``time_s[k + 1]``: the slope, negated, of the
    segment from ``k`` to ``k + 1``. ``duration`` holds ticks, ``flow`` units of price on the activities and
    on the precedences (a certificate of optimality at its breakpoint).

    Shape: ``time_s``, ``cost_j`` [breakpoints]; ``price_w`` [breakpoints - 1]; ``kept`` [snapshots], the
    breakpoints that durations were stored at; ``duration`` [snapshots, activities].
    """

    whole: Whole
    result: Result
    time_s: Floats
    cost_j: Floats
    price_w: Floats
    kept: Ints
    duration: Ints
    flow: Ints
    crossing: Indices
    t_min_s: float
    t_star_s: float
    solve_time_s: float

    def __len__(self) -> int:
        return len(self.time_s)

    def cost_at(self, time_s: Floats | float) -> Floats:
        """Least cost of the relaxed problem; constant from T* on.

        Raises:
            InfeasibleError: a time below T_min.
        """
        self._refuse_below(time_s)
        return np.asarray(np.interp(time_s, self.time_s, self.cost_j))

    def durations_at(self, time_s: float) -> Floats:
        """Durations in seconds, one per activity, that reach the least cost within ``time_s``.

        Raises:
            InfeasibleError: a time below T_min.
        """
        self._refuse_below(time_s)
        kept_s = self.time_s[self.kept]
        right = min(max(int(np.searchsorted(kept_s, time_s)), 1), len(kept_s) - 1)
        left = max(right - 1, 0)
        span_s = kept_s[right] - kept_s[left]
        share = min((time_s - kept_s[left]) / span_s, 1.0) if span_s > 0.0 else 1.0
        low, high = self.duration[left], self.duration[right]
        return self.whole.tick.real(low) * (1.0 - share) + self.whole.tick.real(high) * share

    def _refuse_below(self, time_s: Floats | float) -> None:
        least = float(np.min(time_s))
        if least < self.t_min_s:
            raise InfeasibleError(
                f"no plan takes {least:.9g} s: T_min is {self.t_min_s:.9g} s", hint="ask for T_min or later"
            )


def solve_frontier(
    problem: Problem, *, until_s: float | None = None, progress: Callable[[float], None] | None = None
) -> Frontier:
    """Compute the least cost for every iteration time from T_min to T* (or to ``until_s``).

    ``progress`` hears the share of the way from T* to T_min that is behind, between breakpoints.

    Raises:
        SolverError: a cycle, or numbers that do not fit the integer scale.
        InfeasibleError: ``until_s`` is below T_min.
    Cost: one Dijkstra and few passes of flow per breakpoint.
    Source: Fulkerson 1961; Kelley 1961; Phillips and Dessouky 1977.
    """
    began = time.perf_counter()
    whole = whole_of(problem)
    least, most = whole.longest(whole.fastest), whole.longest(whole.slowest)
    until = most if until_s is None else _until(whole, least, until_s)
    network, crossing = network_of(whole)
    state = start_of(whole, network)
    parts = [_first(whole, most, arcs=len(network.ahead))]
    while int(parts[-1].time[-1]) > least:
        found = room_for(CHUNK, activities=len(problem), arcs=len(network.ahead))
        count = sweep(network, state, least, found)
        parts.append(Breakpoints(*(column[:count] for column in found)))
        if progress is not None:
            progress((most - int(parts[-1].time[-1])) / (most - least))
    return _frontier(whole, crossing, _joined(parts), until=until, began=began)


def _until(whole: Whole, least: int, until_s: float) -> int:
    until = int(whole.tick.whole(np.array(until_s)))
    if until < least:
        t_min_s = float(whole.tick.real(np.array(least)))
        raise InfeasibleError(
            f"no plan takes {until_s:.9g} s: T_min is {t_min_s:.9g} s", hint="ask for T_min or later"
        )
    return until


def _first(whole: Whole, most: int, *, arcs: int) -> Breakpoints:
    none = np.zeros(1, dtype=np.int64)
    return Breakpoints(np.array([most]), none, whole.slowest[None], np.zeros((1, arcs), dtype=np.int64))


def _joined(parts: list[Breakpoints]) -> Breakpoints:
    """Put the stretches behind each other, time ascending."""
    return Breakpoints(*(np.concatenate(column)[::-1] for column in zip(*parts, strict=True)))


def _frontier(whole: Whole, crossing: Indices, found: Breakpoints, *, until: int, began: float) -> Frontier:
    last = min(int(np.searchsorted(found.time, until)), len(found.time) - 1)
    shown = slice(0, last + 1)
    duration = np.clip(found.window[shown], whole.fastest, whole.slowest)
    time_s = whole.tick.real(found.time)
    return Frontier(
        whole=whole,
        result=Result.COMPLETE if last == len(found.time) - 1 else Result.UNTIL,
        time_s=time_s[shown],
        cost_j=_costs(whole, found)[shown],
        price_w=whole.price.real(found.price[:last]),
        kept=np.arange(last + 1),
        duration=duration,
        flow=found.flow[shown],
        crossing=crossing,
        t_min_s=float(time_s[0]),
        t_star_s=float(time_s[-1]),
        solve_time_s=time.perf_counter() - began,
    )


def _costs(whole: Whole, found: Breakpoints) -> Floats:
    """Sum what every segment costs, from the least cost upwards, exactly in whole numbers."""
    least_j = np.array([hull.cost_j[-1] for hull in whole.hulls])[whole.problem.table_of]
    spent = [0]
    falling = found.time[::-1].tolist()
    for price, (longer, shorter) in zip(found.price[:-1][::-1].tolist(), pairwise(falling), strict=True):
        spent.append(spent[-1] + price * (longer - shorter))
    units_j = 10.0 ** -(whole.tick.digits + whole.price.digits)
    return float(np.sum(least_j)) + np.array([float(s) for s in reversed(spent)]) * units_j
