"""The exact frontier of a problem, and the verb that computes it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.parametric.network import Network, network_of
from perseus_ds.solver.parametric.state import start_of
from perseus_ds.solver.parametric.sweep import room_for, sweep
from perseus_ds.solver.parametric.trail import Trail
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.whole import Whole, whole_of

CHUNK = 16


class Result(Enum):
    """How the sweep ended."""

    COMPLETE = "the whole frontier, from the least time to the least cost"
    UNTIL = "the frontier from the least time to the wanted time"
    DOWN_TO = "the frontier from the wanted time to the least cost"


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The exact piecewise-linear frontier of time against cost, time ascending.

    ``price_w[k]`` is what a second less costs between ``time_s[k]`` and ``time_s[k + 1]``. At the ``kept``
    breakpoints (all of them, unless they would fill MEMORY) ``event`` holds the times of the network's nodes
    in ticks. ``flow`` holds the flow on its arcs in units of price: a certificate of optimality from there to
    the next breakpoint.

    Shape: ``time_s``, ``cost_j`` [breakpoints]; ``price_w`` [breakpoints - 1]; ``kept`` [snapshots];
    ``event`` [snapshots, nodes]; ``flow`` [snapshots, arcs].
    """

    whole: Whole
    network: Network
    crossing: Indices
    result: Result
    time_s: Floats
    cost_j: Floats
    price_w: Floats
    kept: Ints
    event: Ints
    flow: Ints
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
        self.refuse_below(time_s)
        return np.asarray(np.interp(time_s, self.time_s, self.cost_j))

    def durations_at(self, time_s: float) -> Floats:
        """Durations in seconds, one per activity, that reach the least cost within ``time_s``.

        Raises:
            InfeasibleError: a time below T_min.
        """
        left, right, share = self.bracket(time_s)
        return self._durations(left) * (1.0 - share) + self._durations(right) * share

    def bracket(self, time_s: float) -> tuple[int, int, float]:
        """Name the snapshots before and after a time, and the share of the way between them.

        Raises:
            InfeasibleError: a time below T_min.
        """
        self.refuse_below(time_s)
        kept_s = self.time_s[self.kept]
        left = int(np.searchsorted(kept_s, time_s, side="right")) - 1
        right = min(left + 1, len(kept_s) - 1)
        share = (time_s - kept_s[left]) / (kept_s[right] - kept_s[left]) if right > left else 0.0
        return left, right, float(share)

    def _durations(self, snapshot: int) -> Floats:
        count = len(self.whole.problem)
        event, to = self.event[snapshot], self.network.to
        window = event[to[self.network.ahead[:count]]] - event[to[self.network.back[:count]]]
        return self.whole.tick.real(np.clip(window, self.whole.fastest, self.whole.slowest))

    def refuse_below(self, time_s: Floats | float) -> None:
        """Name T_min to whom asks for less.

        Raises:
            InfeasibleError: a time below T_min.
        """
        least = float(np.min(time_s))
        if least < self.t_min_s:
            raise InfeasibleError(
                f"no plan takes {least:.9g} s: T_min is {self.t_min_s:.9g} s", hint="ask for T_min or later"
            )


def solve_frontier(
    problem: Problem,
    *,
    until_s: float | None = None,
    down_to_s: float = 0.0,
    around_s: Floats | None = None,
    progress: Callable[[float], None] | None = None,
) -> Frontier:
    """Compute the least cost for every iteration time from T_min to T* (or to ``until_s``).

    The sweep comes from T* and ends at the first breakpoint within ``down_to_s``: what is shorter is not
    known then. With ``around_s`` only the breakpoints on either side of these times keep a snapshot.
    ``progress`` is called with the completed share of the way from T* to T_min.

    Raises:
        SolverError: a cycle, or numbers that do not fit the integer scale.
        InfeasibleError: ``until_s`` is below T_min.
    Cost: one Dijkstra and few phases of flow per breakpoint.
    Source: Fulkerson 1961; Kelley 1961; Phillips and Dessouky 1977; Dinic 1970.
    """
    began = time.perf_counter()
    whole = whole_of(problem)
    least, most = whole.longest(whole.fastest), whole.longest(whole.slowest)
    until = most if until_s is None else _until(whole, least, until_s)
    network, crossing = network_of(whole)
    state = start_of(whole, network)
    trail = Trail(_wanted(until, None if around_s is None else whole.tick.whole(around_s), most), state)
    found = room_for(CHUNK, network)
    end = max(least, int(whole.tick.whole(np.array(down_to_s))) - 1)  # rounded: a tick less is within it
    while int(trail.total[-1]) > end:
        trail.add(found, sweep(state, end, found, len(trail.total), trail.stride))
        if progress is not None:
            progress((most - int(trail.total[-1])) / (most - least))
    return _frontier(whole, network, crossing, trail, least, until=until, began=began)


def _wanted(until: int, around: Ints | None, most: int) -> Callable[[int, int], bool]:
    """Which breakpoints keep a snapshot, by the totals of the shorter and of the longer one beside each.

    Of those longer than ``until`` only the last does.
    """
    times = None if around is None else np.sort(np.minimum(around, most))

    def is_wanted(shorter: int, longer: int) -> bool:
        if times is None:
            return shorter < until
        first = int(np.searchsorted(times, shorter - 1))  # rounded: a tick more or less is beside it
        return shorter < until and first < len(times) and int(times[first]) <= longer + 1

    return is_wanted


def _until(whole: Whole, least: int, until_s: float) -> int:
    until = int(whole.tick.whole(np.array(until_s)))
    if until < least:
        t_min_s = float(whole.tick.real(np.array(least)))
        raise InfeasibleError(
            f"no plan takes {until_s:.9g} s: T_min is {t_min_s:.9g} s", hint="ask for T_min or later"
        )
    return until


def _frontier(
    whole: Whole, network: Network, crossing: Indices, trail: Trail, least: int, *, until: int, began: float
) -> Frontier:
    total, price = np.array(trail.total[::-1]), np.array(trail.price[::-1])
    time_s = whole.tick.real(total)
    last = min(int(np.searchsorted(total, until)), len(total) - 1)
    event, flow = trail.snapshots()
    return Frontier(
        whole=whole,
        network=network,
        crossing=crossing,
        result=_ended(total, last, least),
        time_s=time_s[: last + 1],
        cost_j=_costs(whole, trail)[: last + 1],
        price_w=whole.price.real(price[:last]),
        kept=len(total) - 1 - np.array(trail.kept[::-1]),
        event=event,
        flow=flow,
        t_min_s=float(whole.tick.real(np.array(least))),
        t_star_s=float(time_s[-1]),
        solve_time_s=time.perf_counter() - began,
    )


def _ended(total: Ints, last: int, least: int) -> Result:
    if total[0] > least:
        return Result.DOWN_TO
    return Result.COMPLETE if last == len(total) - 1 else Result.UNTIL


def _costs(whole: Whole, trail: Trail) -> Floats:
    """Sum what every segment costs, from the least cost upwards, exactly in whole numbers; time ascending."""
    least_j = np.array([hull.cost_j[-1] for hull in whole.hulls])[whole.problem.table_of]
    spent = [0]
    for price, (longer, shorter) in zip(trail.price[1:], pairwise(trail.total), strict=True):
        spent.append(spent[-1] + price * (longer - shorter))
    units_j = 10.0 ** -(whole.tick.digits + whole.price.digits)
    return math.fsum(least_j) + np.array([float(units) for units in reversed(spent)]) * units_j
