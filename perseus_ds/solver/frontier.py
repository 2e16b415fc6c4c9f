"""The exact frontier of a problem, the bounds that it proves, and the times that are worth a plan."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.network import SINK, SOURCE, Network, Whole, network_of, whole_of
from perseus_ds.solver.problem import Floats, Indices, Ints, Plans, Problem, pareto_front
from perseus_ds.solver.sweep import Breakpoints, State, room_for, start_of, sweep

# The breakpoints that a sweep has found, and snapshots of those wanted, as many as memory allows.

MEMORY = 2**29
"""Bytes that snapshots may take; when they would take more, every second one is dropped."""


class Trail:
    """Breakpoints, time falling; those numbered in ``kept`` have a snapshot.

    The newest always does. Of the others those whose number ``stride`` divides do; of those longer than
    ``until`` only the last. With times ``around`` it is only those on either side of these.

    Units: ticks and units of price.
    """

    def __init__(self, state: State, until: int, around: Ints | None) -> None:
        event = state.nodes["time"]
        rows = max(MEMORY // (8 * (len(event) + len(state.arcs))), 2) + 1
        self.total: list[int] = [int(event[SINK] - event[SOURCE])]
        self.price: list[int] = [0]
        self.kept: list[int] = []
        self.stride = 1
        self._until, self._around = until, None if around is None else np.sort(around)
        self._event = np.empty((rows, len(event)), np.int64)  # the system gives memory when it is written to
        self._flow = np.empty((rows, len(state.arcs)), np.int64)
        self._keep(event, np.zeros(len(state.arcs), np.int64))

    def add(self, found: Breakpoints, count: int) -> None:
        """Append the first ``count`` of a stretch, and copy the snapshots that stay.

        The newest of a stretch stays until the next one comes.
        """
        for row in range(count):
            total = int(found.total[row])
            if self.kept[-1:] == [len(self.total) - 1] and not self._stays(total):
                self.kept.pop()
            self.total.append(total)
            self.price.append(int(found.price[row]))
            if row + 1 == count or self._stays(int(found.total[row + 1])):
                self._keep(found.event[row], found.flow[row])

    def snapshots(self) -> tuple[Ints, Ints]:
        """Return event times and flows, time ascending.

        Shape: [snapshots, nodes], [snapshots, arcs].
        """
        count = len(self.kept)
        return self._event[:count][::-1], self._flow[:count][::-1]

    def _stays(self, shorter: int) -> bool:
        """Return whether the newest keeps its snapshot when one of this total follows it."""
        number = len(self.total) - 1
        if number % self.stride or shorter >= self._until:
            return False
        if self._around is None:
            return True
        longer = self.total[max(number - 1, 0)]
        first = int(np.searchsorted(self._around, shorter - 1))  # rounded: a tick more or less is beside it
        return first < len(self._around) and int(self._around[first]) <= longer + 1

    def _keep(self, event: Ints, flow: Ints) -> None:
        row = len(self.kept)
        self._event[row], self._flow[row] = event, flow
        self.kept.append(len(self.total) - 1)
        if len(self.kept) == len(self._event):
            self._thin()

    def _thin(self) -> None:
        """Drop every second snapshot, but not the ends."""
        self.stride *= 2
        last = len(self.kept) - 1
        stay = [row for row, number in enumerate(self.kept) if row in {0, last} or number % self.stride == 0]
        for to, row in enumerate(stay):
            self._event[to], self._flow[to] = self._event[row], self._flow[row]
        self.kept[:] = [self.kept[row] for row in stay]


FEWEST, MOST_BREAKPOINTS, NUMBERS = 16, 256, 2**18
"""Breakpoints of one call of the sweep: as many as have so many numbers. An interpreted call turns its arrays
into lists first, which took a third of a small frontier's time."""


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

    def durations_at(self, time_s: float) -> Floats:
        """Durations in seconds, one per activity, that reach the least cost within ``time_s``.

        Raises:
            InfeasibleError: a time below T_min.
        """
        left, right, share = self.bracket(time_s)
        return self.durations_of(left) * (1.0 - share) + self.durations_of(right) * share

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

    def durations_of(self, snapshot: int | Sequence[int]) -> Floats:
        """Durations in seconds at a snapshot.

        Shape: returns [activities], or [snapshots, activities] of several.
        """
        count = len(self.whole.problem)
        event, to = self.event[snapshot], self.network.to
        window = event[..., to[self.network.ahead[:count]]] - event[..., to[self.network.back[:count]]]
        return self.whole.tick.real(np.clip(window, self.whole.fastest, self.whole.slowest))

    def refuse_below(self, time_s: Floats | float) -> None:
        """Name T_min to whom asks for less.

        Raises:
            InfeasibleError: a time below T_min.
        """
        if np.min(time_s) < self.t_min_s:
            raise InfeasibleError(
                f"no plan takes {np.min(time_s):.9g} s: T_min is {self.t_min_s:.9g} s",
                hint="ask for T_min or later",
            )

    def activity_flow(self, snapshot: int | Sequence[int]) -> Floats:
        """Flow on every activity in watts.

        Shape: returns [activities], or [snapshots, activities] of several.
        """
        return self.whole.price.real(self.flow[snapshot][..., : len(self.whole.problem)])

    def precedence_flow(self, snapshot: int | Sequence[int]) -> Floats:
        """Flow on every precedence in watts; where events were merged, that of the only activity concerned.

        Shape: returns [precedences], or [snapshots, precedences] of several.
        """
        problem, flow = self.whole.problem, self.flow[snapshot]
        count = len(problem)
        lone = np.bincount(problem.before, minlength=count)[problem.before] == 1
        onward = lone & (self.whole.delay == 0)
        carried = np.where(onward, flow.take(problem.before, axis=-1), flow.take(problem.after, axis=-1))
        carried[..., self.crossing] = flow[..., count:]
        return self.whole.price.real(carried)

    def bounds_at(self, times_s: Floats, *, problem: Problem | None = None) -> Floats:
        """Return the best bound that the snapshots around each time prove, of their problem or another."""
        times_s = np.maximum(times_s, self.t_min_s)
        around = [self.bracket(float(time_s))[:2] for time_s in times_s]
        lines = self._lines(problem or self.whole.problem, {at for both in around for at in both})
        best = [
            max(lines[at][0] - lines[at][1] * time_s for at in snapshots)
            for snapshots, time_s in zip(around, times_s, strict=True)
        ]
        return np.array(best)

    def total_bounds(self, times_s: Floats, base_power_w: float) -> Floats:
        """Bound cost plus ``base_power_w`` times duration, over all plans that take at most each time.

        A flow's line falls with the time as long as the flow is worth more than the base power. Its least
        value is then the one at the wanted time, else the one at T_min. Two flows on either side of the base
        power mix to one that is worth exactly that: a bound that holds for every duration.
        """
        t_min_s, worth_w = self.t_min_s, np.append(self.price_w, 0.0)[self.kept]
        turn = int(np.searchsorted(-worth_w, -base_power_w))
        around = {at for at in (turn - 1, turn) if 0 <= at < len(self.kept)}
        times_s = np.maximum(times_s, t_min_s)
        near = [set(self.bracket(float(time_s))[:2]) | around for time_s in times_s]
        lines = self._lines(self.whole.problem, set().union(*near))
        (high_j, high_w), (low_j, low_w) = lines[min(around)], lines[max(around)]
        always_j = -np.inf
        if high_w >= base_power_w >= low_w:
            share = (base_power_w - low_w) / (high_w - low_w) if high_w > low_w else 1.0
            always_j = share * high_j + (1.0 - share) * low_j

        def least_j(at: int, time_s: float) -> float:
            base_j, own_w = lines[at]
            return base_j + (base_power_w - own_w) * (time_s if own_w >= base_power_w else t_min_s)

        pairs = zip(near, times_s.tolist(), strict=True)
        return np.array([max(always_j, *(least_j(at, time_s) for at in own)) for own, time_s in pairs])

    def _lines(self, problem: Problem, snapshots: Iterable[int]) -> dict[int, tuple[float, float]]:
        """Return what each snapshot's flow proves at time zero, and how much that falls per second."""
        every = sorted(snapshots)
        lines: dict[int, tuple[float, float]] = {}
        for some in (every[first : first + AT_ONCE] for first in range(0, len(every), AT_ONCE)):
            bases_j, worths_w = dual_values(problem, self.activity_flow(some), self.precedence_flow(some))
            lines |= dict(zip(some, zip(bases_j.tolist(), worths_w.tolist(), strict=True), strict=True))
        return lines


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
    Cost: one Dijkstra and few phases of flow per breakpoint.
    Source: Fulkerson 1961; Kelley 1961; Phillips and Dessouky 1977; Dinic 1970.
    """
    began = time.perf_counter()
    whole = whole_of(problem)
    least, most = whole.longest(whole.fastest), whole.longest(whole.slowest)
    until = most if until_s is None else int(whole.tick.whole(until_s))
    network, crossing = network_of(whole)
    state = start_of(whole, network)
    around = None if around_s is None else np.minimum(whole.tick.whole(around_s), most)
    trail = Trail(state, until, around)
    numbers = len(network.first) - 1 + len(network.ahead)
    found = room_for(min(max(NUMBERS // numbers, FEWEST), MOST_BREAKPOINTS), network)
    end = max(least, int(whole.tick.whole(down_to_s)) - 1)  # rounded: a tick less is within it
    while int(trail.total[-1]) > end:
        trail.add(found, sweep(state, end, found, len(trail.total), trail.stride))
        if progress is not None:
            progress((most - int(trail.total[-1])) / (most - least))
    total, price = np.array(trail.total[::-1]), np.array(trail.price[::-1])
    last = min(int(np.searchsorted(total, until)), len(total) - 1)
    time_s = whole.tick.real(total)[: last + 1]
    event, flow = trail.snapshots()
    return Frontier(
        whole=whole,
        network=network,
        crossing=crossing,
        time_s=time_s,
        cost_j=_costs(whole, trail)[: last + 1],
        price_w=whole.price.real(price[:last]),
        kept=len(total) - 1 - np.array(trail.kept[::-1]),
        event=event,
        flow=flow,
        t_min_s=float(whole.tick.real(least)),
        t_star_s=float(whole.tick.real(most)),
        solve_time_s=time.perf_counter() - began,
    )


def _costs(whole: Whole, trail: Trail) -> Floats:
    """Sum what every segment costs, from the least cost upwards, exactly in whole numbers; time ascending."""
    least_j = np.array([hull.cost_j[-1] for hull in whole.hulls])[whole.problem.table_of]
    spent = [0]
    for price, (longer, shorter) in zip(trail.price[1:], pairwise(trail.total), strict=True):
        spent.append(spent[-1] + price * (longer - shorter))
    units_j = 10.0 ** -(whole.tick.digits + whole.price.digits)
    return math.fsum(least_j) + np.array([float(units) for units in reversed(spent)]) * units_j


# What a flow proves: no choice of options costs less within a given time (Lagrange's bound).

AT_ONCE = 64
"""So many flows are looked at together: what numpy costs by the call is shared, and memory stays small."""


def dual_values(problem: Problem, through_w: Floats, across_w: Floats) -> tuple[Floats, Floats]:
    """Return the bounds' values at time zero, and how much each falls per second.

    For a flow that is conserved, every plan within ``T`` costs at least the first less ``T`` times the
    second. A plan's cost plus its flow-weighted durations and delays is at least the sum of the least that
    each activity can have. All paths together carry the flow for at most ``T``.

    Shape: ``through_w`` [flows, activities]; ``across_w`` [flows, precedences]; returns [flows] twice.
    """
    totals_j = np.array([row_w @ problem.delay_s for row_w in across_w])  # rounded alike in any company
    for table, where in zip(problem.tables, problem.members(), strict=True):
        flow_w = through_w.take(where, axis=1)
        options_j = table.cost_j[:, None, None] + table.duration_s[:, None, None] * flow_w
        totals_j += options_j.min(axis=0).sum(axis=1)
    starts = np.bincount(problem.after, minlength=len(problem)) == 0
    return totals_j, through_w[:, starts].sum(axis=1)


# Which iteration times are worth a plan, and which plans are worth keeping.

STEP = 0.0005
"""Share of the total that the least cost may fall from one tried time to the next."""
REACH = 0.001
"""Share of the total that the bound may fall from one kept plan to the next."""


def plan_times(frontier: Frontier, *, base_power_w: float = 0.0, all_kept: bool = False) -> Floats:
    """Choose times from T_min to the frontier's end, time ascending, corners of the frontier where near.

    A look-up by a time between two gets the plan of the faster. It loses at most `STEP` of the total, which
    is the cost plus ``base_power_w`` over the iteration time; `REACH` of it where the plans are ``all_kept``.

    Cost: linear in the times chosen.
    """
    total_j = float(np.abs(frontier.cost_j + base_power_w * frontier.time_s).min())
    drop_j = float(frontier.cost_j[0] - frontier.cost_j[-1])
    step_j = (REACH if all_kept else STEP) * total_j
    most = int(np.ceil(drop_j / step_j)) if step_j > 0.0 else len(frontier.time_s)
    count = max(2, min(most + 1, MOST))
    levels_j = np.linspace(frontier.cost_j[0], frontier.cost_j[-1], count)
    even_s = np.interp(levels_j, frontier.cost_j[::-1], frontier.time_s[::-1])
    corner_s = frontier.time_s[np.searchsorted(frontier.time_s, even_s, side="right") - 1]
    since_s = np.concatenate((even_s[:1], even_s[:-1]))  # back to a corner since then: most options fit there
    return np.unique(np.where((corner_s > since_s) | (corner_s == even_s), corner_s, even_s))


MOST = 2000
"""Times that are tried at most: a frontier that falls to almost nothing has no natural number of steps."""


def worth_keeping(plans: Plans, *, base_power_w: float = 0.0) -> Plans:
    """Drop plans far from their bound while a faster one stays near enough.

    The first and the last stay. From one kept plan to the next the bound falls by at most `REACH` of the
    total, as far as the plans given allow it.

    Cost: quadratic in plans, in vectors.
    """
    total_j = np.abs(plans.bound_j + base_power_w * plans.time_s)
    gap_j = plans.cost_j - plans.bound_j
    kept = np.ones(len(plans), dtype=np.bool_)
    for worst in np.argsort(-gap_j, kind="stable"):
        before, after = np.flatnonzero(kept[:worst]), np.flatnonzero(kept[worst + 1 :]) + worst + 1
        if not len(before) or not len(after):
            continue
        fall_j = plans.bound_j[before[-1]] - plans.bound_j[after[0]]
        kept[worst] = fall_j > REACH * total_j[worst]
    return plans.at(np.flatnonzero(kept).astype(np.int32))


def best_of(frontier: Frontier, *sets: Plans) -> Plans:
    """Keep of all the plans those that no other beats, with the bounds that the frontier proves.

    The sets may come from problems with fewer options, as long as those that they name stand first in
    the tables of the frontier's problem.
    """
    every = Plans.stack(sets)
    best = every.at(pareto_front(every.time_s, every.cost_j))
    return replace(best, bound_j=frontier.bounds_at(best.time_s))
